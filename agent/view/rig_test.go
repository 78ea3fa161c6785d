// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/mapping"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/testing/resourcetest"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// door impersonates whoever it is not to refuse.
type door struct{ server http.RoundTripper }

func (d door) Config(r wire.Requester) (*rest.Config, error) {
	if r.User == "mallory" {
		return nil, errors.New("mallory is not let in")
	}
	return &rest.Config{Host: "http://spoke", QPS: -1, Transport: roundTripper(func(q *http.Request) (*http.Response, error) {
		out := q.Clone(q.Context())
		out.Header.Set("Impersonate-User", r.User)
		return d.server.RoundTrip(out)
	})}, nil
}

func (d door) Identity(r wire.Requester) (user string, groups []string, err error) {
	if _, err := d.Config(r); err != nil {
		return "", nil, err
	}
	return r.User, r.Groups, nil
}

// resources are those that a server has.
type resources struct {
	server *server
	// slow lookups find what there was when they began, and end when it is closed.
	slow map[string]chan struct{}
}

func (r resources) Resource(t wire.Target) (*meta.RESTMapping, error) {
	m, err := r.find(t)
	if end, ok := r.slow[t.Resource]; ok {
		<-end
	}
	return m, err
}

func (resources) Reset() {}

func (r resources) find(t wire.Target) (*meta.RESTMapping, error) {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	if a, ok := r.server.answer["discovery"]; ok {
		return nil, errors.New(a.Message)
	}
	k, ok := r.server.resources[cmp.Or(t.Resource, strings.ToLower(t.Kind)+"s")]
	if !ok {
		return nil, fmt.Errorf("resource %q: %w", t.Resource, mapping.ErrNoMatch)
	}
	m := &meta.RESTMapping{
		Resource:         schema.GroupVersionResource{Group: k.group, Version: "v1", Resource: k.name},
		GroupVersionKind: schema.GroupVersionKind{Group: k.group, Version: "v1", Kind: k.kind},
		Scope:            meta.RESTScopeNamespace,
	}
	if k.clusterScoped {
		m.Scope = meta.RESTScopeRoot
	}
	return m, nil
}

// decodedResult is what the hub received for a view.
type decodedResult struct {
	at         time.Duration // since the rig began
	generation int64
	wire.ViewResult
}

// rig is an engine between a server and a hub, in a bubble.
type rig struct {
	t      *testing.T
	server *server
	engine *Engine
	views  *resource.Source
	hub    *resource.Hub
	began  time.Time
	// stop ends the engine and its connection.
	stop func()

	mu sync.Mutex
	// All below are guarded by mu.
	answers map[string][]decodedResult // by key
	dropped []string                   // keys of answers that are withdrawn
}

// runSynctest runs a test with a rig.
func runSynctest(t *testing.T, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, server: newServer(), hub: resource.NewHub(), began: time.Now(), answers: map[string][]decodedResult{}}
		r.hub.Publish(wire.KindView, nil)
		r.hub.Mirror(wire.KindViewResult, resource.HubReceiver{Put: r.receive, Delete: r.drop})
		r.views = r.hub.Source("spoke1", wire.KindView)
		r.views.Complete()
		r.start()
		test(r)
		r.stop()
		if held := r.engine.memory.used.Load(); held != 0 {
			t.Errorf("%d bytes are held after the end", held)
		}
	})
}

// newEngine returns an engine over a server.
func newEngine(t *testing.T, s *server) *Engine {
	t.Helper()
	own := &rest.Config{Host: "http://spoke", QPS: -1, Transport: s, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	reviews, err := authorizationv1.NewForConfig(own)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := metadata.NewForConfig(own)
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Config{Door: door{s}, Resources: resources{server: s}, Reviews: reviews.SubjectAccessReviews(), Metadata: objects})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// start runs an engine, which may be another after stop.
func (r *rig) start() {
	r.t.Helper()
	r.engine = newEngine(r.t, r.server)
	agent, err := resource.NewAgent([]*resource.Source{r.engine.Source()}, []*resource.Mirror{r.engine.Mirror()})
	if err != nil {
		r.t.Fatal(err)
	}
	cut := resourcetest.Connect(r.t, r.hub, "spoke1", agent)
	ctx, cancel := context.WithCancel(r.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = r.engine.Run(ctx) })
	r.stop = sync.OnceFunc(func() {
		cut()
		cancel()
		running.Wait()
	})
	r.t.Cleanup(r.stop)
}

func (r *rig) receive(_ string, in resource.Resource) {
	result, err := wire.DecodeViewResult(in.Body)
	if err != nil {
		r.t.Errorf("answer cannot be decoded: %v: %s", err, in.Body)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[in.Key] = append(r.answers[in.Key], decodedResult{at: time.Since(r.began), generation: in.Generation, ViewResult: result})
}

func (r *rig) drop(_, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropped = append(r.dropped, key)
}

// ask publishes a view and returns its key. A view without requester is alice's.
func (r *rig) ask(v wire.View, generation int64) string {
	r.t.Helper()
	v.Requester.User = cmp.Or(v.Requester.User, "alice")
	v.MaxBytes = cmp.Or(v.MaxBytes, 512<<10)
	key, err := v.Key()
	if err != nil {
		r.t.Fatal(err)
	}
	body, err := json.Marshal(v)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.views.Put(resource.Resource{Key: key, Generation: generation, Body: body}); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
	return key
}

// nextAnswer are the answers to a view since the last call.
func (r *rig) nextAnswer(key string) []decodedResult {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.answers[key]
	delete(r.answers, key)
	return all
}

// onlyAnswer is the answer that has come since the last call.
func (r *rig) onlyAnswer(key, what string) decodedResult {
	r.t.Helper()
	all := r.nextAnswer(key)
	if len(all) != 1 {
		r.t.Fatalf("%s: %d answers, want one: %+v", what, len(all), all)
	}
	return all[0]
}

// expectNoAnswer fails if something was answered since the last call.
func (r *rig) expectNoAnswer(key, what string) {
	r.t.Helper()
	if all := r.nextAnswer(key); len(all) != 0 {
		r.t.Errorf("%s: %d answers, want none; the first: %s %+v", what, len(all), all[0].Result, all[0].Refusal)
	}
}

// sleep lets time go by.
func (r *rig) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// names are those of the items or rows of an answer.
func (a decodedResult) names(t *testing.T) []string {
	t.Helper()
	type item struct {
		Metadata metav1.ObjectMeta            `json:"metadata"`
		Object   metav1.PartialObjectMetadata `json:"object"`
	}
	var list struct {
		Items []item `json:"items"`
		Rows  []item `json:"rows"`
	}
	if err := json.Unmarshal(a.Result, &list); err != nil {
		t.Fatalf("%v in %s, %+v", err, a.Result, a.Refusal)
	}
	names := []string{}
	for _, i := range append(list.Items, list.Rows...) {
		names = append(names, cmp.Or(i.Metadata.Namespace, i.Object.Namespace)+"/"+cmp.Or(i.Metadata.Name, i.Object.Name))
	}
	return names
}

func configMaps(namespace string) wire.View {
	return wire.View{Target: wire.Target{Resource: "configmaps", Namespace: namespace}}
}

func configMap(namespace, name string) wire.View {
	v := configMaps(namespace)
	v.Target.Name = name
	return v
}

func data(key, value string) map[string]any {
	return map[string]any{"data": map[string]any{key: value}}
}
