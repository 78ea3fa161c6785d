// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/kubedoor"
	"github.com/spokelet/spokelet/agent/mapping"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/testing/livetest"
	"github.com/spokelet/spokelet/internal/testing/resourcetest"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// live is an engine between a real API server and a hub in memory.
type live struct {
	t         *testing.T
	cfg       *rest.Config
	kube      kubernetes.Interface
	namespace string
	views     *resource.Source

	mu sync.Mutex
	// All below are guarded by mu.
	answers map[string]decodedResult // the last by key
	// requests that were made for the hub's users, as "verb path".
	requests []string
}

func newLive(t *testing.T) *live {
	t.Helper()
	r := &live{t: t, cfg: livetest.Config(t, "SPOKELET_TEST_KUBECONFIG"), answers: map[string]decodedResult{}}
	var err error
	if r.kube, err = kubernetes.NewForConfig(r.cfg); err != nil {
		t.Fatal(err)
	}
	r.namespace = livetest.Namespace(t, r.kube, "view-")
	counted := rest.CopyConfig(r.cfg)
	counted.Wrap(r.count)
	door, err := kubedoor.New(kubedoor.Config{Rest: counted, Enabled: true, UserPrefix: kubedoor.DefaultUserPrefix})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := metadata.NewForConfig(r.cfg)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := New(Config{
		Door: door, Resources: mapping.New(r.kube.Discovery()), Metadata: objects,
		Reviews: r.kube.AuthorizationV1().SubjectAccessReviews(),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.connect(engine)
	return r
}

func (r *live) connect(e *Engine) {
	r.t.Helper()
	hub := resource.NewHub()
	hub.Publish(wire.KindView, nil)
	hub.Mirror(wire.KindViewResult, resource.HubReceiver{Put: r.receive})
	r.views = hub.Source("spoke1", wire.KindView)
	agent, err := resource.NewAgent([]*resource.Source{e.Source()}, []*resource.Mirror{e.Mirror()})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = e.Run(ctx) })
	r.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	resourcetest.Connect(r.t, hub, "spoke1", agent)
}

// count records the requests of the hub's users.
func (r *live) count(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(q *http.Request) (*http.Response, error) {
		verb := "list"
		if q.URL.Query().Get("watch") == "true" {
			verb = "watch"
		}
		r.mu.Lock()
		r.requests = append(r.requests, verb+" "+q.URL.Path)
		r.mu.Unlock()
		return next.RoundTrip(q)
	})
}

func (r *live) receive(_ string, in resource.Resource) {
	result, err := wire.DecodeViewResult(in.Body)
	if err != nil {
		r.t.Errorf("answer cannot be decoded: %v", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[in.Key] = decodedResult{generation: in.Generation, ViewResult: result}
}

func (r *live) ask(v wire.View, generation int64) (key string) {
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
	return key
}

// until waits for an answer of which something holds, and returns it.
func (r *live) until(key, what string, holds func(decodedResult) bool) (last decodedResult) {
	r.t.Helper()
	defer func() {
		if r.t.Failed() {
			r.t.Logf("the last answer: %.2000s %+v", last.Result, last.Refusal)
		}
	}()
	livetest.Eventually(r.t, what, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		var ok bool
		last, ok = r.answers[key]
		return ok && holds(last)
	})
	return last
}

func (r *live) untilNames(key, what string, names ...string) decodedResult {
	r.t.Helper()
	want := []string{}
	for _, name := range names {
		want = append(want, r.namespace+"/"+name)
	}
	return r.until(key, what, func(a decodedResult) bool { return a.Refusal == nil && slices.Equal(a.names(r.t), want) })
}

func refusedWith(reason metav1.StatusReason) func(decodedResult) bool {
	return func(a decodedResult) bool { return a.Refusal != nil && a.Refusal.Status == reason }
}

// allow lets a user of the hub read something in the namespace, until revoke is called.
func (r *live) allow(user string, rules ...rbacv1.PolicyRule) (revoke func()) {
	r.t.Helper()
	rbac, name := r.kube.RbacV1(), "reader-"+user
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	if _, err := rbac.Roles(r.namespace).Create(r.t.Context(), role, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: kubedoor.DefaultUserPrefix + user}},
	}
	if _, err := rbac.RoleBindings(r.namespace).Create(r.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	return func() {
		r.t.Helper()
		err := rbac.RoleBindings(r.namespace).Delete(r.t.Context(), name, metav1.DeleteOptions{})
		if err == nil {
			err = rbac.Roles(r.namespace).Delete(r.t.Context(), name, metav1.DeleteOptions{})
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

func reading(group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"list", "watch"}}
}

func (r *live) configMap(name string, labels map[string]string, value string) {
	r.t.Helper()
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string]string{"k": value}}
	if _, err := r.kube.CoreV1().ConfigMaps(r.namespace).Create(r.t.Context(), c, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func TestLiveListFollowsSelector(t *testing.T) {
	r := newLive(t)
	r.allow("alice", reading("", "configmaps"))
	r.configMap("b", map[string]string{"app": "web"}, "v")
	r.configMap("c", nil, "v")
	v := configMaps(r.namespace)
	v.LabelSelector = "app=web"
	key := r.ask(v, 1)
	first := r.untilNames(key, "the object that is selected", "b")
	if strings.Contains(string(first.Result), "managedFields") || !strings.Contains(string(first.Result), `"kind":"ConfigMapList"`) {
		t.Errorf("%s, want a ConfigMapList without managedFields", first.Result)
	}
	var took []time.Duration
	for names := []string{"b"}; len(took) < 20; { // on a machine that does much else
		<-time.After(2 * time.Second) // a change within a second of an answer waits for the end of it
		name, began := fmt.Sprintf("a%02d", len(took)), time.Now()
		names = slices.Insert(names, len(took), name)
		r.configMap(name, map[string]string{"app": "web"}, "v")
		r.untilNames(key, "a new one", names...)
		took = append(took, time.Since(began))
		if took[len(took)-1] <= time.Second {
			break
		}
	}
	if slices.Min(took) > time.Second {
		t.Errorf("changes took %v, want a second at most", took)
	}
	r.ask(v, 2)
	r.until(key, "one more who asks", func(a decodedResult) bool { return a.generation == 2 })
	r.mu.Lock()
	defer r.mu.Unlock()
	// Before the role was seen the watch may have been refused.
	if open := len(slices.Compact(slices.Clone(r.requests))); open != 1 {
		t.Errorf("%v, want watches of one path and no list", r.requests)
	}
}

func TestLiveTableIsThatOfKubectl(t *testing.T) {
	r := newLive(t)
	r.allow("alice", reading("", "configmaps"))
	key := r.ask(asRows(configMaps(r.namespace)), 1)
	r.untilNames(key, "what Kubernetes puts into each namespace, in its own time", "kube-root-ca.crt")
	r.configMap("a", nil, "v")
	got := r.until(key, "a row", func(a decodedResult) bool { return slices.Contains(a.names(t), r.namespace+"/a") })
	raw, err := r.kube.CoreV1().RESTClient().Get().Namespace(r.namespace).Resource("configmaps").
		SetHeader("Accept", acceptTable).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ours, theirs metav1.Table
	if err := json.Unmarshal(got.Result, &ours); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &theirs); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(theirs.ColumnDefinitions, ours.ColumnDefinitions); diff != "" {
		t.Errorf("columns (-theirs +ours):\n%s", diff)
	}
	cells := func(of metav1.Table) (all []any) {
		for _, row := range of.Rows {
			all = append(all, row.Cells[:2]) // without the age
		}
		return all
	}
	if diff := gocmp.Diff(cells(theirs), cells(ours)); diff != "" {
		t.Errorf("cells (-theirs +ours):\n%s", diff)
	}
}

func TestLiveSecretIsMasked(t *testing.T) {
	r := newLive(t)
	r.allow("alice", reading("", "secrets"))
	v := wire.View{Target: wire.Target{Resource: "secret", Namespace: r.namespace, Name: "a"}}
	key := r.ask(v, 1)
	got := r.until(key, "it does not exist", refusedWith(metav1.StatusReasonNotFound))
	if got.Refusal.Message != `secrets "a" not found` {
		t.Errorf("%q, want what the API server says of it", got.Refusal.Message)
	}
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "needle"}},
		StringData: map[string]string{"k": "needle"},
	}
	if _, err := r.kube.CoreV1().Secrets(r.namespace).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got = r.until(key, "it comes", func(a decodedResult) bool { return a.Refusal == nil })
	if text := string(got.Result); strings.Contains(text, "needle") || strings.Contains(text, "bmVlZGxl") || !strings.Contains(text, `"data":{"k":"***"}`) {
		t.Errorf("%s, want its keys and no value", text)
	}
	rowsOf := wire.View{Target: wire.Target{Resource: "secrets", Namespace: r.namespace}, Table: true}
	got = r.until(r.ask(rowsOf, 1), "its row", func(a decodedResult) bool { return a.Refusal == nil && len(a.names(t)) == 1 })
	if strings.Contains(string(got.Result), "needle") {
		t.Errorf("%s, want no annotation with values", got.Result)
	}
}

func TestLiveViewFollowsRightsOfRequester(t *testing.T) {
	r := newLive(t)
	r.configMap("a", nil, "v")
	key := r.ask(configMaps(r.namespace), 1)
	got := r.until(key, "no right", refusedWith(metav1.StatusReasonForbidden))
	if !strings.Contains(got.Refusal.Message, `User "hub:alice" cannot watch`) {
		t.Errorf("%q, want who may not do what", got.Refusal.Message)
	}
	revoke := r.allow("alice", reading("", "configmaps"))
	r.untilNames(key, "a right", "a", "kube-root-ca.crt")
	revoke()
	r.until(key, "the right is taken away", refusedWith(metav1.StatusReasonForbidden))
	r.allow("alice", reading("", "configmaps"))
	r.until(key, "the right is given back", func(a decodedResult) bool { return a.Refusal == nil })
}

func TestLiveInvalidSelectorIsRefused(t *testing.T) {
	r := newLive(t)
	r.allow("alice", reading("", "configmaps"))
	v := configMaps(r.namespace)
	v.FieldSelector = "data.k=v"
	got := r.until(r.ask(v, 1), "a field that cannot be selected", refusedWith(metav1.StatusReasonBadRequest))
	if !strings.Contains(got.Refusal.Message, "is not a known field selector") {
		t.Errorf("%q, want the API server's message", got.Refusal.Message)
	}
}

func TestLiveViewWaitsForDefinition(t *testing.T) {
	r := newLive(t)
	group := r.namespace + ".example.com"
	r.allow("alice", reading(group, "widgets"))
	key := r.ask(wire.View{Target: wire.Target{Resource: "widgets", Group: group, Namespace: r.namespace}}, 1)
	r.until(key, "no definition", func(a decodedResult) bool { return a.Refusal != nil && a.Refusal.Cause == wire.CauseTarget })
	objects, err := dynamic.NewForConfig(r.cfg)
	if err != nil {
		t.Fatal(err)
	}
	crds := objects.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	crd := &unstructured.Unstructured{}
	definition := fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.%[1]s"},
		"spec":{"group":%[1]q,"scope":"Namespaced","names":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, group)
	if err := json.Unmarshal([]byte(definition), &crd.Object); err != nil {
		t.Fatal(err)
	}
	remove := func(ctx context.Context) error { return crds.Delete(ctx, crd.GetName(), metav1.DeleteOptions{}) }
	t.Cleanup(func() { _ = remove(context.WithoutCancel(t.Context())) })
	for _, round := range []string{"the first definition", "another one"} {
		if _, err := crds.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.untilNames(key, round)
		if err := remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.until(key, round+" goes", func(a decodedResult) bool { return a.Refusal != nil && a.Refusal.Cause == wire.CauseTarget })
		livetest.Eventually(t, "it has gone", func() bool {
			_, err := crds.Get(t.Context(), crd.GetName(), metav1.GetOptions{})
			return err != nil
		})
	}
}

func TestLiveLongListIsCutAtWholeItems(t *testing.T) {
	const objects, workers = 1000, 32
	r := newLive(t)
	r.allow("alice", reading("", "configmaps"))
	var running sync.WaitGroup
	for w := range workers {
		running.Go(func() {
			for n := w; n < objects; n += workers {
				c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%03d", n)}, Data: map[string]string{"k": strings.Repeat("v", 600)}}
				if _, err := r.kube.CoreV1().ConfigMaps(r.namespace).Create(t.Context(), c, metav1.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	key := r.ask(configMaps(r.namespace), 1)
	got := r.until(key, "a list", func(a decodedResult) bool { return a.Refusal == nil })
	names := got.names(t)
	if len(got.Result) > 512<<10 || len(got.Result) < 511<<10 || len(names)+got.Cut != objects+1 || !slices.IsSorted(names) {
		t.Errorf("%d bytes, %d items and %d cut; want all of %d items, to the limit", len(got.Result), len(names), got.Cut, objects+1)
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(got.Result, &list); err != nil || list.RemainingItemCount == nil || *list.RemainingItemCount != int64(got.Cut) || list.ResourceVersion != "" {
		t.Errorf("%v: metadata %+v, want the number that was cut, %d", err, list.ListMeta, got.Cut)
	}
	// One in front pushes one out.
	r.configMap("b", nil, "v")
	r.until(key, "a new one in front", func(a decodedResult) bool { return a.names(t)[0] == r.namespace+"/b" })
}
