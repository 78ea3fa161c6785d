// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"encoding/json"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// workersAPIHub is one on which worker bundles are installed, without the API, and on which
// an administrator has opened one namespace to it.
type workersAPIHub struct {
	*installedHub

	// namesake is an account of the same name and rights, of another namespace.
	namesake kubernetes.Interface
}

func newWorkersAPIHub(t *testing.T) workersAPIHub {
	t.Helper()
	h := workersAPIHub{installedHub: newAccountOf(t, workersAPI)}
	h.apply(workersChart, withAPI()...)
	namesake := rest.CopyConfig(h.config)
	namesake.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + h.namespace + ":" + workersAPI}
	h.namesake = kubernetes.NewForConfigOrDie(namesake)
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "wrangler"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: accountRole},
	}
	for _, from := range []string{namespace, h.namespace} {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: from, Name: workersAPI})
	}
	_, err := h.admin.RbacV1().RoleBindings(h.namespace).Create(t.Context(), binding, metav1.CreateOptions{})
	h.must(err)
	livetest.Eventually(t, "the policy and the role are in force", func() bool {
		_, err := h.hub.CoreV1().Secrets(h.namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}, creation)
		return refusedBy(err, workersAPI)
	})
	return h
}

// try asks for a write of the Secret that is before, if there is to be one, as somebody.
// Nothing is changed.
func (h workersAPIHub) try(as kubernetes.Interface, w secretWrite) error {
	h.t.Helper()
	secrets := as.CoreV1().Secrets(h.namespace)
	switch {
	case w.before == nil:
		_, err := secrets.Create(h.t.Context(), w.after, creation)
		return err
	case w.after == nil:
		return secrets.Delete(h.t.Context(), w.before.Name, deletion)
	}
	before, err := json.Marshal(w.before)
	h.must(err)
	after, err := json.Marshal(w.after)
	h.must(err)
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Secret{})
	h.must(err)
	_, err = secrets.Patch(h.t.Context(), w.before.Name, types.StrategicMergePatchType, patch, patching)
	return err
}

func TestARealHubHoldsTheAPIToSecretsOfVersions(t *testing.T) {
	h := newWorkersAPIHub(t)
	made := 0
	for what, w := range secretWrites() {
		if w.before != nil {
			made++
			w.before.Name = "made-" + strconv.Itoa(made)
			_, err := h.admin.CoreV1().Secrets(h.namespace).Create(t.Context(), w.before, metav1.CreateOptions{})
			h.must(err)
			if w.after != nil {
				w.after.Name = w.before.Name
			}
		}
		err := h.try(h.hub, w)
		if refused := refusedBy(err, workersAPI) && apierrors.IsForbidden(err); refused != w.refused || err != nil && !refused {
			t.Errorf("%s: got %v, want refused %t: %s", what, err, w.refused, w.reason)
		}
		if err := h.try(h.namesake, w); err != nil {
			t.Errorf("%s: somebody else is held to it: %v", what, err)
		}
	}
}

func TestARealHubLetsTheAPIReadSecretsOfOpenedNamespacesAlone(t *testing.T) {
	h := newWorkersAPIHub(t)
	list := func(namespace string) error {
		_, err := h.hub.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
		return err
	}
	checkAll(t, allowed, map[string]error{"Secrets of an opened namespace": list(h.namespace)})
	checkAll(t, apierrors.IsForbidden, map[string]error{
		"Secrets of its own namespace":        list(namespace),
		"Secrets of the API server's clients": list(metav1.NamespaceSystem),
		"Secrets of all namespaces":           list(metav1.NamespaceAll),
	})
}
