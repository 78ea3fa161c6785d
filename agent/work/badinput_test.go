// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
)

// message of the Applied condition of one manifest.
func message(s told, ordinal int) string {
	c := meta.FindStatusCondition(s.Manifests[ordinal].Conditions, conditionApplied)
	if c == nil {
		return ""
	}
	return c.Message
}

func TestBadManifestStopsNoOther(t *testing.T) {
	c, h := newCluster(t), newHub(t)
	c.start(h, func(cfg *Config) { cfg.Namespaces = []string{c.namespace, "missing-" + c.namespace} })
	ns := c.namespace
	tests := map[string]struct {
		bad  string
		want string
	}{
		"no kind":         {bad: `{"apiVersion":"v1","metadata":{"name":"x"}}`, want: "failed to decode object: apiVersion and kind must be set"},
		"no name":         {bad: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"` + ns + `"}}`, want: "name must be set in manifest"},
		"generated name":  {bad: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"x-","namespace":"` + ns + `"}}`, want: "generateName must not be set"},
		"unknown kind":    {bad: `{"apiVersion":"v1","kind":"Nonsense","metadata":{"name":"x","namespace":"` + ns + `"}}`, want: `no matches for kind "Nonsense" in version "v1"`},
		"unknown group":   {bad: `{"apiVersion":"no.such.group/v1","kind":"X","metadata":{"name":"x","namespace":"` + ns + `"}}`, want: `no matches for kind "X"`},
		"no namespace":    {bad: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}`, want: "namespace must be set"},
		"absent":          {bad: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"missing-` + ns + `"}}`, want: "not found"},
		"wrong type":      {bad: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"` + ns + `"},"data":{"k":{}}}`, want: "failed to create typed patch object"},
		"bad name":        {bad: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"A_B","namespace":"` + ns + `"}}`, want: "is invalid"},
		"duplicate":       {bad: c.configMap("good", "k", "2"), want: "duplicate of manifest 0"},
		"other namespace": {bad: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"kube-system"}}`, want: "is not allowed by this cluster's agent"},
		"cluster scope":   {bad: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x"}}`, want: "cluster-scoped manifests are not allowed"},
		"secret value":    {bad: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x","namespace":"` + ns + `"},"data":{"k":{"hunter2":"hunter2"}}}`, want: "Failed to apply manifest: "},
	}
	for label, tc := range tests {
		t.Run(label, func(t *testing.T) {
			name := c.name(strings.ReplaceAll(label, " ", "-"))
			h.want(name, 1, c.configMap("good", "k", "1"), tc.bad)
			s := h.is(c, name, 1, conditionApplied, metav1.ConditionFalse)
			if got := message(s, 1); !strings.HasPrefix(got, "Failed to apply manifest: ") || !strings.Contains(got, tc.want) || strings.Contains(got, "hunter2") {
				t.Errorf("message = %q, want %q in it", got, tc.want)
			}
			if got := message(s, 0); got != "Apply manifest complete" {
				t.Errorf("the good one: %q", got)
			}
			h.want(name, 2)
			h.finalized(c, name)
		})
	}
}

// withoutAccount are executors that do not say whom a work acts for.
func withoutAccount() map[string]*workv1.ManifestWorkExecutor {
	return map[string]*workv1.ManifestWorkExecutor{
		"nothing":        {},
		"a type alone":   {Subject: workv1.ManifestWorkExecutorSubject{Type: workv1.ExecutorSubjectTypeServiceAccount}},
		"an unknown one": {Subject: workv1.ManifestWorkExecutorSubject{Type: "User"}},
	}
}

func TestAnExecutorWithoutAnAccountIsARefusal(t *testing.T) {
	for name, x := range withoutAccount() {
		t.Run(name, func(t *testing.T) {
			steps := []step{{at: target{objectID: objectID{Resource: "configmaps", Namespace: "n", Name: "o"}}}}
			(&Engine{}).equip(&work{policy: ManifestWork()}, &desired{spec: workv1.ManifestWorkSpec{Executor: x}}, steps)
			if err := steps[0].err; !errors.Is(err, errNoExecutor) || !lasting(err) || len(inOrder(steps)) > 0 {
				t.Errorf("error %v: it is written with the rights of the agent", err)
			}
		})
	}
}

func TestAWorkWhoseExecutorIsNobodyIsNotApplied(t *testing.T) {
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
	for label, x := range withoutAccount() {
		t.Run(label, func(t *testing.T) {
			name := c.name(strings.ReplaceAll(label, " ", "-"))
			h.ask(name, 1, wire.Work{Spec: workv1.ManifestWorkSpec{Executor: x}}, c.configMap("a"))
			s := h.says(c, name, 1, conditionApplied, metav1.ConditionFalse)
			if got, want := message(s, 0), "Failed to apply manifest: "+errNoExecutor.Error(); got != want || c.get("a") != nil {
				t.Errorf("message %q, want %q; the object is there: %t", got, want, c.get("a") != nil)
			}
		})
	}
}

func TestImmutableFieldFailsUntilTheObjectIsReplaced(t *testing.T) {
	c, h := newCluster(t), newHub(t)
	c.start(h)
	name := c.name("immutable")
	manifest := func(value string) string {
		return strings.Replace(c.configMap("i", "k", value), `"data"`, `"immutable":true,"data"`, 1)
	}
	h.want(name, 1, manifest("1"))
	h.is(c, name, 1, conditionApplied, metav1.ConditionTrue)
	h.want(name, 2, manifest("2"))
	s := h.is(c, name, 2, conditionApplied, metav1.ConditionFalse)
	if cond := meta.FindStatusCondition(s.Conditions, conditionAvailable); cond.Status != metav1.ConditionTrue {
		t.Errorf("Available = %+v: the object is there", cond)
	}
	if err := c.kube.CoreV1().ConfigMaps(c.namespace).Delete(t.Context(), "i", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	h.is(c, name, 2, conditionApplied, metav1.ConditionTrue)
}

// mayWriteConfigMapsAlone returns a user who may, and have anchors, and the role.
func (c *cluster) mayWriteConfigMapsAlone() (user string, role *rbacv1.ClusterRole) {
	c.t.Helper()
	user = "system:serviceaccount:" + c.namespace + ":worker"
	role = &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: c.name("worker")}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"multicluster.x-k8s.io", "work.open-cluster-management.io"}, Resources: []string{"*"}, Verbs: []string{"*"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	rbac := c.kube.RbacV1()
	if _, err := rbac.ClusterRoles().Create(c.t.Context(), role, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	if _, err := rbac.ClusterRoleBindings().Create(c.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = rbac.ClusterRoleBindings().Delete(contextOf(c.t), role.Name, metav1.DeleteOptions{})
		_ = rbac.ClusterRoles().Delete(contextOf(c.t), role.Name, metav1.DeleteOptions{})
	})
	c.untilAllowed(user, "configmaps", true)
	return user, role
}

// untilAllowed waits until the API server acts by the rights that a user was given,
// or that were taken: it learns of them a moment after they were written.
func (c *cluster) untilAllowed(user, resource string, allowed bool) {
	c.t.Helper()
	gr := schema.ParseGroupResource(resource)
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "patch", Group: gr.Group, Resource: gr.Resource},
	}}
	c.eventually("rights take effect", func() bool {
		got, err := c.kube.AuthorizationV1().SubjectAccessReviews().Create(c.t.Context(), review, metav1.CreateOptions{})
		return err == nil && got.Status.Allowed == allowed
	})
}

func TestRightsThatComeAndGo(t *testing.T) {
	c, h := newCluster(t), newHub(t)
	user, role := c.mayWriteConfigMapsAlone()
	rbac := c.kube.RbacV1()
	c.start(h, func(cfg *Config) { cfg.Impersonate = user })
	name := c.name("rights")
	secret := `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"` + c.namespace + `"}}`
	h.want(name, 1, c.configMap("a"), secret)
	s := h.is(c, name, 1, conditionApplied, metav1.ConditionFalse)
	if got := message(s, 1); !strings.Contains(got, "Forbidden") {
		t.Errorf("message = %q", got)
	}
	role.Rules[1].Resources = append(role.Rules[1].Resources, "secrets")
	if _, err := rbac.ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	h.is(c, name, 1, conditionApplied, metav1.ConditionTrue)
	h.want(name, 1)
	h.finalized(c, name)
}

func TestTerminatingNamespaceIsReported(t *testing.T) {
	c, h := newCluster(t), newHub(t)
	c.start(h)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "going-" + c.namespace}}
	if _, err := c.kube.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.kube.CoreV1().Namespaces().Delete(t.Context(), ns.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	name := c.name("terminating")
	h.want(name, 1, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"`+ns.Name+`"}}`)
	s := h.is(c, name, 1, conditionApplied, metav1.ConditionFalse)
	if got := message(s, 0); !strings.Contains(got, "being terminated") && !strings.Contains(got, "not found") {
		t.Errorf("message = %q", got)
	}
}

func TestManySmallManifestsTakeLittleMemory(t *testing.T) {
	const count = 1000
	c, h := newCluster(t), newHub(t)
	c.start(h)
	name := c.name("many")
	var list []string
	for i := range count {
		list = append(list, c.configMap(fmt.Sprintf("m-%d", i)))
	}
	before := heap()
	h.want(name, 1, list...)
	h.is(c, name, 1, conditionApplied, metav1.ConditionTrue)
	if grown := heap() - before; grown > count*16<<10 {
		t.Errorf("%d manifests take %d KiB of heap", count, grown>>10)
	}
	h.want(name, 1)
	h.finalized(c, name)
	if left := c.configMaps(); len(left) != 0 {
		t.Errorf("%d objects are left behind", len(left))
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
