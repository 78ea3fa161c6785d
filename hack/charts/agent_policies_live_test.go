// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/internal/testing/livetest"
)

var (
	hubs      = map[string]string{"spokelet.io/hub": "hub-id"}
	dry       = []string{metav1.DryRunAll}
	creation  = metav1.CreateOptions{DryRun: dry}
	patching  = metav1.PatchOptions{DryRun: dry}
	deletion  = metav1.DeleteOptions{DryRun: dry}
	labelPods = []byte(`{"metadata":{"labels":{"spokelet.io/hub":"hub-id"}}}`)
)

// policed is a real cluster with the policies of the agent's chart. RBAC lets its
// accounts do anything, so that what they may not do is the policies' doing.
type policed struct {
	t       *testing.T
	cfg     *rest.Config
	admin   typedcorev1.CoreV1Interface
	account typedcorev1.CoreV1Interface
	// shared has the consent of its owner, made was made for pods, foreign is neither.
	shared, made, foreign string
}

func newPoliced(t *testing.T) *policed {
	t.Helper()
	p := &policed{t: t, cfg: livetest.Config(t, "SPOKELET_TEST_KUBECONFIG")}
	p.admin = p.client("").CoreV1()
	p.install()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "policed-" + rand.String(8)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}
	for _, name := range []string{"spokelet-node", "spokelet-agent"} {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name})
	}
	bindings := p.client("").RbacV1().ClusterRoleBindings()
	if _, err := bindings.Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = bindings.Delete(context.WithoutCancel(t.Context()), binding.Name, metav1.DeleteOptions{})
	})
	p.account = p.client("spokelet-node").CoreV1()
	p.shared = p.namespace(map[string]string{"spokelet.io/pods": "allowed"})
	p.made = p.namespace(map[string]string{"spokelet.io/created-by": "spokelet-agent"})
	p.foreign = p.namespace(nil)
	for _, binding := range []*rbacv1.RoleBinding{looking(), looking(func(b *rbacv1.RoleBinding) { b.Name = "theirs" })} {
		if _, err := p.client("").RbacV1().RoleBindings(p.shared).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	livetest.Eventually(t, "the policy holds", func() bool {
		_, err := p.account.ConfigMaps(p.shared).Create(t.Context(), configMap("theirs", nil), creation)
		return refusedBy(err, "spokelet-agent-pods")
	})
	return p
}

// client acts as one of the accounts, or as who may do anything.
func (p *policed) client(account string) kubernetes.Interface {
	p.t.Helper()
	cfg := p.cfg
	if account != "" {
		cfg = as(cfg, account)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	return client
}

// install makes the policies and their bindings.
func (p *policed) install() {
	p.t.Helper()
	client, err := dynamic.NewForConfig(p.cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, object := range render(p.t, "spokelet-agent") {
		resource, ok := resources()[object.GetKind()]
		if !ok || resource.Group != "admissionregistration.k8s.io" {
			continue
		}
		at := client.Resource(resource)
		if _, err := at.Create(p.t.Context(), &object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
			p.t.Fatal(err)
		}
		p.t.Cleanup(func() {
			_ = at.Delete(context.WithoutCancel(p.t.Context()), object.GetName(), metav1.DeleteOptions{})
		})
	}
}

// namespace has one pod and one ConfigMap of the hub, and the same of its owner.
func (p *policed) namespace(labels map[string]string) string {
	p.t.Helper()
	ns, err := p.admin.Namespaces().Create(p.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "policed-", Labels: labels, Annotations: map[string]string{"theirs": "y"},
	}}, metav1.CreateOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		ctx := context.WithoutCancel(p.t.Context())
		_ = p.admin.Pods(ns.Name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{})
		_ = p.admin.Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{})
	})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := p.admin.ServiceAccounts(ns.Name).Create(p.t.Context(), account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		p.t.Fatal(err)
	}
	for name, labels := range map[string]map[string]string{"ours": hubs, "theirs": nil} {
		if _, err := p.admin.ConfigMaps(ns.Name).Create(p.t.Context(), configMap(name, labels), metav1.CreateOptions{}); err != nil {
			p.t.Fatal(err)
		}
		if _, err := p.admin.Pods(ns.Name).Create(p.t.Context(), bigPod(name, labels), metav1.CreateOptions{}); err != nil {
			p.t.Fatal(err)
		}
	}
	return ns.Name
}

func configMap(name string, labels map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// bigPod is too big for any node.
func bigPod(name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Image: "spokelet.io/test/none",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("5000")}},
	}}}}
}

// refusedBy tells that a policy refused, and nothing else did.
func refusedBy(err error, policy string) bool {
	return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+policy+"'")
}

func (p *policed) create(namespace, name string, labels map[string]string) error {
	_, err := p.account.ConfigMaps(namespace).Create(p.t.Context(), configMap(name, labels), creation)
	return err
}

func (p *policed) patch(namespace, name, body string) error {
	_, err := p.account.ConfigMaps(namespace).Patch(p.t.Context(), name, types.MergePatchType, []byte(body), patching)
	return err
}

func (p *policed) patchPod(namespace, name string, body []byte, sub ...string) error {
	_, err := p.account.Pods(namespace).Patch(p.t.Context(), name, types.StrategicMergePatchType, body, patching, sub...)
	return err
}

func (p *policed) newNamespace(name string, labels map[string]string) error {
	_, err := p.account.Namespaces().Create(p.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, creation)
	return err
}

// exec asks for a command in a pod that is on no node, and so gets an error anyway.
func (p *policed) exec(namespace, name string) error {
	return p.account.RESTClient().Post().Namespace(namespace).Resource("pods").Name(name).SubResource("exec").
		Param("command", "true").Param("stdout", "true").Do(p.t.Context()).Error()
}

// debugging is what "kubectl debug" adds.
var debugging = []byte(`{"spec":{"ephemeralContainers":[{"name":"debug","image":"spokelet.io/test/none","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}]}}`)

func TestTheAccountOfThePodsIsHeldToWhatIsTheHubs(t *testing.T) {
	p := newPoliced(t)
	ctx := t.Context()
	made := map[string]string{"spokelet.io/created-by": "spokelet-agent"}
	allowed := map[string]func() error{
		"makes a copy in a shared namespace": func() error { return p.create(p.shared, "new", hubs) },
		"makes a copy in one of ours":        func() error { return p.create(p.made, "new", hubs) },
		"makes a pod": func() error {
			_, err := p.account.Pods(p.shared).Create(ctx, bigPod("new", hubs), creation)
			return err
		},
		"makes a Secret": func() error {
			_, err := p.account.Secrets(p.made).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "new", Labels: hubs}}, creation)
			return err
		},
		"makes an account": func() error {
			_, err := p.account.ServiceAccounts(p.made).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot", Labels: hubs}}, creation)
			return err
		},
		"makes a namespace":                      func() error { return p.newNamespace("policed-new", made) },
		"changes a copy":                         func() error { return p.patch(p.shared, "ours", `{"data":{"k":"v"}}`) },
		"changes a pod":                          func() error { return p.patchPod(p.shared, "ours", []byte(`{"metadata":{"labels":{"a":"b"}}}`)) },
		"adds a container to a pod":              func() error { return p.patchPod(p.shared, "ours", debugging, "ephemeralcontainers") },
		"removes a copy":                         func() error { return p.account.ConfigMaps(p.shared).Delete(ctx, "ours", deletion) },
		"removes a copy without consent by now":  func() error { return p.account.ConfigMaps(p.foreign).Delete(ctx, "ours", deletion) },
		"ends a pod":                             func() error { return p.account.Pods(p.shared).Delete(ctx, "ours", deletion) },
		"ends a pod where there is no more room": func() error { return p.account.Pods(p.foreign).Delete(ctx, "ours", deletion) },
	}
	refused := map[string]func() error{
		"makes what has no label":      func() error { return p.create(p.shared, "new", nil) },
		"makes a copy without consent": func() error { return p.create(p.foreign, "new", hubs) },
		"makes a copy in kube-system":  func() error { return p.create("kube-system", "new", hubs) },
		"makes a pod without consent": func() error {
			_, err := p.account.Pods(p.foreign).Create(ctx, bigPod("new", hubs), creation)
			return err
		},
		"makes a namespace of its own":     func() error { return p.newNamespace("policed-new", nil) },
		"makes a namespace of the cluster": func() error { return p.newNamespace("kube-policed", made) },
		"takes what is the owner's":        func() error { return p.patch(p.shared, "theirs", string(labelPods)) },
		"gives up what is the hub's":       func() error { return p.patch(p.shared, "ours", `{"metadata":{"labels":null}}`) },
		"takes a pod of the owner":         func() error { return p.patchPod(p.shared, "theirs", labelPods) },
		"debugs a pod of the owner":        func() error { return p.patchPod(p.shared, "theirs", debugging, "ephemeralcontainers") },
		"removes a ConfigMap of the owner": func() error { return p.account.ConfigMaps(p.shared).Delete(ctx, "theirs", deletion) },
		"ends a pod of the owner":          func() error { return p.account.Pods(p.shared).Delete(ctx, "theirs", deletion) },
		"removes a namespace":              func() error { return p.account.Namespaces().Delete(ctx, p.shared, deletion) },
		"gives consent to itself": func() error {
			_, err := p.account.Namespaces().Patch(ctx, p.foreign, types.MergePatchType, []byte(`{"metadata":{"labels":{"spokelet.io/pods":"allowed"}}}`), patching)
			return err
		},
		"runs a command without consent": func() error { return p.exec(p.foreign, "theirs") },
		"runs a command in kube-system":  func() error { return p.exec("kube-system", "any") },
		"asks for a token": func() error {
			return p.account.RESTClient().Post().Namespace(p.shared).Resource("serviceaccounts").Name("default").SubResource("token").
				Body([]byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`)).Do(ctx).Error()
		},
	}
	p.check(allowed, refused)
	if err := p.exec(p.shared, "ours"); err == nil || refusedBy(err, "spokelet-agent-pods") {
		t.Errorf("a command in a pod of the hub, which is on no node: %v", err)
	}
	if _, err := p.admin.ConfigMaps(p.foreign).Create(ctx, configMap("new", nil), creation); err != nil {
		t.Errorf("somebody else is held to it: %v", err)
	}
}

func TestTheAgentDefinesItsAnchorsAndNothingElse(t *testing.T) {
	p := newPoliced(t)
	client, err := dynamic.NewForConfig(as(p.cfg, "spokelet-agent"))
	if err != nil {
		t.Fatal(err)
	}
	at := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	define := func(plural, kind, group string) error {
		_, err := at.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": plural + "." + group},
			"spec": map[string]any{
				"group": group, "scope": "Cluster",
				"names": map[string]any{"plural": plural, "kind": kind},
				"versions": []any{map[string]any{
					"name": "v1", "served": true, "storage": true,
					"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
				}},
			},
		}}, creation)
		return err
	}
	// A policy is in force a second after the other.
	livetest.Eventually(t, "a definition of something else is refused", func() bool {
		return refusedBy(define("things", "Thing", "example.com"), "spokelet-agent-definitions")
	})
	if err := define("appliedworks", "AppliedWork", "multicluster.x-k8s.io"); refusedBy(err, "spokelet-agent-definitions") {
		t.Errorf("the definition of an anchor: %v", err)
	}
}
