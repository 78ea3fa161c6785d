// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"errors"
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// liveRig is a namespace of a real API server with a service account in it.
type liveRig struct {
	cfg       *rest.Config
	kube      kubernetes.Interface
	namespace string
}

func newLiveRig(t *testing.T) *liveRig {
	t.Helper()
	cfg := livetest.Config(t, "SPOKELET_TEST_KUBECONFIG")
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &liveRig{cfg: cfg, kube: kube, namespace: livetest.Namespace(t, kube, "executor-")}
}

func (r *liveRig) checker(t *testing.T, caches bool) *Checker {
	t.Helper()
	cfg := rest.CopyConfig(r.cfg)
	if !caches {
		cfg.Dial = nil // it lets go of its connections itself: none is a watch's, which is busy for a moment after its end
	}
	c, err := New(Config{REST: cfg, Caches: caches})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// grant lets the account do everything that rules say, in the namespace.
func (r *liveRig) grant(t *testing.T, name string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	rbac := r.kube.RbacV1()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	if _, err := rbac.Roles(r.namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: r.namespace, Name: "builder"}},
	}
	if _, err := rbac.RoleBindings(r.namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

func (r *liveRig) configMap() Request {
	return Request{Namespace: r.namespace, Name: "builder", Resource: configMaps, ObjectNamespace: r.namespace, ObjectName: "settings"}
}

func (r *liveRig) role(t *testing.T, name string, rules ...rbacv1.PolicyRule) Request {
	t.Helper()
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&rbacv1.Role{
		TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"}, ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules,
	})
	if err != nil {
		t.Fatal(err)
	}
	request := r.configMap()
	request.Resource, request.ObjectName, request.Object = roles, name, &unstructured.Unstructured{Object: raw}
	return request
}

// waitForCheck waits until a check says what is wanted: the API server learns of
// new rights a moment after they were written.
func waitForCheck(t *testing.T, c *Checker, r Request, allowed bool) {
	t.Helper()
	var last error
	defer func() {
		if t.Failed() {
			t.Logf("the last check: %v", last)
		}
	}()
	livetest.Eventually(t, fmt.Sprintf("allowed is %t", allowed), func() bool {
		last = c.Check(t.Context(), r)
		return (last == nil) == allowed
	})
}

func TestLiveCheckFollowsGrants(t *testing.T) {
	r := newLiveRig(t)
	c := r.checker(t, false)
	var refused *NotAllowedError
	if err := c.Check(t.Context(), r.configMap()); !errors.As(err, &refused) || refused.Escalation {
		t.Errorf("without any right: %v", err)
	}
	r.grant(t, "writer", rule("", "configmaps", "create", "update", "patch", "get"))
	waitForCheck(t, c, r.configMap(), true)
	request := r.configMap()
	request.Delete = true
	if err := c.Check(t.Context(), request); !errors.As(err, &refused) {
		t.Errorf("without the right to delete: %v", err)
	}
}

func TestLiveCheckRefusesEscalation(t *testing.T) {
	r := newLiveRig(t)
	c := r.checker(t, false)
	r.grant(t, "maker", rule(rbacv1.GroupName, "roles", "create", "update", "patch", "get"), rule("", "configmaps", "get"))
	own := r.role(t, "own", rule("", "configmaps", "get"))
	waitForCheck(t, c, own, true)
	var refused *NotAllowedError
	mighty := r.role(t, "mighty", rule("", "secrets", "*"))
	if err := c.Check(t.Context(), mighty); !errors.As(err, &refused) || !refused.Escalation {
		t.Errorf("a new role with rights that it has not: %v", err)
	}
	// That the role exists hides nothing.
	if err := c.Check(t.Context(), r.role(t, "maker", rule("", "secrets", "*"))); !errors.As(err, &refused) || !refused.Escalation {
		t.Errorf("a role that exists, with rights that it has not: %v", err)
	}
	if err := c.Check(t.Context(), r.role(t, "maker", rule("", "configmaps", "get"))); err != nil {
		t.Errorf("a role that exists, with rights that it has: %v", err)
	}
	if _, err := r.kube.RbacV1().Roles(r.namespace).Get(t.Context(), "own", metav1.GetOptions{}); err == nil {
		t.Error("the dry run has made the role")
	}
}

func TestLiveCacheFollowsRoles(t *testing.T) {
	r := newLiveRig(t)
	c := r.checker(t, true)
	r.grant(t, "writer", rule("", "configmaps", "*"))
	livetest.Eventually(t, "a yes is remembered", func() bool {
		what, _ := newCacheKey(r.configMap())
		_, known := c.cache.lookup(what)
		if !known {
			_ = c.Check(t.Context(), r.configMap())
		}
		return known
	})
	if err := r.kube.RbacV1().RoleBindings(r.namespace).Delete(t.Context(), "writer", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForCheck(t, c, r.configMap(), false)
}
