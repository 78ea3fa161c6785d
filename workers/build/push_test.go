// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	fakeregistry "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/spokelet/spokelet/workers/bundle"
	"github.com/spokelet/spokelet/workers/registry"
	"github.com/spokelet/spokelet/workers/store"
)

// fakeRegistry is a registry in memory that notes what it is asked to write.
type fakeRegistry struct {
	*registry.Registry

	host string

	mu      sync.Mutex
	written []string                       // guarded by mu
	fault   func(*http.Request) (code int) // guarded by mu
}

func newFakeRegistry(t *testing.T) *fakeRegistry {
	t.Helper()
	f := &fakeRegistry{}
	inner := fakeregistry.New(fakeregistry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		code := 0
		if f.fault != nil {
			code = f.fault(r)
		}
		if r.Method == http.MethodPut {
			f.written = append(f.written, strings.TrimPrefix(r.URL.Path, "/v2/"))
		}
		f.mu.Unlock()
		if code != 0 {
			w.WriteHeader(code)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	f.host = strings.TrimPrefix(server.URL, "http://")
	var err error
	f.Registry, err = registry.New(registry.Config{Push: f.host + "/workers", Runtime: f.host + "/runtime:1", Insecure: true, Backoff: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// manifests are those that were written since it was last asked.
func (f *fakeRegistry) manifests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, path := range f.written {
		if strings.Contains(path, "/manifests/") {
			all = append(all, path)
		}
	}
	f.written = nil
	return all
}

// serve makes an image or an index the runtime.
func (f *fakeRegistry) serve(t *testing.T, runtime remote.Taggable) {
	t.Helper()
	reference, err := name.ParseReference(f.host + "/runtime:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Push(reference, runtime); err != nil {
		t.Fatal(err)
	}
	f.manifests()
}

// get returns what an image of an account is.
func (f *fakeRegistry) get(t *testing.T, reference string) *remote.Descriptor {
	t.Helper()
	parsed, err := name.ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	descriptor, err := remote.Get(parsed)
	if err != nil {
		t.Fatal(err)
	}
	return descriptor
}

// runtimeImage is one that has an entrypoint, a time and a variable of its own.
func runtimeImage(t *testing.T, architecture string) v1.Image {
	t.Helper()
	image, err := random.Image(1000, 2)
	if err != nil {
		t.Fatal(err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = "linux", architecture, v1.Time{Time: time.Now()}
	file.Config = v1.Config{Entrypoint: []string{"/bin/sh"}, Cmd: []string{"-c"}, User: "root", Env: []string{"A=b"}}
	image, err = mutate.ConfigFile(image, file)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// pushable is a step after check.
func pushable(t *testing.T, f *fakeRegistry, in bundle.Input) PushConfig {
	t.Helper()
	config := PushConfig{Input: writeInput(t, in), Work: t.TempDir(), Registry: f}
	for i, w := range in.Workers {
		for j, m := range w.Modules {
			write(t, filepath.Join(config.Work, in.Path(i, j)), m.Key)
		}
	}
	return config
}

func push(t *testing.T, config PushConfig) string {
	t.Helper()
	image, err := Push(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// entry is a file of a layer.
type entry struct {
	Name     string
	Mode     int64
	UID, GID int
	Time     int64
	Text     string
}

func entries(t *testing.T, layer v1.Layer) []entry {
	t.Helper()
	text, err := layer.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	var all []entry
	for archive := tar.NewReader(text); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, entry{header.Name, header.Mode, header.Uid, header.Gid, header.ModTime.Unix(), string(content)})
	}
}

func TestImageIsRuntimePlusOneLayer(t *testing.T) {
	f, in := newFakeRegistry(t), inputOf(2, 2)
	base := runtimeImage(t, "amd64")
	f.serve(t, base)
	reference := push(t, pushable(t, f, in))
	image, err := f.get(t, reference).Image()
	if err != nil {
		t.Fatal(err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := v1.Config{Entrypoint: []string{"/usr/bin/workerd", "serve", "/worker/config.capnp"}, User: "65532:65532", Env: []string{"A=b"}}
	if diff := cmp.Diff(want, file.Config); diff != "" {
		t.Error(diff)
	}
	if !file.Created.Equal(epoch) || !file.History[len(file.History)-1].Created.Equal(epoch) {
		t.Errorf("it was made %s, with the history %+v", file.Created, file.History)
	}
	layers, _ := image.Layers()
	if len(layers) != 3 {
		t.Fatalf("it has %d layers", len(layers))
	}
	const folder, regular = 0o555, 0o444
	content := []entry{
		{"worker/", folder, 0, 0, 0, ""},
		{"worker/config.capnp", regular, 0, 0, 0, string(in.Config())},
		{"worker/w0/", folder, 0, 0, 0, ""},
		{"worker/w0/0", regular, 0, 0, 0, "a1/s0/1/m0.js"},
		{"worker/w0/1", regular, 0, 0, 0, "a1/s0/1/m1.js"},
		{"worker/w1/", folder, 0, 0, 0, ""},
		{"worker/w1/0", regular, 0, 0, 0, "a1/s1/1/m0.js"},
		{"worker/w1/1", regular, 0, 0, 0, "a1/s1/1/m1.js"},
	}
	if diff := cmp.Diff(content, entries(t, layers[2])); diff != "" {
		t.Error(diff)
	}
}

func TestSameInputBuildsSameImage(t *testing.T) {
	f, in := newFakeRegistry(t), inputOf(2, 2)
	base := runtimeImage(t, "amd64")
	f.serve(t, base)
	first := push(t, pushable(t, f, in))
	tag := in.Digest()[:tagLength]
	if diff := cmp.Diff([]string{"workers/a1/manifests/" + tag}, f.manifests()); diff != "" {
		t.Error(diff)
	}
	if second := push(t, pushable(t, f, in)); second != first {
		t.Errorf("another folder makes %s of %s", second, first)
	}
	if got := f.manifests(); got != nil {
		t.Errorf("what is there is written again: %s", got)
	}
	f.serve(t, runtimeImage(t, "amd64"))
	if third := push(t, pushable(t, f, in)); third == first {
		t.Error("another runtime makes the same image")
	}
	if diff := cmp.Diff([]string{"workers/a1/manifests/" + tag}, f.manifests()); diff != "" {
		t.Error(diff)
	}
	f.serve(t, base)
	if again := push(t, pushable(t, f, in)); again != first {
		t.Errorf("the first runtime makes %s of %s", again, first)
	}
}

func TestImageHasEachRuntimePlatform(t *testing.T) {
	f, in := newFakeRegistry(t), inputOf(1, 1)
	statement := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	f.serve(t, mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: runtimeImage(t, "amd64"), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}},
		mutate.IndexAddendum{Add: runtimeImage(t, "arm64"), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}},
		mutate.IndexAddendum{Add: statement, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}}},
	))
	first := push(t, pushable(t, f, in))
	index, err := f.get(t, first).ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
		image, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		layers, _ := image.Layers()
		if got := entries(t, layers[len(layers)-1]); len(got) != 4 {
			t.Errorf("%s: %+v", m.Platform, got)
		}
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, platforms); diff != "" {
		t.Error(diff)
	}
	f.manifests()
	if second := push(t, pushable(t, f, in)); second != first || f.manifests() != nil {
		t.Errorf("it is another one the next time: %s", second)
	}
}

func TestPushReportsErrors(t *testing.T) {
	answer := func(code int, methods string) func(*http.Request) int {
		return func(r *http.Request) int {
			if strings.Contains(methods, r.Method) && strings.Contains(r.URL.Path, "/workers/") {
				return code
			}
			return 0
		}
	}
	cases := map[string]struct {
		reason string
		fault  func(*http.Request) int
		change func(t *testing.T, config *PushConfig)
		want   string
		retry  bool
	}{
		"when the registry is full": {
			reason: "somebody makes place", fault: answer(http.StatusInsufficientStorage, "PATCH PUT"),
			want: "the registry is not available: it answers 507 to", retry: true,
		},
		"when the registry breaks": {
			reason: "somebody repairs it", fault: answer(http.StatusBadGateway, "PATCH PUT POST"),
			want: "the registry is not available: it answers 502 to", retry: true,
		},
		"when nobody may write": {
			reason: "a secret is being changed", fault: answer(http.StatusForbidden, "PATCH PUT POST"),
			want: "the registry refuses the operator: ", retry: true,
		},
		"when a module was changed": {
			reason: "the size is that of the listing",
			change: func(t *testing.T, c *PushConfig) { write(t, filepath.Join(c.Work, "w0/0"), "x") },
			want:   "script s0: module \"m0.js\": the object was changed after it was listed: it has 1 bytes, not 13",
		},
		"when a module is missing": {
			reason: "the step before did not write it",
			change: func(_ *testing.T, c *PushConfig) { c.Work = "/nowhere" },
			want:   "work folder: open /nowhere: no such file or directory", retry: true,
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFakeRegistry(t)
			f.serve(t, runtimeImage(t, "amd64"))
			f.fault = test.fault
			config := pushable(t, f, inputOf(1, 1))
			if test.change != nil {
				test.change(t, &config)
			}
			image, err := Push(t.Context(), config)
			if err == nil || image != "" || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("%s\n%q, %v, not %q", test.reason, image, err, test.want)
			}
			if FailedResult(err).Failure.Retry != test.retry {
				t.Errorf("%s\nto be tried again: %v", test.reason, !test.retry)
			}
			if strings.Contains(err.Error(), f.host+"/v2/") {
				t.Errorf("the URL of an upload is another one each time: %v", err)
			}
		})
	}
}

func TestPushWritesWhenRegistryDeniesMissingImage(t *testing.T) {
	f := newFakeRegistry(t)
	f.serve(t, runtimeImage(t, "amd64"))
	f.fault = func(r *http.Request) int {
		if r.Method == http.MethodHead && strings.Contains(r.URL.Path, "/manifests/") && strings.Contains(r.URL.Path, "/workers/") {
			return http.StatusForbidden
		}
		return 0
	}
	push(t, pushable(t, f, inputOf(1, 1)))
}

func TestPushFailsWithoutRuntimeImage(t *testing.T) {
	f := newFakeRegistry(t)
	_, err := Push(t.Context(), pushable(t, f, inputOf(1, 1)))
	if !errors.Is(err, registry.ErrMissing) || !strings.HasPrefix(err.Error(), "runtime image "+f.host+"/runtime:1: ") {
		t.Errorf("it returns %v", err)
	}
}

func TestPushFailsWhenModuleChanges(t *testing.T) {
	f, in := newFakeRegistry(t), inputOf(1, 1)
	f.serve(t, runtimeImage(t, "amd64"))
	config := pushable(t, f, in)
	f.fault = func(r *http.Request) int {
		if r.Method == http.MethodPost {
			write(t, filepath.Join(config.Work, in.Path(0, 0)), "x")
		}
		return 0
	}
	_, err := Push(t.Context(), config)
	if !errors.Is(err, store.ErrChanged) || FailedResult(err).Failure.Retry {
		t.Errorf("it returns %v", err)
	}
}

func TestClosedLayerLeavesNoGoroutine(t *testing.T) {
	in := inputOf(3, 50)
	c := &layerContent{input: in, work: pushable(t, newFakeRegistry(t), in).Work}
	layer, err := c.layer(types.OCILayer)
	if err != nil {
		t.Fatal(err)
	}
	text, err := layer.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := text.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	// TestMain finds what it leaves.
	if err := text.Close(); err != nil {
		t.Error(err)
	}
}

func TestCanceledPushEnds(t *testing.T) {
	f := newFakeRegistry(t)
	f.serve(t, runtimeImage(t, "amd64"))
	ctx, cancel := context.WithCancel(t.Context())
	f.fault = func(r *http.Request) int {
		if r.Method == http.MethodPost {
			cancel()
		}
		return 0
	}
	_, err := Push(ctx, pushable(t, f, inputOf(1, 1)))
	if !errors.Is(err, context.Canceled) || !FailedResult(err).Failure.Retry {
		t.Errorf("it returns %v", err)
	}
}
