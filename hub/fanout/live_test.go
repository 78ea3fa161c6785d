// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/spokelet/spokelet/api/crds"
	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/hub/mcm"
	"github.com/spokelet/spokelet/hub/requester"
	"github.com/spokelet/spokelet/internal/rbacwatch"
	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// root may do everything on the hub.
var root = requester.User{User: "root", Groups: []string{"system:masters"}}

// liveHub is a real API server with our definitions in place, and two clusters, which
// nobody else selects.
type liveHub struct {
	client.Client

	t        *testing.T
	config   *rest.Config
	kube     kubernetes.Interface
	metadata metadata.Interface
	// namespace is that of the parents, and the value of the clusters' label.
	namespace string
	clusters  []string
}

func newLiveHub(t *testing.T) *liveHub {
	t.Helper()
	h := &liveHub{t: t, config: livetest.Config(t, "SPOKELET_HUB_KUBECONFIG")}
	pool, err := rest.HTTPClientFor(h.config)
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := dynamic.NewForConfigAndClient(h.config, pool)
	if err != nil {
		t.Fatal(err)
	}
	if err := crds.Install(t.Context(), definitions, crds.Hub()); err != nil {
		t.Fatal(err)
	}
	if err := h.addClients(pool); err != nil {
		t.Fatal(err)
	}
	h.namespace = livetest.Namespace(t, h.kube, "fanout-")
	for range 2 {
		name := livetest.Namespace(t, h.kube, "fanout-")
		record := cluster(name)
		record.Labels["fan"] = h.namespace
		h.create(record)
		h.clusters = append(h.clusters, name)
	}
	return h
}

func (h *liveHub) addClients(pool *http.Client) (err error) {
	scheme := newScheme(h.t)
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

// run runs a Controller in a manager until stop is called, or the test ends. It sees the
// namespaces of the test alone: in others are the objects of other packages' tests.
func (h *liveHub) run() (stop func()) {
	h.t.Helper()
	own := map[string]cache.Config{h.namespace: {}}
	for _, name := range h.clusters {
		own[name] = cache.Config{}
	}
	mgr, err := ctrl.NewManager(h.config, ctrl.Options{
		Scheme: h.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
		Cache: cache.Options{DefaultNamespaces: own, ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.Work{}: {Transform: mcm.Strip}, &v1alpha1.ResourceView{}: {Transform: Strip}, &v1alpha1.WorkSet{}: {Transform: Strip},
		}},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	reviews := rbacwatch.NewRechecker(h.metadata, logr.Discard())
	authors := &requester.Registration{}
	authors.Set(registered)
	c, err := New(Config{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Access: h.kube.AuthorizationV1().SubjectAccessReviews(), Rights: reviews, Authors: authors,
	})
	if err != nil {
		h.t.Fatal(err)
	}
	if err := errors.Join(mgr.Add(reviews), c.SetupWithManager(mgr)); err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			h.t.Errorf("manager: %v", err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	h.t.Cleanup(stop)
	return stop
}

func (h *liveHub) create(obj client.Object) {
	h.t.Helper()
	obj.SetUID("")
	obj.SetGeneration(0)
	if err := h.Create(h.t.Context(), obj); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = h.Delete(context.WithoutCancel(h.t.Context()), obj) })
}

// parent gives one a place and an author.
func (h *liveHub) parent(obj client.Object, by requester.User, selector *metav1.LabelSelector) {
	obj.SetNamespace(h.namespace)
	obj.SetAnnotations(by.Annotations(requester.MCM, registered))
	selector.MatchLabels["fan"] = h.namespace
	h.create(obj)
}

// awaitStatus reads an object until it is as it should be.
func (h *liveHub) awaitStatus(what string, obj client.Object, ready func() bool) {
	h.t.Helper()
	livetest.Eventually(h.t, what, func() bool {
		return h.Get(h.t.Context(), client.ObjectKeyFromObject(obj), obj) == nil && ready()
	})
}

func (h *liveHub) work(p parent, cluster string) *v1alpha1.Work {
	h.t.Helper()
	w := &v1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: workName(p, cluster)}}
	h.awaitStatus("there is a work in "+cluster, w, func() bool { return true })
	return w
}

func (h *liveHub) awaitGone(p parent, cluster string) {
	h.t.Helper()
	w := &v1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: workName(p, cluster)}}
	livetest.Eventually(h.t, "the work in "+cluster+" is gone", func() bool {
		return apierrors.IsNotFound(h.Get(h.t.Context(), client.ObjectKeyFromObject(w), w))
	})
}

// answer has a cluster answer.
func (h *liveHub) answer(p parent, cluster, result string) {
	h.t.Helper()
	w := h.work(p, cluster)
	w.Status = v1alpha1.WorkStatus{Type: v1alpha1.WorkCompleted, ObservedGeneration: w.Generation}
	if result != "" {
		w.Status.Result = &runtime.RawExtension{Raw: []byte(result)}
	}
	if err := h.Status().Update(h.t.Context(), w); err != nil {
		h.t.Fatal(err)
	}
}

func TestLiveWorkSetReachesClusters(t *testing.T) {
	h := newLiveHub(t)
	stop := h.run()
	s := newSet()
	s.Spec.Template.Annotations = map[string]string{"a": "b"}
	// The cache does not keep it.
	s.Spec.Template.Spec.KubeWork.ObjectTemplate.Raw = fmt.Appendf(nil,
		`{"kind":"ConfigMap", "data":{"z":"<1>", "large":%q},"apiVersion":"v1","metadata":{"name":"n"}}`, strings.Repeat("<", 64<<10))
	h.parent(s, root, s.Spec.ClusterSelector)
	p := newWorkSetParent(s)
	first := h.work(p, h.clusters[0])
	for _, name := range h.clusters {
		h.answer(p, name, "")
	}
	h.awaitStatus("all are done", s, func() bool { return s.Status.Status == v1alpha1.WorkCompleted && len(s.Status.Clusters) == 2 })
	if w := h.work(p, h.clusters[0]); w.Generation != first.Generation || w.UID != first.UID {
		t.Errorf("a work that nobody edits is of generation %d, and was of %d", w.Generation, first.Generation)
	}
	record := cluster(h.clusters[1])
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":null}}`))
	if err := h.Patch(t.Context(), record, patch); err != nil {
		t.Fatal(err)
	}
	h.awaitGone(p, h.clusters[1])
	h.awaitStatus("one cluster is left", s, func() bool { return s.Status.Status == v1alpha1.WorkCompleted && len(s.Status.Clusters) == 1 })
	s.Spec.Template.Spec.ActionType = "Update"
	if err := h.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	h.awaitStatus("the answer before the edit does not count", s, func() bool { return s.Status.Status == v1alpha1.WorkProcessing && s.Status.ObservedGeneration == 2 })
	stop()
	if err := h.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	h.run()
	h.awaitGone(p, h.clusters[0])
}

func TestLiveResourceViewShowsResults(t *testing.T) {
	h := newLiveHub(t)
	h.run()
	v := newView()
	h.parent(v, root, v.Spec.ClusterSelector)
	p := newResourceViewParent(v)
	for i, result := range []string{`{"items": [1.0, "<é>"], "a": 12345678901234567}`, `{"items":[]}`, ""} {
		for _, name := range h.clusters {
			h.answer(p, name, result)
		}
		h.awaitStatus(fmt.Sprintf("answer %d is shown", i), v, func() bool {
			return len(v.Status.Conditions) == 1 && v.Status.Conditions[0].Type == v1alpha1.WorkCompleted && h.shows(v, result)
		})
	}
}

// shows reports whether a view has a result of each cluster, or none.
func (h *liveHub) shows(v *v1alpha1.ResourceView, result string) bool {
	want, err := mcm.Digest([]byte(result))
	for _, name := range h.clusters {
		got, failed := mcm.Digest(v.Status.Results[name].Raw)
		if err != nil || failed != nil || got != want {
			return false
		}
	}
	return true
}

func TestLiveWorkSetFollowsRightsOfAuthor(t *testing.T) {
	h := newLiveHub(t)
	h.run()
	s := newSet()
	carol := requester.User{User: "carol-" + h.namespace}
	h.parent(s, carol, s.Spec.ClusterSelector)
	h.awaitStatus("a user without rights is refused", s, func() bool { return s.Status.Status == v1alpha1.WorkFailed })
	var works v1alpha1.WorkList
	if err := h.List(t.Context(), &works, client.InNamespace(h.clusters[0])); err != nil || len(works.Items) > 0 {
		t.Fatalf("there are %d works: %v", len(works.Items), err)
	}
	place := metav1.ObjectMeta{Namespace: h.clusters[0], Name: "works"}
	h.create(&rbacv1.Role{ObjectMeta: place, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"works"}, Verbs: []string{"create"}},
	}})
	h.create(&rbacv1.RoleBinding{
		ObjectMeta: place, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: place.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: carol.User}},
	})
	if by, err := requester.FromObject(h.work(newWorkSetParent(s), h.clusters[0]), requester.MCM, registered); err != nil || by.User != carol.User {
		t.Errorf("the work is done for %+v: %v", by, err)
	}
}
