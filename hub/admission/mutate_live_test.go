// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"errors"
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/hub/requester"
	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// The users of these tests, beside admin.
const (
	alice = "alice" // writes in the namespace of one cluster
	bob   = "bob"   // writes in those of two
)

// recording is a real API server that asks a webhook of this process who asks for views
// and actions in the namespaces of two clusters.
type recording struct {
	asking
	other string // the namespace of the cluster where alice may do nothing
	self  string // the hub's own account

	registration *admissionregistrationv1.MutatingWebhookConfiguration
	registered   *requester.Registration
}

func newRecording(t *testing.T) *recording {
	t.Helper()
	cfg := livetest.Config(t, "SPOKELET_HUB_KUBECONFIG")
	namespace := "test-" + rand.String(8)
	r := &recording{
		asking: asking{t: t, namespace: namespace, clients: map[string]client.Client{}},
		other:  namespace + "-other",
		self:   "system:serviceaccount:" + namespace + ":spokelet-hub",

		registered: &requester.Registration{},
	}
	r.clients[admin] = r.clientFor(cfg, admin)
	for user, name := range map[string]string{alice: r.name(alice), bob: r.name(bob), self: r.self} {
		cfg := rest.CopyConfig(cfg)
		cfg.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"of-" + user, "with,comma"}}
		r.clients[user] = r.clientFor(cfg, admin)
	}
	r.install(cfg)
	r.grantAll()
	r.record(cfg)
	return r
}

// name is that of a user on the API server.
func (r *recording) name(user string) string { return user + "-" + r.namespace }

func (r *recording) grantAll() {
	r.t.Helper()
	labels := map[string]string{"spokelet.io/test": r.namespace}
	for namespace, users := range map[string][]string{
		r.namespace: {r.name(alice), r.name(bob), r.self}, r.other: {r.name(bob), r.self},
	} {
		r.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: labels}})
		meta := metav1.ObjectMeta{Namespace: namespace, Name: "askers"}
		r.create(&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"mcm.ibm.com", "view.open-cluster-management.io", "action.open-cluster-management.io"},
			Resources: []string{"*"}, Verbs: []string{"*"},
		}}})
		binding := &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}}
		for _, user := range users {
			binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
		}
		r.create(binding)
	}
}

// record registers the webhook as the chart does, and returns when it is asked.
func (r *recording) record(cfg *rest.Config) {
	r.t.Helper()
	ip := localIP(r.t, cfg)
	certificate, bundle := newCertificate(r.t, ip)
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	address, stop := start(r.t, net.JoinHostPort(ip.String(), "0"), certificate, Config{
		Self: r.self, Registration: r.registered, Access: kube.AuthorizationV1().SubjectAccessReviews(), Clusters: ClustersFunc(owned), Stored: StoredFunc(empty), Limits: roomy,
	})
	r.stop = stop
	r.registerAuthors(address.String(), bundle)
	// Definitions, rights and the registration take a moment until they are in force.
	livetest.Eventually(r.t, "authors are recorded", func() bool {
		for _, obj := range r.objects() {
			if r.clients[alice].Create(r.t.Context(), obj, client.DryRunAll) != nil {
				return false
			}
			if by, err := requester.FromObject(obj, keysOf(obj), r.registered.UID()); err != nil || by.User != r.name(alice) {
				return false
			}
		}
		return r.clients[bob].Create(r.t.Context(), r.work(r.other), client.DryRunAll) == nil
	})
	act := r.action()
	r.create(act)
	livetest.Eventually(r.t, "the policy is in force", func() bool {
		return apierrors.IsInvalid(r.clients[admin].Patch(r.t.Context(), act.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(sameAction)), client.DryRunAll))
	})
}

// fromChart reads the one object of a kind in the chart's file, without what helm fills in.
func fromChart(t *testing.T, kind string, into any) {
	t.Helper()
	data, err := os.ReadFile("../../charts/spokelet-hub/templates/webhook.yaml")
	if err != nil {
		t.Fatal(err)
	}
	data = regexp.MustCompile(`\{\{.*?\}\}`).ReplaceAll(data, nil)
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		if !bytes.Contains(document, []byte("\nkind: "+kind+"\n")) {
			continue
		}
		if err := yaml.Unmarshal(document, into); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("the chart has no %s", kind)
}

// registerAuthors installs the chart's registration of the webhook, and the policy beside
// it, for the namespaces of the test.
func (r *recording) registerAuthors(address string, bundle []byte) {
	r.t.Helper()
	ours := &metav1.LabelSelector{MatchLabels: map[string]string{"spokelet.io/test": r.namespace}}
	meta := metav1.ObjectMeta{Name: "spokelet-" + r.namespace}
	registration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	fromChart(r.t, "MutatingWebhookConfiguration", registration)
	registration.ObjectMeta = meta
	for i := range registration.Webhooks {
		w := &registration.Webhooks[i]
		at := "https://" + address + *w.ClientConfig.Service.Path
		w.ClientConfig, w.NamespaceSelector = admissionregistrationv1.WebhookClientConfig{URL: &at, CABundle: bundle}, ours
	}
	policy, binding := &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	fromChart(r.t, "ValidatingAdmissionPolicy", policy)
	fromChart(r.t, "ValidatingAdmissionPolicyBinding", binding)
	policy.ObjectMeta, binding.ObjectMeta, binding.Spec.PolicyName = meta, meta, meta.Name
	binding.Spec.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: ours}
	r.registration = registration.DeepCopy()
	r.register()
	r.create(policy)
	r.create(binding)
}

// register has the API server ask the webhook, which the hub comes to know of.
func (r *recording) register() {
	r.t.Helper()
	registration := r.registration.DeepCopy()
	r.create(registration)
	r.registered.Set(string(registration.UID))
}

// forged says that an administrator asks.
func forged(k requester.AnnotationKeys) map[string]string {
	return requester.User{User: "admin", Groups: []string{"system:masters"}}.Annotations(k, "forged")
}

// object makes one of a new name, with annotations, in the namespace of the first cluster.
func (r *recording) object(apiVersion, kind string, annotations map[string]string, spec map[string]any) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": spec}}
	obj.SetNamespace(r.namespace)
	obj.SetName("w-" + rand.String(8))
	obj.SetAnnotations(annotations)
	return obj
}

// objects are one of each kind and version that has an author, each forged.
func (r *recording) objects() []*unstructured.Unstructured {
	pods := func(field string) map[string]any {
		return map[string]any{"type": "Resource", "scope": map[string]any{field: "pods"}}
	}
	work, view := pods("resourceType"), pods("resource")
	work["cluster"] = map[string]any{"name": r.namespace}
	delete(view, "type")
	all := []*unstructured.Unstructured{
		r.object("view.open-cluster-management.io/v1beta1", "ManagedClusterView", forged(requester.ACM),
			map[string]any{"scope": map[string]any{"resource": "pods", "name": "a", "namespace": "b"}}),
		r.object("action.open-cluster-management.io/v1beta1", "ManagedClusterAction", forged(requester.ACM),
			map[string]any{"actionType": "Delete", "kube": map[string]any{"resource": "pods", "name": "a", "namespace": "b"}}),
	}
	for _, version := range []string{"mcm.ibm.com/v1alpha1", "mcm.ibm.com/v1beta1"} {
		all = append(all,
			r.object(version, "Work", forged(requester.MCM), work),
			r.object(version, "WorkSet", forged(requester.MCM), map[string]any{
				"clusterSelector": map[string]any{}, "template": map[string]any{"spec": pods("resourceType")},
			}),
			r.object(version, "ResourceView", forged(requester.MCM), view))
	}
	return all
}

// work makes one for a cluster.
func (r *recording) work(cluster string) *unstructured.Unstructured {
	return r.object("mcm.ibm.com/v1alpha1", "Work", forged(requester.MCM), map[string]any{
		"cluster": map[string]any{"name": cluster}, "type": "Resource", "scope": map[string]any{"resourceType": "pods"},
	})
}

// sameAction writes what action asks in another form.
const sameAction = `{"spec":{"kube":{"template":{"a":1.0}}}}`

func (r *recording) action() *unstructured.Unstructured {
	return r.object("action.open-cluster-management.io/v1beta1", "ManagedClusterAction", nil, map[string]any{
		"actionType": "Create", "kube": map[string]any{"resource": "configmaps", "template": map[string]any{"a": int64(1)}},
	})
}

func (r *recording) patch(user string, obj *unstructured.Unstructured, body string) error {
	return r.clients[user].Patch(r.t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(body)))
}

// checkAuthor checks that a user of these tests is the author, with the groups that have a
// place.
func (r *recording) checkAuthor(reason string, obj *unstructured.Unstructured, k requester.AnnotationKeys, user string) {
	r.t.Helper()
	got, err := requester.FromObject(obj, k, r.registered.UID())
	if err != nil || got.User != r.name(user) || !slices.Contains(got.Groups, "of-"+user) || slices.Contains(got.Groups, "comma") {
		r.t.Errorf("%s: %s of %s has author %v, %v, want %s", reason, obj.GetKind(), obj.GetAPIVersion(), got, err, user)
	}
}

func keysOf(obj *unstructured.Unstructured) requester.AnnotationKeys {
	if strings.HasPrefix(obj.GetAPIVersion(), "mcm.ibm.com/") {
		return requester.MCM
	}
	return requester.ACM
}

func TestLiveWebhookRecordsRequester(t *testing.T) {
	t.Parallel()
	r := newRecording(t)
	for _, obj := range r.objects() {
		keys := keysOf(obj)
		if err := r.clients[alice].Create(t.Context(), obj); err != nil {
			t.Errorf("%s of %s: %v", obj.GetKind(), obj.GetAPIVersion(), err)
			continue
		}
		r.checkAuthor("created", obj, keys, alice)
		for reason, body := range map[string]string{
			"labelled": `{"metadata":{"labels":{"a":"b"}}}`,
			"forged":   `{"metadata":{"annotations":{"` + keys.User + `":"cm9vdA==","` + keys.Groups + `":"c3lzdGVtOm1hc3RlcnM="}}}`,
			"dropped":  `{"metadata":{"annotations":null}}`,
		} {
			if err := r.patch(bob, obj, body); err != nil {
				t.Errorf("%s: %v", reason, err)
			}
			r.checkAuthor(reason, obj, keys, alice)
		}
		if err := r.patch(bob, obj, changeOf(obj)); err != nil {
			t.Error(err)
		}
		r.checkAuthor("changed", obj, keys, bob)
	}
}

// changeOf asks something else.
func changeOf(obj *unstructured.Unstructured) string {
	switch obj.GetKind() {
	case "ManagedClusterAction":
		return `{"spec":{"kube":{"name":"c"}}}`
	case "WorkSet":
		return `{"spec":{"template":{"spec":{"scope":{"name":"c"}}}}}`
	case "ResourceView":
		return `{"spec":{"scope":{"resourceName":"c"}}}`
	default:
		return `{"spec":{"scope":{"name":"c"}}}`
	}
}

func TestLiveWebhookChecksRightInClusterNamespace(t *testing.T) {
	t.Parallel()
	r := newRecording(t)
	refused := func(err error) bool {
		return apierrors.IsForbidden(err) && strings.HasSuffix(err.Error(), `denied the request: works.mcm.ibm.com is forbidden: User "`+r.name(alice)+
			`" cannot create resource "works" in API group "mcm.ibm.com" in the namespace "`+r.other+`"`)
	}
	if err := r.clients[alice].Create(t.Context(), r.work(r.other)); !refused(err) {
		t.Errorf("a cluster where alice may do nothing: %v, want forbidden as the API server says it", err)
	}
	own := r.work(r.namespace)
	if err := r.clients[alice].Create(t.Context(), own); err != nil {
		t.Fatalf("the cluster of the Work's own namespace: %v", err)
	}
	to := `{"spec":{"cluster":{"name":"` + r.other + `"}}}`
	if err := r.patch(alice, own.DeepCopy(), to); !refused(err) {
		t.Errorf("a Work that goes elsewhere: %v, want forbidden", err)
	}
	if err := r.patch(bob, own, to); err != nil {
		t.Errorf("a Work that bob sends elsewhere: %v", err)
	}
	r.checkAuthor("sent elsewhere", own, requester.MCM, bob)
	if err := r.patch(alice, own, changeOf(own)); !refused(err) {
		t.Errorf("what is asked of a cluster where alice may do nothing: %v, want forbidden", err)
	}
	there := r.work(r.other)
	there.SetNamespace(r.other)
	if err := r.clients[bob].Create(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	r.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: r.other, Name: "changers"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"mcm.ibm.com"}, Resources: []string{"works"}, Verbs: []string{"patch"},
	}}})
	r.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.other, Name: "changers"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "changers"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: r.name(alice)}},
	})
	livetest.Eventually(t, "alice may label", func() bool {
		return r.patch(alice, there.DeepCopy(), `{"metadata":{"labels":{"a":"b"}}}`) == nil
	})
	if err := r.patch(alice, there, changeOf(there)); !refused(err) {
		t.Errorf("what is asked there by one who may change and not create: %v, want forbidden", err)
	}
}

// An action is done once for each generation, as its author: another must not be able to
// have it done again. CEL compares by value.
func TestLiveWebhookRefusesRepeatOfForeignAction(t *testing.T) {
	t.Parallel()
	r := newRecording(t)
	act := r.action()
	if err := r.clients[alice].Create(t.Context(), act); err != nil {
		t.Fatal(err)
	}
	if err := r.patch(bob, act.DeepCopy(), sameAction); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "the same in another form") {
		t.Errorf("1.0 for 1: got %v, want that it is invalid", err)
	}
	if err := r.patch(bob, act, `{"metadata":{"labels":{"a":"b"}}}`); err != nil || act.GetGeneration() != 1 {
		t.Errorf("labels: %v, generation %d, want 1", err, act.GetGeneration())
	}
	if err := r.patch(bob, act, `{"spec":{"kube":{"template":{"a":1.0,"b":2}}}}`); err != nil {
		t.Errorf("another action: %v", err)
	}
	r.checkAuthor("another action", act, requester.ACM, bob)
}

func TestLiveWebhookAcceptsRequesterSetByHub(t *testing.T) {
	t.Parallel()
	r := newRecording(t)
	child := r.work(r.other)
	of := requester.User{User: r.name(alice), Groups: []string{"of-" + alice}}
	child.SetAnnotations(of.Annotations(requester.MCM, r.registered.UID()))
	if err := r.clients[self].Create(t.Context(), child); err != nil {
		t.Fatal(err)
	}
	r.checkAuthor("made for alice", child, requester.MCM, alice)
	if err := r.patch(self, child, changeOf(child)); err != nil {
		t.Fatal(err)
	}
	r.checkAuthor("changed for alice", child, requester.MCM, alice)
}

// The hub makes the Works of sets, follows them by the owner's annotations, and changes back
// what others change: each would have what they ask done again.
func TestLiveWebhookProtectsWorksOfWorkSet(t *testing.T) {
	t.Parallel()
	r := newRecording(t)
	owned := map[string]string{v1alpha1.AnnotationOwners: "WorkSet.shop.greet", v1alpha1.AnnotationOwnerUID: "set"}
	child := r.work(r.namespace)
	annotations := requester.User{User: r.name(alice), Groups: []string{"of-" + alice}}.Annotations(requester.MCM, r.registered.UID())
	maps.Copy(annotations, owned)
	child.SetAnnotations(annotations)
	if err := r.clients[self].Create(t.Context(), child); err != nil {
		t.Fatal(err)
	}
	check := func(reason string, obj *unstructured.Unstructured, want map[string]string) {
		t.Helper()
		if diff := cmp.Diff(want, keepAnnotations(obj.GetAnnotations(), []string{v1alpha1.AnnotationOwners, v1alpha1.AnnotationOwnerUID})); diff != "" {
			t.Errorf("%s: whose it is (-want +got):\n%s", reason, diff)
		}
	}
	for _, body := range []string{
		`{"metadata":{"annotations":{"spokelet.io/owner-uid":"another"}}}`, `{"metadata":{"annotations":{"spokelet.io/owner-uid":null}}}`,
		`{"metadata":{"annotations":{"mcm.ibm.com/owners":"WorkSet.shop.other"}}}`, `{"metadata":{"annotations":{"mcm.ibm.com/owners":null}}}`,
		`{"metadata":{"annotations":null}}`,
	} {
		if err := r.patch(bob, child, body); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		check(body, child, owned)
		r.checkAuthor(body, child, requester.MCM, alice)
	}
	for _, user := range []string{alice, bob, admin} {
		err := r.patch(user, child.DeepCopy(), changeOf(child))
		if !apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), "is forbidden: the Work is one of WorkSet shop/greet: change that") {
			t.Errorf("a spec changed by %s: got %v, want that it is forbidden", user, err)
		}
	}
	if err := r.patch(self, child, changeOf(child)); err != nil {
		t.Errorf("the hub itself: %v", err)
	}
	own := r.work(r.namespace)
	own.SetAnnotations(owned)
	if err := r.clients[bob].Create(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	check("a Work that bob makes", own, map[string]string{})
	if err := r.patch(bob, own, `{"metadata":{"annotations":{"mcm.ibm.com/owners":"WorkSet.shop.greet"}}}`); err != nil {
		t.Fatal(err)
	}
	check("a Work that bob gives away", own, map[string]string{})
}

// While the hub is away nobody asks anything new, or as somebody else.
func TestLiveWebhookFailsClosedForRequesters(t *testing.T) {
	t.Parallel()
	r := newRecording(t)
	objects := r.objects()
	for _, obj := range objects {
		if err := r.clients[alice].Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	r.stop()
	for _, obj := range objects {
		keys := keysOf(obj)
		for reason, body := range map[string]string{
			"a new spec": changeOf(obj), "a forged author": `{"metadata":{"annotations":{"` + keys.User + `":"cm9vdA=="}}}`,
			"forged groups": `{"metadata":{"annotations":{"` + keys.Groups + `":"cm9vdA=="}}}`, "a dropped author": `{"metadata":{"annotations":null}}`,
			"a forged registration": `{"metadata":{"annotations":{"` + requester.AnnotationRegistration + `":"x"}}}`,
			"a forged owner":        `{"metadata":{"annotations":{"` + v1alpha1.AnnotationOwners + `":"WorkSet.a.b"}}}`,
			"a forged owner's UID":  `{"metadata":{"annotations":{"` + v1alpha1.AnnotationOwnerUID + `":"x"}}}`,
		} {
			if err := r.patch(bob, obj.DeepCopy(), body); !apierrors.IsInternalError(err) {
				t.Errorf("%s %s: got %v, want the webhook's failure", obj.GetKind(), reason, err)
			}
		}
		if err := r.clients[alice].Create(t.Context(), r.named(obj)); !apierrors.IsInternalError(err) {
			t.Errorf("another %s: got %v, want the webhook's failure", obj.GetKind(), err)
		}
		err := errors.Join(
			r.patch(bob, obj, `{"metadata":{"labels":{"a":"b"},"annotations":{"a":"b"},"finalizers":["example.com/x"]}}`),
			r.patch(bob, obj, `{"metadata":{"finalizers":null}}`),
			r.clients[self].Status().Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(`{"status":{}}`))),
			r.clients[bob].Delete(t.Context(), obj))
		if err != nil {
			t.Errorf("%s: what asks nothing: %v", obj.GetKind(), err)
		}
	}
}

// named is a copy of another name.
func (r *recording) named(obj *unstructured.Unstructured) *unstructured.Unstructured {
	spec, _, _ := unstructured.NestedMap(obj.Object, "spec")
	return r.object(obj.GetAPIVersion(), obj.GetKind(), nil, spec)
}
