// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	actionv1beta1 "github.com/spokelet/spokelet/api/action/v1beta1"
	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	viewv1beta1 "github.com/spokelet/spokelet/api/view/v1beta1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/hub/requester"
	"github.com/spokelet/spokelet/internal/managedcluster"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/internal/rbacwatch"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	managed = "c1"
	// registered is the UID of the webhook's registration.
	registered = "registration"
)

var alice = requester.User{User: "alice", Groups: []string{"dev"}}

// rig is a Controller over a fake API server.
type rig struct {
	*Controller

	api      client.WithWatch
	sync     *resource.Hub
	access   *fakeAccess
	authors  *requester.Registration
	sessions *fakeSessions
	events   *events.FakeRecorder
	memory   *quota.Memory
	// patches are those of statuses; refused is what they meet.
	patches []string
	writing sync.Mutex
	refused func() error
	// lagging is a Work as a cache that lags has it; nil reads what is.
	lagging *v1alpha1.Work
	// rbac and stop are those of what start has started.
	rbac *fakeRBAC
	stop func()
}

// fakeAccess lets in all but those who are named.
type fakeAccess struct {
	mu      sync.Mutex
	denied  []string
	err     error
	reviews int
}

func (a *fakeAccess) Create(_ context.Context, r *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reviews++
	r = r.DeepCopy()
	r.Status.Allowed = !slices.Contains(a.denied, r.Spec.User)
	return r, a.err
}

func (a *fakeAccess) deny(users ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.denied = users
}

func (a *fakeAccess) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reviews
}

// fakeSessions are the clusters that are connected.
type fakeSessions struct {
	mu        sync.Mutex
	connected map[string]bool
	f         func(string, bool)
}

func (s *fakeSessions) Connected(cluster string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connected[cluster]
}

func (s *fakeSessions) Subscribe(f func(string, bool)) (cancel func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.f = f
	for cluster, here := range s.connected {
		if here {
			f(cluster, true)
		}
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.f = nil
	}
}

func (s *fakeSessions) set(cluster string, here bool) {
	s.mu.Lock()
	s.connected[cluster] = here
	f := s.f
	s.mu.Unlock()
	if f != nil {
		f(cluster, here)
	}
}

func newScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clusterv1.Install, v1alpha1.AddToScheme, viewv1beta1.AddToScheme, actionv1beta1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// newRig has one cluster, which is connected.
func newRig(t *testing.T, objects ...client.Object) *rig {
	t.Helper()
	r := &rig{
		sync: resource.NewHub(), access: &fakeAccess{}, authors: &requester.Registration{}, events: events.NewFakeRecorder(1000),
		sessions: &fakeSessions{connected: map[string]bool{managed: true}}, memory: quota.NewMemory(64<<20, 64<<20),
	}
	r.authors.Set(registered)
	scheme := newScheme(t)
	// Nothing is applied here: a tracker without field managers is many times faster.
	tracker := clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	r.api = fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.Work{}, &viewv1beta1.ManagedClusterView{}, &actionv1beta1.ManagedClusterAction{}).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				if r.refused != nil {
					if err := r.refused(); err != nil {
						return err
					}
				}
				patch, err := p.Data(o)
				r.writing.Lock() // writers come beside each other
				r.patches = append(r.patches, string(patch))
				r.writing.Unlock()
				return errors.Join(err, c.SubResource(sub).Patch(ctx, o, p, opts...))
			},
		}).Build()
	r.restart(t)
	return r
}

// restart makes another Controller over the same API server.
func (r *rig) restart(t *testing.T) {
	t.Helper()
	r.sync = resource.NewHub()
	// The manager's cache strips what it keeps.
	cached := interceptor.NewClient(r.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := c.Get(ctx, key, o, opts...); err != nil {
				return err
			}
			if w, ok := o.(*v1alpha1.Work); ok && r.lagging != nil {
				r.lagging.DeepCopyInto(w)
			}
			_, err := Strip(o)
			return err
		},
	})
	c, err := New(Config{
		Sync: r.sync, Client: cached, Live: r.api, Informers: &informertest.FakeInformers{}, Access: r.access,
		Rights: rbacwatch.NewRechecker(nil, logr.Discard()), Authors: r.authors, Sessions: r.sessions,
		Events: r.events, Logger: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Controller = c
	c.handleCluster(clusterNamed(managed), changedEvent)
	t.Cleanup(func() {
		c.queue.ShutDown()
		c.results.ShutDown()
	})
}

func clusterNamed(name string, change ...func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{managedcluster.AnnotationManaged: "true"}},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

// object gives an object what an API server and the webhook give one.
func object[O client.Object](obj O, namespace, name string, by requester.AnnotationKeys, change ...func(O)) O {
	obj.SetNamespace(namespace)
	obj.SetName(name)
	obj.SetUID(types.UID("uid-" + name))
	obj.SetGeneration(1)
	obj.SetAnnotations(alice.Annotations(by, registered))
	for _, f := range change {
		f(obj)
	}
	return obj
}

// resourceWork asks for pods.
func resourceWork(name string, change ...func(*v1alpha1.Work)) *v1alpha1.Work {
	w := &v1alpha1.Work{Spec: v1alpha1.WorkSpec{
		Cluster: v1alpha1.Cluster{Name: managed}, Type: v1alpha1.ResourceWorkType, Scope: v1alpha1.ResourceFilter{ResourceType: "pods"},
	}}
	return object(w, managed, name, requester.MCM, change...)
}

// actionWork makes a ConfigMap.
func actionWork(name string, change ...func(*v1alpha1.Work)) *v1alpha1.Work {
	w := &v1alpha1.Work{Spec: v1alpha1.WorkSpec{
		Cluster: v1alpha1.Cluster{Name: managed}, Type: v1alpha1.ActionWorkType, ActionType: v1alpha1.CreateActionType,
		KubeWork: &v1alpha1.KubeWorkSpec{ObjectTemplate: runtime.RawExtension{Raw: []byte(configMap)}},
	}}
	return object(w, managed, name, requester.MCM, change...)
}

// releaseWork installs a chart.
func releaseWork(name string, change ...func(*v1alpha1.Work)) *v1alpha1.Work {
	w := &v1alpha1.Work{Spec: v1alpha1.WorkSpec{
		Cluster: v1alpha1.Cluster{Name: managed}, Type: v1alpha1.ActionWorkType, ActionType: v1alpha1.CreateActionType,
		HelmWork: &v1alpha1.HelmWorkSpec{ReleaseName: "web", ChartURL: "https://charts.example.com/web-1.0.0.tgz"},
	}}
	return object(w, managed, name, requester.MCM, change...)
}

const configMap = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"ns"}}`

func clusterView(name string, change ...func(*viewv1beta1.ManagedClusterView)) *viewv1beta1.ManagedClusterView {
	v := &viewv1beta1.ManagedClusterView{Spec: viewv1beta1.ViewSpec{Scope: viewv1beta1.ViewScope{
		Group: "apps", Version: "v1", Kind: "Deployment", Name: "d", Namespace: "ns",
	}}}
	return object(v, managed, name, requester.ACM, change...)
}

func clusterAction(name string, change ...func(*actionv1beta1.ManagedClusterAction)) *actionv1beta1.ManagedClusterAction {
	a := &actionv1beta1.ManagedClusterAction{Spec: actionv1beta1.ActionSpec{
		ActionType: "Create", KubeWork: &actionv1beta1.KubeWorkSpec{ObjectTemplate: runtime.RawExtension{Raw: []byte(configMap)}},
	}}
	return object(a, managed, name, requester.ACM, change...)
}

func keyOf(dialect string, obj client.Object) objectKey {
	return objectKey{Dialect: dialect, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

func objectKeyOf(obj client.Object) objectKey {
	switch obj.(type) {
	case *v1alpha1.Work:
		return keyOf(wire.DialectMCMWork, obj)
	case *viewv1beta1.ManagedClusterView:
		return keyOf(dialectClusterView, obj)
	default:
		return keyOf(wire.DialectClusterAction, obj)
	}
}

// reconcileObjects brings objects into Sync, and writes what the hub has to say of them.
func (r *rig) reconcileObjects(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, obj := range objects {
		r.queue.Add(objectKeyOf(obj))
	}
	r.drainQueues(t)
}

// drainQueues does what is queued, until nothing is.
func (r *rig) drainQueues(t *testing.T) {
	t.Helper()
	for r.queue.Len() > 0 || r.results.Len() > 0 {
		if r.queue.Len() > 0 {
			processOne(t, r.queue, func(o objectKey) error { return r.reconcileAndMark(t.Context(), o) })
		}
		if r.results.Len() > 0 {
			processOne(t, r.results, func(o objectKey) error { return r.writeReport(t.Context(), o) })
		}
	}
}

type queue interface {
	Get() (objectKey, bool)
	Done(objectKey)
	AddRateLimited(objectKey)
}

func processOne(t *testing.T, q queue, do func(objectKey) error) {
	t.Helper()
	o, _ := q.Get()
	defer q.Done(o)
	if err := do(o); err != nil {
		t.Logf("%s: %v", o, err)
		q.AddRateLimited(o)
	}
}

// publishedView is the one that is published to a cluster.
func (r *rig) publishedView(t *testing.T, cluster string) resource.Ref {
	t.Helper()
	source := r.sync.Source(cluster, wire.KindView)
	keys := source.Keys()
	if len(keys) != 1 {
		t.Fatalf("cluster %s has the views %v, want one", cluster, keys)
	}
	ref, _ := source.Ref(keys[0])
	return ref
}

func (r *rig) publishedActions(cluster string) []string {
	return r.sync.Source(cluster, wire.KindAction).Keys()
}

// answerView is an agent's, to the one view that there is.
func (r *rig) answerView(t *testing.T, cluster string, result wire.ViewResult) {
	t.Helper()
	v := r.publishedView(t, cluster)
	r.receiveViewResult(cluster, resource.Resource{Key: v.Key, Generation: v.Generation, Body: mustEncode(t, result), Account: r.openAccount(t, cluster, 1)})
	r.drainQueues(t)
}

// answerAction is what an agent says of an action.
func (r *rig) answerAction(t *testing.T, cluster string, obj client.Object, result wire.ActionResult) {
	t.Helper()
	r.receiveActionResult(cluster, resource.Resource{
		Key: objectKeyOf(obj).String(), UID: string(obj.GetUID()), Generation: obj.GetGeneration(), Body: mustEncode(t, result), Account: r.openAccount(t, cluster, 1),
	})
	r.drainQueues(t)
}

// openAccount opens an account of a cluster that holds something.
func (r *rig) openAccount(t *testing.T, cluster string, bytes int64) *quota.Account {
	t.Helper()
	account := r.memory.Account(cluster)
	if err := account.Grow(bytes); err != nil {
		t.Fatal(err)
	}
	return account
}

func mustEncode(t testing.TB, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// stored reads an object from the API server.
func stored[O client.Object](t *testing.T, r *rig, obj O) O {
	t.Helper()
	if err := r.api.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

// edit changes an object as a user does.
func edit[O client.Object](t *testing.T, r *rig, obj O, change func(O)) O {
	t.Helper()
	obj = stored(t, r, obj)
	change(obj)
	obj.SetGeneration(obj.GetGeneration() + 1)
	if err := r.api.Update(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	return obj
}
