// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/managedcluster"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/internal/sharedobject"
	"github.com/spokelet/spokelet/internal/testing/resourcetest"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	definitionResource = "customresourcedefinitions.apiextensions.k8s.io"
	widgets            = "widgets.example.com"
	hubUID             = "hub"
)

// rig is a Controller over fake API servers, with agents.
type rig struct {
	*Controller

	kube     client.WithWatch // SharedResources, clusters and namespaces
	api      *fakeAPI         // definitions and widgets
	live     *fakeLive
	sync     *resource.Hub
	sessions *sessionsFake
	events   *events.FakeRecorder
	memory   *quota.Memory
	shared   *quota.Memory
	statuses atomic.Int64
	// refusal is what the API server says of a status, if anything.
	refusal atomic.Pointer[error]
	logger  logr.Logger
	stop    func()
}

type sessionsFake struct{ f func(string, bool) }

func (s *sessionsFake) Subscribe(f func(string, bool)) (cancel func()) {
	s.f = f
	return func() {}
}

func newScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.Install, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// newRig has the clusters c1 and c2 with their namespaces, and widgets with a status
// subresource. It is to be made in a bubble.
func newRig(t *testing.T, objects ...client.Object) *rig {
	t.Helper()
	r := &rig{api: newFakeAPI(), events: events.NewFakeRecorder(1000), memory: quota.NewMemory(64<<20, 64<<20)}
	objects = append(objects, clusterNamed("c1"), clusterNamed("c2"), namespaceNamed("c1"), namespaceNamed("c2"),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: hubUID}})
	scheme := newScheme(t)
	// Nothing is applied here: a tracker without field managers is many times faster.
	tracker := clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	r.kube = fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker).WithObjects(objects...).WithStatusSubresource(&v1alpha1.SharedResource{}).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
				r.statuses.Add(1)
				if refusal := r.refusal.Load(); refusal != nil {
					return *refusal
				}
				return c.SubResource(sub).Update(ctx, o, opts...)
			},
		}).Build()
	r.live = &fakeLive{Reader: r.kube, definitions: r.api}
	r.api.set(definitionResource, definitionOf(true))
	return r
}

// start runs a Controller, as a new process of the hub does.
func (r *rig) start(t *testing.T) *rig {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	r.sync, r.sessions = resource.NewHub(), &sessionsFake{}
	r.sync.Limit(r.memory, logr.Discard())
	c, err := New(Config{
		Sync: r.sync, Client: r.kube, Live: r.live, Dynamic: r.api, Informers: informers{api: r.kube, ctx: ctx, running: &running},
		Sessions: r.sessions, Memory: r.shared, Events: r.events, Logger: r.logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Controller = c
	running.Go(func() {
		if err := c.Start(ctx); err != nil {
			t.Errorf("start: %v", err)
		}
	})
	r.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(r.stop)
	r.settle()
	return r
}

// settle waits until nothing happens any more.
func (r *rig) settle() {
	synctest.Wait()
	time.Sleep(2 * time.Second)
	synctest.Wait()
}

// informers are those of a manager's cache, over a fake API server.
type informers struct {
	cache.Informers

	api     client.WithWatch
	ctx     context.Context //nolint:containedctx // that of the test
	running *sync.WaitGroup
}

func (i informers) GetInformer(_ context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	list := func() client.ObjectList { return &corev1.NamespaceList{} }
	switch obj.(type) {
	case *v1alpha1.SharedResource:
		list = func() client.ObjectList { return &v1alpha1.SharedResourceList{} }
	case *clusterv1.ManagedCluster:
		list = func() client.ObjectList { return &clusterv1.ManagedClusterList{} }
	}
	informer := toolscache.NewSharedIndexInformer(listed{&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			l := list()
			return l, i.api.List(ctx, l)
		},
		WatchFuncWithContext: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
			return i.api.Watch(ctx, list())
		},
	}}, obj, 0, nil)
	i.running.Go(func() { informer.RunWithContext(i.ctx) })
	return informer, nil
}

// listed lists before it watches.
type listed struct{ *toolscache.ListWatch }

func (listed) IsWatchListSemanticsUnSupported() bool { return true }

func clusterNamed(name string, change ...func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{managedcluster.AnnotationManaged: "true"}, Labels: map[string]string{"name": name}},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func namespaceNamed(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("ns-" + name), Finalizers: []string{"test/held"}}}
}

// sharedResource shares widgets with c1 in both directions.
func sharedResource(name string, change ...func(*v1alpha1.SharedResource)) *v1alpha1.SharedResource {
	s := &v1alpha1.SharedResource{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Generation: 1},
		Spec: v1alpha1.SharedResourceSpec{
			Group: "example.com", Resource: "widgets",
			ClusterSelector: metav1.LabelSelector{MatchLabels: map[string]string{"name": "c1"}},
		},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

func definitionOf(status bool, change ...func(map[string]any)) *unstructured.Unstructured {
	version := map[string]any{"name": "v1", "served": true, "storage": true}
	if status {
		version["subresources"] = map[string]any{"status": map[string]any{}}
	}
	spec := map[string]any{
		"group": "example.com", "scope": "Namespaced", "names": map[string]any{"plural": "widgets", "kind": "Widget"}, "versions": []any{version},
	}
	for _, f := range change {
		f(spec)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": widgets, "uid": "definition", "labels": map[string]any{"owner": "somebody"}}, "spec": spec,
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}},
	}}
}

func widget(namespace, name string, size int64, change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	w := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"namespace": namespace, "name": name},
		"spec":     map[string]any{"size": size},
	}}
	for _, f := range change {
		f(w)
	}
	return w
}

func resize(size int64) func(*unstructured.Unstructured) {
	return func(w *unstructured.Unstructured) { _ = unstructured.SetNestedField(w.Object, size, "spec", "size") }
}

// sizeOf is that of a widget; -1 where there is none.
func (r *rig) sizeOf(namespace, name string) int64 {
	w := r.api.get(widgets, namespace, name)
	if w == nil {
		return -1
	}
	size, _, _ := unstructured.NestedInt64(w.Object, "spec", "size")
	return size
}

// agent is the other end of one cluster.
type agent struct {
	t              *testing.T
	writes, states *resource.Source
	generation     int64

	mu      sync.Mutex
	shares  map[string]wire.Share
	objects map[string]publishedObject
	// log is what came of objects, in order.
	log []string
}

// publishedObject is what the hub says of a name.
type publishedObject struct {
	wire.SharedObject
	uid        string
	generation int64
}

// connect connects a new agent of a cluster, and lets it settle.
func (r *rig) connect(t *testing.T, cluster string) *agent {
	t.Helper()
	a := r.connectTo(t, cluster)
	if r.sessions.f != nil {
		r.sessions.f(cluster, true)
	}
	r.settle()
	return a
}

// connectTo connects a new agent of a cluster.
func (r *rig) connectTo(t *testing.T, cluster string) *agent {
	t.Helper()
	a := &agent{
		t: t, writes: resource.NewSource(wire.KindSharedWrite), states: resource.NewSource(wire.KindShareState), generation: 1000,
		shares: map[string]wire.Share{}, objects: map[string]publishedObject{},
	}
	end, err := resource.NewAgent([]*resource.Source{a.writes, a.states}, []*resource.Mirror{
		resource.NewMirror(wire.KindShare, resource.Receiver{Put: a.handleShare, Delete: a.handleShareDeletion}),
		resource.NewMirror(wire.KindSharedObject, resource.Receiver{Put: a.handleObject, Delete: a.handleObjectDeletion}),
	})
	if err != nil {
		t.Fatal(err)
	}
	a.writes.Complete()
	a.states.Complete()
	resourcetest.Connect(t, r.sync, cluster, end)
	return a
}

func (a *agent) handleShare(r resource.Resource) {
	s, err := wire.DecodeShare(r.Body)
	if err != nil {
		a.t.Errorf("share: %v", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shares[r.Key] = s
}

func (a *agent) handleShareDeletion(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.shares, key)
}

func (a *agent) handleObject(r resource.Resource) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key, err := wire.ParseSharedKey(r.Key)
	if err != nil {
		a.t.Errorf("key: %v", err)
	}
	if id, ok := key.Fence(); ok {
		f, err := wire.DecodeFence(r.Body)
		if err != nil || f.Version == 0 {
			a.t.Errorf("fence %+v: %v", f, err)
		}
		a.objects[r.Key] = publishedObject{generation: f.Version}
		a.log = append(a.log, "fence "+id)
		return
	}
	o, err := wire.DecodeSharedObject(r.Body)
	if err != nil {
		a.t.Errorf("object: %v", err)
	}
	a.objects[r.Key] = publishedObject{SharedObject: o, uid: r.UID, generation: r.Generation}
	a.log = append(a.log, "put "+key.Name)
}

func (a *agent) handleObjectDeletion(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.objects, key)
	a.log = append(a.log, "delete "+strings.Split(key, "/")[1])
}

// getShare is the share of a name.
func (a *agent) getShare(name string) (wire.Share, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, ok := a.shares[name]
	return s, ok
}

// getObject is what the hub says of an object.
func (a *agent) getObject(key string) (publishedObject, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, ok := a.objects[key]
	return o, ok
}

// hasFence reports whether the agent has seen the fence that a share names, and no other.
func (a *agent) hasFence(share string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	fence := a.shares[share].Fence
	_, ok := a.objects[wire.FenceKey(share, fence).String()]
	n := 0
	for key := range a.objects {
		if strings.HasPrefix(key, share+"/#") {
			n++
		}
	}
	return ok && fence != "" && n == 1
}

// takeLog takes the log.
func (a *agent) takeLog() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.log
	a.log = nil
	return out
}

// requestWrite publishes a write that is made from what the agent knows.
func (a *agent) requestWrite(key string, part wire.SharedPart, to string) int64 {
	a.t.Helper()
	now, _ := a.getObject(key)
	return a.requestWriteFrom(key, part, to, now.Version, now.uid)
}

func (a *agent) requestWriteFrom(key string, part wire.SharedPart, to, seen, uid string) int64 {
	a.t.Helper()
	a.generation++
	w := wire.SharedWrite{Part: part, Seen: seen}
	if to != "" {
		w.Content = json.RawMessage(to)
	}
	a.put(a.writes, resource.Resource{Key: key, UID: uid, Generation: a.generation, Body: encoded(a.t, w)})
	return a.generation
}

func (a *agent) put(to *resource.Source, r resource.Resource) {
	a.t.Helper()
	if err := to.Put(r); err != nil {
		a.t.Fatal(err)
	}
}

func (a *agent) reportState(share string, s wire.ShareState) {
	a.t.Helper()
	a.generation++
	a.put(a.states, resource.Resource{Key: share, Generation: a.generation, Body: encoded(a.t, s)})
}

func encoded(t testing.TB, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// versionOf is that of a content.
func versionOf(t testing.TB, raw string) string {
	t.Helper()
	c, err := sharedobject.Decode([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	canonical, err := sharedobject.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	return sharedobject.Version(canonical)
}

// stored reads an object from the API server.
func stored[O client.Object](t *testing.T, r *rig, obj O) O {
	t.Helper()
	if err := r.kube.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

// edit changes an object as a user does.
func edit[O client.Object](t *testing.T, r *rig, obj O, change func(O)) {
	t.Helper()
	obj = stored(t, r, obj)
	change(obj)
	obj.SetGeneration(obj.GetGeneration() + 1)
	if err := r.kube.Update(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	r.settle()
}

func remove(t *testing.T, r *rig, obj client.Object) {
	t.Helper()
	if err := r.kube.Delete(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	r.settle()
}
