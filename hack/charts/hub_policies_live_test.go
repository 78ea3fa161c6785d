// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// installedHub is a real API server that has the rights and the policies of the chart of
// something that runs on the hub, such as the hub's own, and not the program.
type installedHub struct {
	t      *testing.T
	config *rest.Config
	// admin is the administrator, hub the program's account.
	admin, hub kubernetes.Interface
	// applies is that account, for objects of any kind.
	applies   dynamic.Interface
	namespace string
}

// resources are what of a chart says who may do what.
func resources() map[string]schema.GroupVersionResource {
	rbac := schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}
	admission := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	return map[string]schema.GroupVersionResource{
		"ClusterRole": rbac.WithResource("clusterroles"), "ClusterRoleBinding": rbac.WithResource("clusterrolebindings"),
		"Role": rbac.WithResource("roles"), "RoleBinding": rbac.WithResource("rolebindings"),
		"ValidatingAdmissionPolicy":        admission.WithResource("validatingadmissionpolicies"),
		"ValidatingAdmissionPolicyBinding": admission.WithResource("validatingadmissionpolicybindings"),
	}
}

// as is the configuration with which an administrator acts as one of a chart's accounts.
func as(config *rest.Config, account string) *rest.Config {
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":" + account}
	return config
}

func newInstalledHub(t *testing.T) *installedHub {
	t.Helper()
	h := newAccountOf(t, "spokelet-hub")
	h.apply("spokelet-hub", "pods.namespaces={"+h.namespace+"}")
	// A policy is in force when an API server has heard of it.
	for what, try := range map[string]func() error{
		"nodes":      func() error { return h.createNode("chart-test-probe", "other://", metav1.DryRunAll) },
		"pods":       func() error { return h.deletePod(h.pod("probe", "", false), metav1.DryRunAll) },
		"namespaces": func() error { return h.createNamespace("chart-test-probe", nil, metav1.DryRunAll) },
	} {
		livetest.Eventually(t, "the policy of "+what+" is in force", func() bool { return denied(try()) })
	}
	return h
}

// newAccountOf returns a hub on which a chart's account, of the same name, has no rights yet.
func newAccountOf(t *testing.T, chart string) *installedHub {
	t.Helper()
	config := livetest.Config(t, "SPOKELET_HUB_KUBECONFIG")
	account := as(config, chart)
	h := &installedHub{
		t: t, config: config, admin: kubernetes.NewForConfigOrDie(config),
		hub: kubernetes.NewForConfigOrDie(account), applies: dynamic.NewForConfigOrDie(account),
	}
	h.namespace = livetest.Namespace(t, h.admin, "chart-")
	// That of the charts stays for the next test: to delete one takes seconds.
	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := h.admin.CoreV1().Namespaces().Create(t.Context(), own, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		h.must(err)
	}
	return h
}

// apply applies what a chart says who may do what.
func (h *installedHub) apply(chart string, values ...string) {
	h.t.Helper()
	for _, object := range render(h.t, chart, values...) {
		// That policy is about what anybody writes. It is tested in hub/admission, at the same
		// time as this is.
		if _, ok := resources()[object.GetKind()]; ok && object.GetName() != "spokelet-authors" {
			h.applyObject(object)
		}
	}
}

// applyObject applies an object, until the test ends.
func (h *installedHub) applyObject(object unstructured.Unstructured) {
	h.t.Helper()
	resource := dynamic.NewForConfigOrDie(h.config).Resource(resources()[object.GetKind()])
	var on dynamic.ResourceInterface = resource
	if object.GetNamespace() != "" {
		on = resource.Namespace(object.GetNamespace())
	}
	_, err := on.Apply(h.t.Context(), object.GetName(), &object, metav1.ApplyOptions{FieldManager: "chart-test", Force: true})
	h.must(err)
	h.t.Cleanup(func() { _ = on.Delete(context.WithoutCancel(h.t.Context()), object.GetName(), metav1.DeleteOptions{}) })
}

// denied tells that a policy refused, not the authorizer.
func denied(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'spokelet-hub-")
}

func (h *installedHub) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// checkAll compares what became of requests of the hub with what should.
func checkAll(t *testing.T, want func(error) bool, got map[string]error) {
	t.Helper()
	for what, err := range got {
		if !want(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func allowed(err error) bool { return err == nil }

func (h *installedHub) createNode(name, providerID string, dryRun ...string) error {
	return createNode(h.t, h.hub, name, providerID, dryRun...)
}

func createNode(t *testing.T, client kubernetes.Interface, name, providerID string, dryRun ...string) error {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID}}
	_, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{DryRun: dryRun})
	return err
}

func (h *installedHub) patchNode(name, patch string, subresources ...string) error {
	_, err := h.hub.CoreV1().Nodes().Patch(h.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	return err
}

const (
	labelPatch  = `{"metadata":{"labels":{"by":"hub"}}}`
	statusPatch = `{"status":{"capacity":{"cpu":"1"}}}`
)

func TestARealHubHoldsTheHubToVirtualNodes(t *testing.T) {
	livetest.Lock(t, "SPOKELET_HUB_KUBECONFIG", "nodes", livetest.Shared) // it makes some
	h := newInstalledHub(t)
	const foreign, unset, virtual = "chart-test-foreign", "chart-test-unset", "chart-test-virtual"
	for name, providerID := range map[string]string{foreign: "other://1", unset: ""} {
		h.must(createNode(t, h.admin, name, providerID))
		t.Cleanup(func() {
			_ = h.admin.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
		})
	}
	nodes := h.hub.CoreV1().Nodes()
	checkAll(t, denied, map[string]error{
		"create a foreign node":           h.createNode("chart-test-another", ""),
		"label a foreign node":            h.patchNode(foreign, labelPatch),
		"write a foreign node's status":   h.patchNode(foreign, statusPatch, "status"),
		"make a foreign node virtual":     h.patchNode(unset, `{"spec":{"providerID":"spokelet://1"}}`),
		"delete a foreign node":           nodes.Delete(t.Context(), foreign, metav1.DeleteOptions{}),
		"delete a node without an origin": nodes.Delete(t.Context(), unset, metav1.DeleteOptions{}),
	})
	h.must(h.createNode(virtual, "spokelet://1"))
	checkAll(t, allowed, map[string]error{
		"label a virtual node":          h.patchNode(virtual, labelPatch),
		"write a virtual node's status": h.patchNode(virtual, statusPatch, "status"),
	})
	h.must(nodes.Delete(t.Context(), virtual, metav1.DeleteOptions{}))
}

// pod makes a pod as somebody, bound to a node unless that is empty; of one that is
// begun a kubelet has said so.
func (h *installedHub) pod(name, node string, begun bool) string {
	h.t.Helper()
	pods := h.admin.CoreV1().Pods(h.namespace)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{NodeName: node, SchedulerName: "nobody", Containers: []corev1.Container{{Name: "main", Image: "i"}}},
	}
	// The account of its namespace comes with a controller.
	livetest.Eventually(h.t, "pod "+name+" is made", func() bool {
		_, err := pods.Create(h.t.Context(), pod, metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err)
	})
	if begun {
		_, err := pods.Patch(h.t.Context(), name, types.StrategicMergePatchType, []byte(`{"status":{"startTime":"2026-11-01T00:00:00Z","hostIP":"192.0.2.1"}}`), metav1.PatchOptions{}, "status")
		h.must(err)
	}
	return name
}

func (h *installedHub) deletePod(name string, dryRun ...string) error {
	options := metav1.NewDeleteOptions(0)
	options.DryRun = dryRun
	return h.hub.CoreV1().Pods(h.namespace).Delete(h.t.Context(), name, *options)
}

// inClusterPatch is what the hub writes of a pod that is in its cluster.
const inClusterPatch = `{"status":{"phase":"Running","startTime":"2026-11-01T00:00:00Z","conditions":[{"type":"spokelet.io/InCluster","status":"True"}]}}`

func (h *installedHub) patchPod(name string) error {
	_, err := h.hub.CoreV1().Pods(h.namespace).Patch(h.t.Context(), name, types.StrategicMergePatchType, []byte(inClusterPatch), metav1.PatchOptions{}, "status")
	return err
}

func TestARealHubHoldsTheHubToPodsOfVirtualNodes(t *testing.T) {
	livetest.Lock(t, "SPOKELET_HUB_KUBECONFIG", "nodes", livetest.Shared) // it makes some
	h := newInstalledHub(t)
	const virtual, foreign = "chart-test-pods-virtual", "chart-test-pods-foreign"
	h.must(createNode(t, h.admin, virtual, "spokelet://1"))
	h.must(createNode(t, h.admin, foreign, "other://1"))
	for _, name := range []string{virtual, foreign} {
		t.Cleanup(func() {
			_ = h.admin.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
		})
	}
	theirs, unbound := h.pod("theirs", foreign, true), h.pod("unbound", "", false)
	checkAll(t, denied, map[string]error{
		"write the status of a pod of a kubelet":   h.patchPod(theirs),
		"delete a pod of a kubelet":                h.deletePod(theirs),
		"write the status of a pod without a node": h.patchPod(unbound),
		"delete a pod without a node":              h.deletePod(unbound),
	})
	own, refused := h.pod("own", virtual, false), h.pod("refused", virtual, false)
	h.must(h.patchPod(own))
	checkAll(t, allowed, map[string]error{
		"write the status of a pod that is in its cluster": h.patchPod(own),
		"let go of a pod that is in its cluster":           h.deletePod(own),
		"let go of a pod that was refused":                 h.deletePod(refused),
	})
}

func (h *installedHub) createNamespace(name string, labels map[string]string, dryRun ...string) error {
	_, err := h.hub.CoreV1().Namespaces().Create(h.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{DryRun: dryRun})
	return err
}

func (h *installedHub) patchNamespace(name, patch string) error {
	_, err := h.hub.CoreV1().Namespaces().Patch(h.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func TestARealHubHoldsTheHubToNamespacesOfClusters(t *testing.T) {
	h := newInstalledHub(t)
	const (
		clusterName = "open-cluster-management.io/cluster-name"
		createdBy   = "spokelet.io/created-by"
		own         = "chart-test-own"
	)
	mark := func(name string) map[string]string {
		return map[string]string{clusterName: name, createdBy: "spokelet-hub"}
	}
	adopted := livetest.Namespace(t, h.admin, "adopted-")
	of := func(name string) string { return `{"metadata":{"labels":{"` + clusterName + `":"` + name + `"}}}` }
	namespaces := h.hub.CoreV1().Namespaces()
	checkAll(t, denied, map[string]error{
		"make a namespace of nobody":          h.createNamespace("chart-test-nobody", nil),
		"make a namespace of another cluster": h.createNamespace("chart-test-other", mark("another")),
		"make one of Kubernetes":              h.createNamespace("kube-test", mark("kube-test")),
		"label one of Kubernetes":             h.patchNamespace(metav1.NamespaceSystem, of(metav1.NamespaceSystem)),
		"label the default one":               h.patchNamespace(metav1.NamespaceDefault, of(metav1.NamespaceDefault)),
		"label its own":                       h.patchNamespace(namespace, of(namespace)),
		"give one to another cluster":         h.patchNamespace(adopted, of("another")),
		"make one that was there its own":     h.patchNamespace(adopted, `{"metadata":{"labels":{"`+clusterName+`":"`+adopted+`","`+createdBy+`":"spokelet-hub"}}}`),
		"change how pods of one are judged":   h.patchNamespace(adopted, `{"metadata":{"labels":{"`+clusterName+`":"`+adopted+`","pod-security.kubernetes.io/enforce":"privileged"}}}`),
		"annotate one that was there":         h.patchNamespace(adopted, `{"metadata":{"labels":{"`+clusterName+`":"`+adopted+`"},"annotations":{"by":"hub"}}}`),
		"delete one that was there":           namespaces.Delete(t.Context(), adopted, metav1.DeleteOptions{}),
	})
	h.must(h.createNamespace(own, mark(own)))
	checkAll(t, allowed, map[string]error{
		"label one that was there": h.patchNamespace(adopted, of(adopted)),
		"delete one that it made":  namespaces.Delete(t.Context(), own, metav1.DeleteOptions{}),
	})
	h.must(h.patchNamespace(adopted, `{"metadata":{"labels":{"spokelet.io/detaching":"true"}}}`))
	h.must(h.patchNamespace(adopted, `{"metadata":{"labels":{"spokelet.io/detaching":null}}}`))
	checkAll(t, denied, map[string]error{"take that back": h.patchNamespace(adopted, of(""))})
}

func TestARealHubLetsTheHubReadTheNamedNamespacesAlone(t *testing.T) {
	h := newInstalledHub(t)
	byName := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, "keys").String()}
	list := func(namespace string, options metav1.ListOptions) error {
		_, err := h.hub.CoreV1().Secrets(namespace).List(t.Context(), options)
		return err
	}
	livetest.Eventually(t, "the Role is known", func() bool { return list(h.namespace, metav1.ListOptions{}) == nil })
	checkAll(t, apierrors.IsForbidden, map[string]error{
		"Secrets of another namespace":        list(metav1.NamespaceDefault, byName),
		"Secrets of the API server's clients": list(metav1.NamespaceSystem, metav1.ListOptions{}),
		"Secrets of all namespaces":           list(metav1.NamespaceAll, metav1.ListOptions{}),
		"Secrets of all namespaces by a name": list(metav1.NamespaceAll, byName),
	})
}

// TestARealHubLetsTheHubApplyItsOwnPoliciesAlone: whoever may make a policy may change
// what others make.
func TestARealHubLetsTheHubApplyItsOwnPoliciesAlone(t *testing.T) {
	h := newInstalledHub(t)
	policies := h.applies.Resource(resources()["ValidatingAdmissionPolicy"])
	apply := func(name string) error {
		_, err := policies.Apply(t.Context(), name, policyNamed(name), metav1.ApplyOptions{FieldManager: "spokelet-hub", Force: true, DryRun: []string{metav1.DryRunAll}})
		return err
	}
	livetest.Eventually(t, "the right is known", func() bool { return apply("spokelet-managedclusters") == nil })
	checkAll(t, apierrors.IsForbidden, map[string]error{
		"apply another":               apply("spokelet-others"),
		"apply one that bounds it":    apply("spokelet-hub-nodes"),
		"delete one that bounds it":   policies.Delete(t.Context(), "spokelet-hub-nodes", metav1.DeleteOptions{}),
		"create one by another verb":  createPolicy(t, policies, "spokelet-managedclusters-2"),
		"delete the one of the works": policies.Delete(t.Context(), "spokelet-managedclusters", metav1.DeleteOptions{}),
	})
}

func createPolicy(t *testing.T, policies dynamic.ResourceInterface, name string) error {
	t.Helper()
	_, err := policies.Create(t.Context(), policyNamed(name), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func policyNamed(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
				"apiGroups": []any{""}, "apiVersions": []any{"*"}, "resources": []any{"configmaps"}, "operations": []any{"CREATE"},
			}}},
			"validations": []any{map[string]any{"expression": "true"}},
		},
	}}
}
