// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const absent = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

func TestImageIsInAccountRepository(t *testing.T) {
	f := &fakeRegistry{}
	r, image := f.start(t), randomImage(t)
	ctx, digest := t.Context(), digestOf(t, image)
	if _, err := r.Digest(ctx, "a1", "tag"); !errors.Is(err, ErrMissing) {
		t.Errorf("a tag before it is there: %v", err)
	}
	if there, err := r.Exists(ctx, "a1", digest); there || err != nil {
		t.Errorf("an image before it is there: %v, %v", there, err)
	}
	if err := r.Push(ctx, "a1", "tag", image); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Digest(ctx, "a1", "tag"); got != digest || err != nil {
		t.Errorf("the tag: %s, %v", got, err)
	}
	if there, err := r.Exists(ctx, "a1", digest); !there || err != nil {
		t.Errorf("the image: %v, %v", there, err)
	}
	if there, err := r.Exists(ctx, "a2", digest); there || err != nil {
		t.Errorf("the image of another account: %v, %v", there, err)
	}
	if got, want := r.Reference("a1", digest), f.host+"/workers/a1@"+digest; got != want {
		t.Errorf("it is called %s, not %s", got, want)
	}
	for range 2 { // what is deleted is deleted
		if err := r.Delete(ctx, "a1", digest); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	if there, err := r.Exists(ctx, "a1", digest); there || err != nil {
		t.Errorf("the image when it is deleted: %v, %v", there, err)
	}
	for _, asked := range f.requests() {
		if path := strings.SplitN(asked, " ", 2)[1]; path != "/v2/" && !strings.HasPrefix(path, "/v2/workers/a") {
			t.Errorf("it asked %s", asked)
		}
	}
}

func TestOnlyAccountRepositoryIsRequested(t *testing.T) {
	f := &fakeRegistry{}
	r := f.start(t)
	accounts := map[string]string{
		"":             "it is the folder itself",
		"a/b":          "it is the repository of another",
		"../runtime":   "as a/b",
		"a@" + absent:  "it is an image",
		"a:tag":        "it is an image",
		"A":            "registries know small letters alone",
		"a?b=c":        "it is a query",
		"a b":          "it is no name",
		"..":           "it is the folder above",
		"_catalog/../": "it is another part of the protocol",
	}
	digests := map[string]string{
		"latest": "it is a tag", "../../runtime/manifests/1": "it is a path", "sha256:0": "it is too short", "": "it is nothing",
	}
	for account, reason := range accounts {
		_, err := r.Digest(t.Context(), account, "tag")
		_, err2 := r.Exists(t.Context(), account, absent)
		for _, err := range []error{err, err2, r.Delete(t.Context(), account, absent), r.Push(t.Context(), account, "tag", empty.Image)} {
			if err == nil {
				t.Errorf("account %q: %s", account, reason)
			}
		}
	}
	for digest, reason := range digests {
		if _, err := r.Exists(t.Context(), "a1", digest); err == nil {
			t.Errorf("digest %q: %s", digest, reason)
		}
		if err := r.Delete(t.Context(), "a1", digest); err == nil {
			t.Errorf("digest %q: %s", digest, reason)
		}
	}
	if asked := f.requests(); len(asked) > 0 {
		t.Errorf("it asked %s", asked)
	}
}

func TestBaseReadsImageOrIndex(t *testing.T) {
	one, other := randomImage(t), randomImage(t)
	linux := func(architecture string) v1.Descriptor {
		return v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}}
	}
	statement := mutate.IndexAddendum{Add: mutate.MediaType(empty.Image, types.OCIManifestSchema1), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}}}
	f := &fakeRegistry{}
	r := f.start(t)
	if _, err := r.Base(t.Context()); !errors.Is(err, ErrMissing) {
		t.Errorf("before it is there: %v", err)
	}
	cases := []struct {
		reason  string
		runtime interface {
			RawManifest() ([]byte, error)
		}
		want  []string
		index bool
	}{
		{"an image is one", one, []string{digestOf(t, one)}, false},
		{
			"what else an index has are statements",
			mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: one, Descriptor: linux("amd64")}, statement, mutate.IndexAddendum{Add: other, Descriptor: linux("arm64")}),
			[]string{digestOf(t, one), digestOf(t, other)}, true,
		},
		{"an index of one image is an index", mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: one}), []string{digestOf(t, one)}, true},
	}
	for _, test := range cases {
		put(t, f.host+"/runtime:1", test.runtime)
		base, err := r.Base(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, image := range base.Images {
			got = append(got, digestOf(t, image))
		}
		if diff := cmp.Diff(test.want, got); diff != "" || base.Index != test.index {
			t.Errorf("%s\nindex %v\n%s", test.reason, base.Index, diff)
		}
	}
	put(t, f.host+"/runtime:1", mutate.AppendManifests(empty.Index, statement))
	if _, err := r.Base(t.Context()); !errors.Is(err, ErrMissing) {
		t.Errorf("an index without an image for Linux: %v", err)
	}
}

func TestRefusalOf(t *testing.T) {
	t.Parallel()
	status := func(code int, methods ...string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			for _, method := range methods {
				if r.Method == method && r.URL.Path != "/v2/" {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(code)
					_, _ = w.Write([]byte(`{"errors":[{"code":"SOME","message":"words"}]}`))
					return true
				}
			}
			return false
		}
	}
	remove := func(r *Registry) error { return r.Delete(t.Context(), "a1", absent) }
	look := func(r *Registry) error { _, err := r.Digest(t.Context(), "a1", "tag"); return err }
	write := func(r *Registry) error { return r.Push(t.Context(), "a1", "tag", randomImage(t)) }
	cases := map[string]struct {
		reason string
		fault  func(http.ResponseWriter, *http.Request) bool
		call   func(*Registry) error
		is     []error
		want   string
	}{
		"it does not delete": {
			reason: "many do not", fault: status(http.StatusMethodNotAllowed, http.MethodDelete), call: remove,
			is: []error{ErrUnsupported}, want: "delete image a1@" + absent + ": the registry does not support it",
		},
		"it is full": {
			reason: "somebody makes place", fault: status(http.StatusInsufficientStorage, http.MethodPatch, http.MethodPut), call: write,
			is: []error{ErrUnavailable}, want: "push image a1:tag: the registry is not available: it answers 507 to PATCH; SOME: words",
		},
		"it breaks": {
			reason: "it is repaired", fault: status(http.StatusInternalServerError, http.MethodPost), call: write,
			is: []error{ErrUnavailable}, want: "push image a1:tag: the registry is not available: it answers 500 to POST; SOME: words",
		},
		"it is asked too much": {
			reason: "it goes", fault: status(http.StatusTooManyRequests, http.MethodHead), call: look,
			is: []error{ErrUnavailable},
		},
		"it refuses to be written to": {
			reason: "the operator's credentials are at fault, and may change", fault: status(http.StatusForbidden, http.MethodPost), call: write,
			is:   []error{ErrUnavailable, ErrDenied},
			want: "push image a1:tag: the registry refuses the operator: the registry is not available: it answers 403 to POST; SOME: words",
		},
		"it has no such repository": {
			reason: "some want it to be made by hand", fault: status(http.StatusNotFound, http.MethodPost), call: write,
			is: []error{ErrUnavailable, ErrDenied}, want: "push image a1:tag: the registry refuses the operator: the registry is not available: there is no such repository",
		},
		"it refuses the image": {
			reason: "another time it does so, too", fault: status(http.StatusRequestEntityTooLarge, http.MethodPatch, http.MethodPut), call: write,
			want: "push image a1:tag: the registry refuses it: it answers 413 to PATCH; SOME: words",
		},
		"its connection breaks": {
			reason: "it is being restarted",
			fault: func(_ http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != "/v2/" {
					panic(http.ErrAbortHandler)
				}
				return false
			},
			call: look, is: []error{ErrUnavailable}, want: "image a1:tag: the registry is not available: EOF",
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := &fakeRegistry{}
			r := f.start(t)
			f.breakWith(test.fault)
			begin := time.Now()
			err := test.call(r)
			if err == nil || test.want != "" && err.Error() != test.want {
				t.Fatalf("%s\n%v, not %s", test.reason, err, test.want)
			}
			for _, target := range []error{ErrUnavailable, ErrDenied, ErrMissing, ErrUnsupported} {
				if wanted := slices.Contains(test.is, target); errors.Is(err, target) != wanted {
					t.Errorf("%s\n%v is %v: %v", test.reason, err, target, !wanted)
				}
			}
			if took := time.Since(begin); took > 20*time.Second {
				t.Errorf("it takes %s", took)
			}
		})
	}
}

func TestSilentRegistryTimesOut(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	host := listener.Addr().String()
	r := newRegistry(t, Config{Push: host + "/workers", Runtime: host + "/runtime:1", Insecure: true, Timeout: 100 * time.Millisecond})
	_, err = r.Digest(t.Context(), "a1", "tag")
	if want := "image a1:tag: the registry is not available: it took too long to answer"; err == nil || err.Error() != want {
		t.Errorf("%v, not %s", err, want)
	}
	// Base has no limit but its context.
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := r.Base(ctx); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

func TestCanceledRegistryCallIsCanceled(t *testing.T) {
	f := &fakeRegistry{}
	r := f.start(t)
	ctx, cancel := context.WithCancel(t.Context())
	f.breakWith(func(http.ResponseWriter, *http.Request) bool { cancel(); return false })
	_, err := r.Exists(ctx, "a1", absent)
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnavailable) {
		t.Errorf("it returns %v", err)
	}
}
