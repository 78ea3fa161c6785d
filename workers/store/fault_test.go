// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRefusalOf(t *testing.T) {
	t.Parallel()
	status := func(code int, text string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool { refuse(w, code, text); return true }
	}
	cases := map[string]struct {
		reason string
		fault  func(http.ResponseWriter, *http.Request) bool
		is     []error
		want   string
	}{
		"an internal error": {
			reason: "it goes", fault: status(http.StatusInternalServerError, "InternalError"),
			is: []error{ErrUnavailable}, want: "a1/s/1: the object store is not available: InternalError",
		},
		"too many requests": {
			reason: "it goes", fault: status(http.StatusTooManyRequests, "TooManyRequests"),
			is: []error{ErrUnavailable}, want: "a1/s/1: the object store is not available: TooManyRequests",
		},
		"slow down": {
			reason: "it goes", fault: status(http.StatusServiceUnavailable, "SlowDown"),
			is: []error{ErrUnavailable}, want: "a1/s/1: the object store is not available: SlowDown",
		},
		"no words": {
			reason: "a proxy answers, not the store", fault: func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusBadGateway); return true },
			is: []error{ErrUnavailable}, want: "a1/s/1: the object store is not available: 502 Bad Gateway",
		},
		"no rights": {
			reason: "it is the operator's, and may be given", fault: status(http.StatusForbidden, "AccessDenied"),
			is: []error{ErrUnavailable, ErrDenied}, want: "a1/s/1: the object store refuses the operator: the object store is not available: AccessDenied",
		},
		"no bucket": {
			reason: "as no rights: no script is missing", fault: status(http.StatusNotFound, "NoSuchBucket"),
			is: []error{ErrUnavailable, ErrDenied}, want: "a1/s/1: the object store refuses the operator: the object store is not available: NoSuchBucket",
		},
		"a wrong signature": {
			reason: "as no rights", fault: status(http.StatusForbidden, "SignatureDoesNotMatch"),
			is: []error{ErrUnavailable, ErrDenied},
		},
		"another refusal": {
			reason: "nobody knows that it goes", fault: status(http.StatusBadRequest, "InvalidArgument"),
			want: "a1/s/1: the object store answers 400: InvalidArgument",
		},
		"a listing that breaks off": {
			reason: "what came is not all", fault: func(w http.ResponseWriter, _ *http.Request) bool {
				_, _ = io.WriteString(w, "<ListBucketResult><Contents><Key>a1/s/1/index.js</Key></Contents>")
				return true
			},
			is: []error{ErrUnavailable},
		},
		"a connection that breaks": {
			reason: "the store is being restarted", fault: func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) },
			is: []error{ErrUnavailable}, want: "a1/s/1: the object store is not available: Connection closed by foreign host. Retry again.",
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait between attempts
			begin := time.Now()
			store := (&fakeS3{fault: test.fault}).start(t)
			got, err := store.List(t.Context(), "a1", []string{"a1/s/1"})
			if err == nil || got != nil || test.want != "" && err.Error() != test.want {
				t.Fatalf("%s\n%v, %v, not %s", test.reason, got, err, test.want)
			}
			for _, target := range []error{ErrUnavailable, ErrDenied, ErrMissing} {
				if wanted := slices.Contains(test.is, target); errors.Is(err, target) != wanted {
					t.Errorf("%s\n%v is %v: %v", test.reason, err, target, !wanted)
				}
			}
			if strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "access") {
				t.Errorf("it tells a secret: %v", err)
			}
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("it takes %s", took)
			}
		})
	}
}

// silent is a store that takes connections and says nothing.
func silent(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return "http://" + listener.Addr().String()
}

func TestSilentStoreTimesOut(t *testing.T) {
	t.Parallel()
	config := Config{Endpoint: silent(t), Bucket: bucket, AnswerTimeout: 50 * time.Millisecond, Timeout: 30 * time.Second}
	const want = "the object store is not available: it took too long to answer"
	cases := map[string]struct {
		reason string
		change func(c *Config)
	}{
		"a request":    {"each attempt has a time", func(*Config) {}},
		"all attempts": {"and all of them", func(c *Config) { c.AnswerTimeout, c.Timeout = time.Minute, 50*time.Millisecond }},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config
			test.change(&c)
			store := newStore(t, c)
			_, err := store.List(t.Context(), "a1", []string{"a1/s/1"})
			if err == nil || err.Error() != "a1/s/1: "+want {
				t.Errorf("%s\n%v", test.reason, err)
			}
			err = store.Fetch(t.Context(), "a1", stored(), io.Discard)
			if !errors.Is(err, ErrUnavailable) || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%s\n%v", test.reason, err)
			}
		})
	}
}

func TestStalledObjectTimesOut(t *testing.T) {
	t.Parallel()
	fault := func(w http.ResponseWriter, r *http.Request) bool {
		answer("x", 18)(w, r)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	}
	store := (&fakeS3{fault: fault}).start(t, func(c *Config) { c.AnswerTimeout = 50 * time.Millisecond })
	err := store.Fetch(t.Context(), "a1", stored(), io.Discard)
	if !errors.Is(err, ErrUnavailable) || !strings.HasSuffix(err.Error(), "it took too long to answer") {
		t.Errorf("it returns %v", err)
	}
}

func TestUnreachableStoreIsUnavailable(t *testing.T) {
	t.Parallel()
	const address = "127.0.0.1:1" // nobody is given that port
	store := newStore(t, Config{Endpoint: "http://" + address, Bucket: bucket})
	_, err := store.List(t.Context(), "a1", []string{"a1/s/1"})
	if want := "a1/s/1: the object store is not available: dial " + address + ": connect: connection refused"; err == nil || err.Error() != want {
		t.Errorf("%v, not %s", err, want)
	}
}

func TestCanceledStoreCallIsCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	fake := &fakeS3{objects: map[string]string{"a1/s/1/a.js": "a", "a1/s/1/b.js": "b"}, page: 1}
	fake.fault = func(http.ResponseWriter, *http.Request) bool {
		if len(fake.requests()) == 2 { // between two pages
			cancel()
		}
		return false
	}
	got, err := fake.start(t).List(ctx, "a1", []string{"a1/s/1"})
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnavailable) || got != nil {
		t.Errorf("a part of the modules is not all of them: %v, %v", got, err)
	}
}
