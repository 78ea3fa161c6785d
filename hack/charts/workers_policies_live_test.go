// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/spokelet/spokelet/internal/livetest"
)

// workersHub is one on which worker bundles are installed, without the operator.
type workersHub struct{ *installedHub }

func newWorkersHub(t *testing.T) workersHub {
	t.Helper()
	h := workersHub{newAccountOf(t, workersChart)}
	h.define("../../api/crds/work/0000_00_work.open-cluster-management.io_manifestworks.crd.yaml")
	h.apply(workersChart)
	// That is also when the API server serves the definition.
	livetest.Eventually(t, "the policies are in force", func() bool {
		return refusedBy(h.work("another", nil), "spokelet-workers-works") && refusedBy(h.secret(nil), "spokelet-workers-secrets")
	})
	return h
}

// define makes a definition unless it is there. It stays: tests of other packages may have
// objects of it.
func (h workersHub) define(file string) {
	h.t.Helper()
	raw, err := os.ReadFile(file)
	h.must(err)
	object := &unstructured.Unstructured{}
	h.must(yaml.Unmarshal(raw, &object.Object))
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if _, err = dynamic.NewForConfigOrDie(h.config).Resource(definitions).Create(h.t.Context(), object, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		h.must(err)
	}
}

// work tries to make a work of account 1234 with a ConfigMap, which the change changes.
func (h workersHub) work(name string, change func(work, configMap *unstructured.Unstructured)) error {
	configMap := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "any", "namespace": "workers-1234"},
	}}
	work := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"workers.spokelet.io/account": "1234"}},
	}}
	if change != nil {
		change(work, configMap)
	}
	space := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "workers-1234"}}
	work.Object["spec"] = map[string]any{"workload": map[string]any{"manifests": []any{space, configMap.Object}}}
	gvr := schema.GroupVersionResource{Group: "work.open-cluster-management.io", Version: "v1", Resource: "manifestworks"}
	_, err := h.applies.Resource(gvr).Namespace(h.namespace).Create(h.t.Context(), work, creation)
	return err
}

// secret tries to make a copy for a release, which the change changes.
func (h workersHub) secret(change func(*corev1.Secret)) error {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "hello-1", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "api.worker-release/v1alpha1", Kind: "WorkerRelease", Name: "hello-1", UID: "any"},
		}},
		Immutable: new(true), Data: map[string][]byte{"KEY": []byte("value")},
	}
	if change == nil {
		change = func(s *corev1.Secret) { s.OwnerReferences = nil }
	}
	change(s)
	_, err := h.hub.CoreV1().Secrets(h.namespace).Create(h.t.Context(), s, creation)
	return err
}

func TestTheOperatorOfWorkersIsHeldToWorksOfAccounts(t *testing.T) {
	h := newWorkersHub(t)
	if err := h.work("workers-1234", nil); err != nil {
		t.Errorf("a work of an account: %v", err)
	}
	for reason, err := range map[string]error{
		"a work of another name": h.work("theirs", nil),
		"a work of no account": h.work("workers-1234", func(work, _ *unstructured.Unstructured) {
			work.SetLabels(nil)
		}),
		"an object of another namespace": h.work("workers-1234", func(_, configMap *unstructured.Unstructured) {
			configMap.SetNamespace("kube-system")
		}),
		"an object of no namespace": h.work("workers-1234", func(_, object *unstructured.Unstructured) {
			object.Object = map[string]any{
				"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": "any"},
			}
		}),
		"another namespace": h.work("workers-1234", func(_, object *unstructured.Unstructured) {
			object.Object = map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "kube-system"}}
		}),
	} {
		if !refusedBy(err, "spokelet-workers-works") {
			t.Errorf("%s: got %v, want the policy's refusal", reason, err)
		}
	}
}

func TestTheOperatorOfWorkersIsHeldToCopiesOfSecrets(t *testing.T) {
	h := newWorkersHub(t)
	// No release is there that could own it, which is another one's to say.
	if err := h.secret(func(*corev1.Secret) {}); err != nil && strings.Contains(err.Error(), "spokelet-workers-secrets") {
		t.Errorf("a copy for a release: %v", err)
	}
	for reason, change := range map[string]func(*corev1.Secret){
		"one of nobody's":     func(s *corev1.Secret) { s.OwnerReferences = nil },
		"one of another's":    func(s *corev1.Secret) { s.OwnerReferences[0].Kind = "WorkerAccount" },
		"one that may change": func(s *corev1.Secret) { s.Immutable = nil },
		"a token of an account": func(s *corev1.Secret) {
			s.Type = corev1.SecretTypeServiceAccountToken
			s.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
		},
		"one of another release": func(s *corev1.Secret) { s.OwnerReferences[0].Name = "hello-2" },
	} {
		if err := h.secret(change); !refusedBy(err, "spokelet-workers-secrets") || !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v, want the policy's refusal", reason, err)
		}
	}
}
