// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// realRegistry is a real one that speaks HTTP, with a folder and a runtime of this test's own,
// or the test is skipped.
func realRegistry(t *testing.T) Config {
	t.Helper()
	host := os.Getenv("SPOKELET_REGISTRY")
	if host == "" {
		t.Skip("SPOKELET_REGISTRY is not set: there is no real registry")
	}
	folder := fmt.Sprintf("%s/test-%d", host, time.Now().UnixNano())
	return Config{Push: folder + "/workers", Runtime: folder + "/runtime:1", Insecure: true}
}

// recorder notes what is sent.
type recorder struct {
	next http.RoundTripper

	mu   sync.Mutex
	sent []string // guarded by mu
	body int64    // guarded by mu: bytes of blobs that were sent or got
}

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := r.next.RoundTrip(request)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, request.Method+" "+request.URL.Path)
	if err == nil && request.Method == http.MethodGet && strings.Contains(request.URL.Path, "/blobs/") {
		r.body += answer.ContentLength
	}
	return answer, err
}

// count tells how many requests there were.
func (r *recorder) count(method, path string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, sent := range r.sent {
		if strings.HasPrefix(sent, method+" ") && strings.Contains(sent, path) {
			n++
		}
	}
	return n
}

func TestRealRegistryStoresImages(t *testing.T) {
	config := realRegistry(t)
	r, image := newRegistry(t, config), randomImage(t)
	ctx, digest := t.Context(), digestOf(t, image)
	if _, err := r.Digest(ctx, "a1", "tag"); !errors.Is(err, ErrMissing) {
		t.Errorf("a tag before it is there: %v", err)
	}
	if err := r.Push(ctx, "a1", "tag", image); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Digest(ctx, "a1", "tag"); got != digest || err != nil {
		t.Errorf("the tag: %s, %v", got, err)
	}
	if there, err := r.Exists(ctx, "a2", digest); there || err != nil {
		t.Errorf("the image of another account: %v, %v", there, err)
	}
	err := r.Delete(ctx, "a1", digest)
	if errors.Is(err, ErrUnsupported) {
		t.Log("this registry does not delete")
		return
	}
	if err != nil {
		t.Error(err)
	}
	if there, err := r.Exists(ctx, "a1", digest); there || err != nil {
		t.Errorf("the image when it is deleted: %v, %v", there, err)
	}
	if err := r.Delete(ctx, "a1", digest); err != nil {
		t.Errorf("delete it again: %v", err)
	}
}

func TestRuntimeLayersAreMounted(t *testing.T) {
	config := realRegistry(t)
	runtime, err := random.Image(1<<20, 3)
	if err != nil {
		t.Fatal(err)
	}
	put(t, config.Runtime, runtime, name.Insecure)
	r := newRegistry(t, config)
	base, err := r.Base(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	layer, err := random.Layer(1000, types.DockerLayer)
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(base.Images[0], layer)
	if err != nil {
		t.Fatal(err)
	}
	watch := &recorder{next: r.transport}
	if err := r.push(t, watch, "a1", image); err != nil {
		t.Fatal(err)
	}
	// The layer that was added, and the configuration.
	if sent := watch.count(http.MethodPatch, "/blobs/uploads/"); sent != 2 {
		t.Errorf("it sent %d blobs: %s", sent, watch.sent)
	}
	if watch.body > 10_000 {
		t.Errorf("it read %d bytes of blobs", watch.body)
	}
	if there, err := r.Exists(t.Context(), "a1", digestOf(t, image)); !there || err != nil {
		t.Errorf("the image: %v, %v", there, err)
	}
}

// push writes an image with another transport.
func (r *Registry) push(t *testing.T, way http.RoundTripper, account string, image v1.Image) error {
	t.Helper()
	repository, err := r.config.repository(account)
	if err != nil {
		return err
	}
	return remote.Push(repository.Tag("tag"), image, append(r.options(t.Context()), remote.WithTransport(way))...)
}
