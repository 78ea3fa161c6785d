// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	actionv1beta1 "github.com/spokelet/spokelet/api/action/v1beta1"
	"github.com/spokelet/spokelet/api/crds"
	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	viewv1beta1 "github.com/spokelet/spokelet/api/view/v1beta1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/hub/requester"
	"github.com/spokelet/spokelet/internal/rbacwatch"
	"github.com/spokelet/spokelet/internal/testing/livetest"
	"github.com/spokelet/spokelet/internal/testing/resourcetest"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// root may do everything on the hub.
var root = requester.User{User: "root", Groups: []string{"system:masters"}}

// liveHub is a real API server with our definitions in place.
type liveHub struct {
	client.Client

	config   *rest.Config
	kube     kubernetes.Interface
	metadata metadata.Interface
	sessions *fakeSessions
}

func newLiveHub(t *testing.T) *liveHub {
	t.Helper()
	cfg := livetest.Config(t, "SPOKELET_HUB_KUBECONFIG")
	pool, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := dynamic.NewForConfigAndClient(cfg, pool)
	if err != nil {
		t.Fatal(err)
	}
	if err := crds.Install(t.Context(), definitions, crds.Hub()); err != nil {
		t.Fatal(err)
	}
	h := &liveHub{config: cfg, sessions: &fakeSessions{connected: map[string]bool{}}}
	if err := h.addClients(t, pool); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *liveHub) addClients(t *testing.T, pool *http.Client) (err error) {
	scheme := newScheme(t)
	if err := errors.Join(corev1.AddToScheme(scheme), rbacv1.AddToScheme(scheme)); err != nil {
		return err
	}
	if h.Client, err = client.New(h.config, client.Options{Scheme: scheme, HTTPClient: pool}); err != nil {
		return err
	}
	if h.kube, err = kubernetes.NewForConfigAndClient(h.config, pool); err != nil {
		return err
	}
	h.metadata, err = metadata.NewForConfigAndClient(h.config, pool)
	return err
}

// run runs a controller in a manager, until stop is called or the test ends. It sees these
// namespaces alone: in others are the objects of other packages' tests.
func (h *liveHub) run(t *testing.T, namespaces ...string) (replicas *resource.Hub, stop func()) {
	t.Helper()
	strip, own := cache.ByObject{Transform: Strip}, map[string]cache.Config{}
	for _, name := range namespaces {
		own[name] = cache.Config{}
	}
	mgr, err := ctrl.NewManager(h.config, ctrl.Options{
		Scheme: h.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{DefaultNamespaces: own, ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.Work{}: strip, &viewv1beta1.ManagedClusterView{}: strip, &actionv1beta1.ManagedClusterAction{}: strip,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	hub := resource.NewHub()
	reviews := rbacwatch.NewRechecker(h.metadata, logr.Discard())
	authors := &requester.Registration{}
	authors.Set(registered)
	c, err := New(Config{
		Sync: hub, Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Informers: mgr.GetCache(), Access: h.kube.AuthorizationV1().SubjectAccessReviews(),
		Rights: reviews, Authors: authors, Sessions: h.sessions, Events: events.NewFakeRecorder(1000),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(mgr.Add(reviews), mgr.Add(c)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Errorf("manager: %v", err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(stop)
	return hub, stop
}

func (h *liveHub) create(t *testing.T, obj client.Object) {
	t.Helper()
	obj.SetUID("")
	obj.SetGeneration(0)
	if err := h.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Delete(context.WithoutCancel(t.Context()), obj) })
}

// cluster makes a namespace and its ManagedCluster.
func (h *liveHub) cluster(t *testing.T) string {
	t.Helper()
	name := livetest.Namespace(t, h.kube, "mcm-")
	h.create(t, clusterNamed(name))
	return name
}

// await reads an object until it is as it should be.
func (h *liveHub) await(t *testing.T, what string, obj client.Object, ready func() bool) {
	t.Helper()
	livetest.Eventually(t, what, func() bool {
		if err := h.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
			t.Fatal(err)
		}
		return ready()
	})
}

func (h *liveHub) version(t *testing.T, obj client.Object) string {
	t.Helper()
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
		t.Fatal(err)
	}
	return obj.GetResourceVersion()
}

// liveAgent answers all alike.
type liveAgent struct {
	*resource.Agent

	mu    sync.Mutex
	views map[string]int64 // guarded by mu; the generations of views that it was asked
}

func newLiveAgent(t *testing.T, view wire.ViewResult, action wire.ActionResult) *liveAgent {
	t.Helper()
	a := &liveAgent{views: map[string]int64{}}
	views, actions := resource.NewSource(wire.KindViewResult), resource.NewSource(wire.KindActionResult)
	viewBody, actionBody := mustEncode(t, view), mustEncode(t, action)
	put := func(to *resource.Source, q resource.Resource, body []byte) {
		if err := to.Put(resource.Resource{Key: q.Key, UID: q.UID, Generation: q.Generation, Body: body}); err != nil {
			t.Error(err)
		}
	}
	var err error
	a.Agent, err = resource.NewAgent([]*resource.Source{views, actions}, []*resource.Mirror{
		resource.NewMirror(wire.KindView, resource.Receiver{
			Put: func(q resource.Resource) {
				a.mu.Lock()
				defer a.mu.Unlock()
				a.views[q.Key] = q.Generation
				put(views, q, viewBody)
			},
			Delete: views.Delete, Synced: views.Complete,
		}),
		resource.NewMirror(wire.KindAction, resource.Receiver{
			Put: func(q resource.Resource) { put(actions, q, actionBody) }, Delete: actions.Delete, Synced: actions.Complete,
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *liveAgent) asked() map[string]int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.views)
}

// asRoot puts an object into a cluster's namespace.
func asRoot[O client.Object](obj O, cluster string, by requester.AnnotationKeys) O {
	obj.SetNamespace(cluster)
	obj.SetAnnotations(root.Annotations(by, registered))
	if w, ok := any(obj).(*v1alpha1.Work); ok {
		w.Spec.Cluster.Name = cluster
	}
	return obj
}

// odd is what API servers write in another way than they get it.
const odd = `{"z":1,"kind":"List","items":[{"float":2.0,"exponent":1e3,"large":9007199254740993,"null":null,"text":"<\u00e9>","none":{}}]}`

func TestLiveRestartWritesNothing(t *testing.T) {
	h := newLiveHub(t)
	cluster := h.cluster(t)
	hub, stop := h.run(t, cluster)
	agent := newLiveAgent(t, wire.ViewResult{Result: json.RawMessage(odd)}, wire.ActionResult{Result: json.RawMessage(odd)})
	cut := resourcetest.Connect(t, hub, cluster, agent.Agent)
	h.sessions.set(cluster, true)

	look, act := asRoot(resourceWork("look"), cluster, requester.MCM), asRoot(actionWork("act"), cluster, requester.MCM)
	view, done := asRoot(clusterView("view"), cluster, requester.ACM), asRoot(clusterAction("done"), cluster, requester.ACM)
	for _, obj := range []client.Object{look, act, view, done} {
		h.create(t, obj)
	}
	for _, w := range []*v1alpha1.Work{look, act} {
		h.await(t, w.Name+" is not complete", w, func() bool { return w.Status.Type == v1alpha1.WorkCompleted })
		if w.Status.Result == nil || w.Status.ObservedGeneration != w.Generation {
			t.Errorf("%s: %+v", w.Name, w.Status)
		}
	}
	h.await(t, "the view shows nothing", view, func() bool {
		return meta.IsStatusConditionTrue(view.Status.Conditions, viewv1beta1.ConditionViewProcessing)
	})
	h.await(t, "the action is not done", done, func() bool {
		return meta.IsStatusConditionTrue(done.Status.Conditions, actionv1beta1.ConditionActionCompleted)
	})
	before := map[client.Object]string{}
	for _, obj := range []client.Object{look, act, view, done} {
		before[obj] = h.version(t, obj)
	}

	cut()
	stop()
	asked := agent.asked()
	hub, _ = h.run(t, cluster)
	resourcetest.Connect(t, hub, cluster, agent.Agent)
	livetest.Eventually(t, "the hub does not ask again", func() bool {
		now := agent.asked()
		for key, generation := range asked {
			if now[key] <= generation {
				return false
			}
		}
		return len(now) == 2
	})
	// Whatever is to be written is written by the time of the next.
	last := asRoot(resourceWork("last"), cluster, requester.MCM)
	last.Spec.Scope.ResourceType = "nodes"
	h.create(t, last)
	h.await(t, "the next is not complete", last, func() bool { return last.Status.Type == v1alpha1.WorkCompleted })
	for obj, version := range before {
		if now := h.version(t, obj); now != version {
			t.Errorf("%s was written again: %s", obj.GetName(), mustEncode(t, obj))
		}
	}
}

func TestLiveClusterCreatedLaterIsServed(t *testing.T) {
	h := newLiveHub(t)
	team, later := livetest.Namespace(t, h.kube, "team-"), livetest.Namespace(t, h.kube, "mcm-")
	hub, _ := h.run(t, team, later)
	w := asRoot(resourceWork("w"), later, requester.MCM)
	w.Namespace = team
	h.create(t, w)
	h.await(t, "it does not fail", w, func() bool {
		return w.Status.Type == v1alpha1.WorkFailed && strings.Contains(w.Status.Reason, "does not exist")
	})
	h.create(t, clusterNamed(later))
	h.await(t, "it does not wait", w, func() bool {
		return w.Status.Type == v1alpha1.WorkProcessing && strings.Contains(w.Status.Reason, "is not connected")
	})
	agent := newLiveAgent(t, wire.ViewResult{Result: json.RawMessage(`{"kind":"List","items":[]}`)}, wire.ActionResult{})
	resourcetest.Connect(t, hub, later, agent.Agent)
	h.sessions.set(later, true)
	h.await(t, "it does not heal", w, func() bool { return w.Status.Type == v1alpha1.WorkCompleted && w.Status.Reason == "" })
}

func TestLiveViewsFollowRights(t *testing.T) {
	h := newLiveHub(t)
	cluster := h.cluster(t)
	hub, _ := h.run(t, cluster)
	h.sessions.set(cluster, true)
	agent := newLiveAgent(t, wire.ViewResult{Result: json.RawMessage(`{"kind":"List","items":[]}`)}, wire.ActionResult{})
	resourcetest.Connect(t, hub, cluster, agent.Agent)
	bob := requester.User{User: "bob-of-" + cluster}
	w := asRoot(resourceWork("w"), cluster, requester.MCM)
	w.Annotations = bob.Annotations(requester.MCM, registered)
	h.create(t, w)
	forbidden := func() bool {
		return w.Status.Type == v1alpha1.WorkFailed && strings.HasPrefix(w.Status.Reason, "forbidden: ")
	}
	h.await(t, "it is not refused", w, forbidden)
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "works"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"works"}, Verbs: []string{"create"}}},
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "works"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: bob.User}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "works"},
	}
	h.create(t, role)
	h.create(t, binding)
	h.await(t, "it is not answered", w, func() bool { return w.Status.Type == v1alpha1.WorkCompleted })
	if err := h.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	h.await(t, "the view goes on", w, forbidden)
	livetest.Eventually(t, "it is still published", func() bool { return len(hub.Source(cluster, wire.KindView).Keys()) == 0 })
}
