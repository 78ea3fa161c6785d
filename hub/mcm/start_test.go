// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	actionv1beta1 "github.com/spokelet/spokelet/api/action/v1beta1"
	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	viewv1beta1 "github.com/spokelet/spokelet/api/view/v1beta1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/rbacwatch"
	"github.com/spokelet/spokelet/internal/testing/resourcetest"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// informers are those of a manager's cache, over a fake API server.
type informers struct {
	cache.Informers

	api     client.WithWatch
	ctx     context.Context //nolint:containedctx // that of the test
	running *sync.WaitGroup
}

func (i informers) GetInformer(_ context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	var list func() client.ObjectList
	switch obj.(type) {
	case *v1alpha1.Work:
		list = func() client.ObjectList { return &v1alpha1.WorkList{} }
	case *viewv1beta1.ManagedClusterView:
		list = func() client.ObjectList { return &viewv1beta1.ManagedClusterViewList{} }
	case *actionv1beta1.ManagedClusterAction:
		list = func() client.ObjectList { return &actionv1beta1.ManagedClusterActionList{} }
	default:
		list = func() client.ObjectList { return &clusterv1.ManagedClusterList{} }
	}
	informer := toolscache.NewSharedIndexInformer(listFirst{&toolscache.ListWatch{
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

// listFirst lists before it watches.
type listFirst struct{ *toolscache.ListWatch }

func (listFirst) IsWatchListSemanticsUnSupported() bool { return true }

// fakeRBAC is a metadata client that tells when rights have changed.
type fakeRBAC struct {
	metadata.Interface

	mu      sync.Mutex
	watches []*watch.FakeWatcher // guarded by mu
}

func (m *fakeRBAC) Resource(schema.GroupVersionResource) metadata.Getter { return rbacGetter{rbac: m} }

// changeBinding is a new binding.
func (m *fakeRBAC) changeBinding() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watches[0].Add(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "b", ResourceVersion: "2"}})
}

type rbacGetter struct {
	metadata.Getter

	rbac *fakeRBAC
}

func (rbacGetter) List(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
}

func (g rbacGetter) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.SendInitialEvents != nil {
		return nil, apierrors.NewBadRequest("watch-list is not supported")
	}
	g.rbac.mu.Lock()
	defer g.rbac.mu.Unlock()
	w := watch.NewFake()
	context.AfterFunc(ctx, w.Stop)
	g.rbac.watches = append(g.rbac.watches, w)
	return w, nil
}

// start runs the controller as a manager does, until the test ends.
func (r *rig) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	r.rbac = &fakeRBAC{}
	reviews := rbacwatch.NewRechecker(r.rbac, logr.Discard())
	c, err := New(Config{
		Sync: resource.NewHub(), Client: r.cfg.Client, Live: r.api, Informers: informers{api: r.api, ctx: ctx, running: &running},
		Access: r.cfg.Access, Rights: reviews, Authors: r.authors, Sessions: r.sessions, Events: r.events,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Controller = c
	r.sync = c.cfg.Sync.(*resource.Hub)
	running.Go(func() { _ = reviews.Start(ctx) })
	running.Go(func() {
		if err := c.Start(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("Start: %v", err)
		}
	})
	r.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(r.stop)
}

// fakeAgent is an agent that keeps what it is asked, and answers nothing.
type fakeAgent struct {
	mu     sync.Mutex
	have   map[string]int64
	synced int
}

func (s *fakeAgent) receiver() resource.Receiver {
	return resource.Receiver{
		Put:    func(r resource.Resource) { s.mu.Lock(); defer s.mu.Unlock(); s.have[r.Key] = r.Generation },
		Delete: func(key string) { s.mu.Lock(); defer s.mu.Unlock(); delete(s.have, key) },
		Synced: func() { s.mu.Lock(); defer s.mu.Unlock(); s.synced++ },
	}
}

// state is how many kinds are complete, and how much is asked.
func (s *fakeAgent) state() (synced, have int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced, len(s.have)
}

func (r *rig) connect(t *testing.T, cluster string) *fakeAgent {
	t.Helper()
	s := &fakeAgent{have: map[string]int64{}}
	agent, err := resource.NewAgent(nil, []*resource.Mirror{
		resource.NewMirror(wire.KindView, s.receiver()), resource.NewMirror(wire.KindAction, s.receiver()),
	})
	if err != nil {
		t.Fatal(err)
	}
	resourcetest.Connect(t, r.sync, cluster, agent)
	return s
}

// blockedAccess is an API server whose answers wait until it is open.
type blockedAccess struct {
	*fakeAccess

	open chan struct{}
}

func (g blockedAccess) Create(ctx context.Context, review *authorizationv1.SubjectAccessReview, o metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	select {
	case <-g.open:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return g.fakeAccess.Create(ctx, review, o)
}

// An agent drops what a complete source lacks: of a hub that has not looked at all of its
// objects yet nothing may be missing.
func TestSourcesAreCompletedAfterInitialObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a := resourceWork("w", func(w *v1alpha1.Work) { w.Namespace = "team" }), actionWork("a")
		r := newRig(t, clusterNamed(managed), w, a)
		g := blockedAccess{fakeAccess: r.access, open: make(chan struct{})}
		r.cfg.Access = g
		r.start(t)
		agent := r.connect(t, managed)
		other := r.connect(t, "c2")
		<-time.After(time.Second)
		synctest.Wait()
		if synced, _ := agent.state(); synced != 0 {
			t.Error("the sources are complete before anything is published")
		}
		close(g.open)
		<-time.After(time.Second)
		synctest.Wait()
		if synced, have := agent.state(); synced != 2 || have != 2 {
			t.Errorf("%d sources are complete, with %d objects; want 2 and 2", synced, have)
		}
		if synced, _ := other.state(); synced != 0 {
			t.Error("so are those of what is no cluster of ours")
		}
		for _, obj := range []client.Object{
			resourceWork("x", func(w *v1alpha1.Work) { w.Spec.Cluster.Name = "c2" }), clusterNamed("c2"),
		} {
			if err := r.api.Create(t.Context(), obj); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(time.Second)
		synctest.Wait()
		if synced, have := other.state(); synced != 2 || have != 1 {
			t.Errorf("of one that came later %d sources are complete, with %d objects; want 2 and 1", synced, have)
		}
		r.stop()
	})
}

func TestSourcesWithoutObjectsAreCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, clusterNamed(managed))
		r.start(t)
		agent := r.connect(t, managed)
		<-time.After(time.Second)
		synctest.Wait()
		if synced, _ := agent.state(); synced != 2 {
			t.Errorf("%d sources are complete", synced)
		}
		r.stop()
	})
}

func TestSourcesOfNewClusterAreCompletedAfterItsObjects(t *testing.T) {
	w := resourceWork("w", func(w *v1alpha1.Work) { w.Spec.Cluster.Name = "c2" })
	r := newRig(t, w)
	r.initial = map[objectKey]struct{}{}
	r.reconcileObjects(t, w)
	r.handleCluster(clusterNamed("c2"), changedEvent)
	if left := r.incomplete["c2"]; len(left) != 1 {
		t.Errorf("complete before %v is published", objectKeyOf(w))
	}
	r.drainQueues(t)
	if _, is := r.incomplete["c2"]; is {
		t.Error("it is not complete after that")
	}
}

func TestViewsFollowRightsOfRequester(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := resourceWork("w")
		r := newRig(t, clusterNamed(managed), w)
		r.start(t)
		agent := r.connect(t, managed)
		asks := func() int { _, have := agent.state(); return have }
		<-time.After(time.Minute)
		synctest.Wait()
		if asks() != 1 {
			t.Fatalf("%d views", asks())
		}
		quiet := r.access.count()
		<-time.After(4 * time.Minute)
		synctest.Wait()
		if n := r.access.count() - quiet; n != 0 {
			t.Errorf("%d questions at rest", n)
		}
		r.access.deny("alice")
		r.rbac.changeBinding()
		synctest.Wait()
		if asks() != 0 {
			t.Error("the view goes on")
		}
		if got := stored(t, r, w).Status.Type; got != v1alpha1.WorkFailed {
			t.Errorf("status %q", got)
		}
		// The API server's own caches are behind: the right comes back a second later.
		r.rbac.changeBinding()
		<-time.After(500 * time.Millisecond)
		r.access.deny()
		<-time.After(time.Minute)
		synctest.Wait()
		if asks() != 1 {
			t.Error("the view does not come back")
		}
		r.stop()
	})
}

func TestStatusChangesAreNotRelevant(t *testing.T) {
	w := resourceWork("w")
	tests := map[string]struct {
		reason string
		change func(*v1alpha1.Work)
		want   bool
	}{
		"a status":          {reason: "that is what we write ourselves", change: func(w *v1alpha1.Work) { w.Status.Type = v1alpha1.WorkFailed }},
		"a label":           {reason: "no cluster hears of it", change: func(w *v1alpha1.Work) { w.Labels = map[string]string{"a": "b"} }},
		"a generation":      {reason: "the spec changed", change: func(w *v1alpha1.Work) { w.Generation++ }, want: true},
		"another object":    {reason: "it took the name", change: func(w *v1alpha1.Work) { w.UID = "another" }, want: true},
		"another author":    {reason: "it is done as them", change: func(w *v1alpha1.Work) { w.Annotations = nil }, want: true},
		"that it is going":  {reason: "it asks nothing any more", change: func(w *v1alpha1.Work) { now := metav1.Now(); w.DeletionTimestamp = &now }, want: true},
		"somebody's finger": {reason: "no cluster hears of it", change: func(w *v1alpha1.Work) { w.Annotations["a"] = "b" }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			after := w.DeepCopy()
			tc.change(after)
			if got := isRelevantChange(w, after); got != tc.want {
				t.Errorf("%s: relevant %t", tc.reason, got)
			}
		})
	}
	theirs := clusterNamed(managed, func(c *clusterv1.ManagedCluster) { c.Annotations = nil })
	if !isRelevantChange(clusterNamed(managed), theirs) {
		t.Error("whether a cluster is ours is not looked at")
	}
}

func TestControllerStopsDuringCacheSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		r.cfg.Informers = informers{api: silentClient{r.api}, ctx: ctx, running: &running}
		ended := make(chan error, 1)
		go func() { ended <- r.Start(ctx) }()
		<-time.After(time.Second)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Start: %v", err)
		}
		running.Wait()
	})
}

// silentClient is an API server that answers no list.
type silentClient struct{ client.WithWatch }

func (silentClient) List(ctx context.Context, _ client.ObjectList, _ ...client.ListOption) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestHubAndAgentAgreeOnSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a := resourceWork("w"), actionWork("a")
		r := newRig(t, clusterNamed(managed), w, a)
		r.start(t)
		views, actions := resource.NewSource(wire.KindViewResult), resource.NewSource(wire.KindActionResult)
		answer := func(to *resource.Source, body any) resource.Receiver {
			return resource.Receiver{
				Put: func(q resource.Resource) {
					if err := to.Put(resource.Resource{Key: q.Key, UID: q.UID, Generation: q.Generation, Body: mustEncode(t, body)}); err != nil {
						t.Error(err)
					}
				},
				Delete: to.Delete, Synced: to.Complete,
			}
		}
		agent, err := resource.NewAgent([]*resource.Source{views, actions}, []*resource.Mirror{
			resource.NewMirror(wire.KindView, answer(views, podsResult)), resource.NewMirror(wire.KindAction, answer(actions, wire.ActionResult{})),
		})
		if err != nil {
			t.Fatal(err)
		}
		cut := resourcetest.Connect(t, r.sync, managed, agent)
		<-time.After(time.Second)
		synctest.Wait()
		for _, got := range []*v1alpha1.Work{stored(t, r, w), stored(t, r, a)} {
			if got.Status.Type != v1alpha1.WorkCompleted {
				t.Errorf("%s: %+v", got.Name, got.Status)
			}
		}
		if diff := cmp.Diff([]string(nil), actions.Keys()); diff != "" {
			t.Errorf("results of actions that are over (-want +got):\n%s", diff)
		}
		// Another hub process asks all again, and writes nothing.
		cut()
		r.stop()
		before := stored(t, r, w.DeepCopy()).ResourceVersion + stored(t, r, a.DeepCopy()).ResourceVersion
		r.start(t)
		resourcetest.Connect(t, r.sync, managed, agent)
		<-time.After(time.Minute)
		synctest.Wait()
		if after := stored(t, r, w).ResourceVersion + stored(t, r, a).ResourceVersion; after != before {
			t.Errorf("after a restart it is written again: %v", r.patches)
		}
		r.stop()
	})
}
