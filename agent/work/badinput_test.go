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
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/plan"
	"github.com/spokelet/spokelet/api/wire"
)

// message of the Applied condition of one manifest.
func message(s reportedStatus, ordinal int) string {
	c := meta.FindStatusCondition(s.Manifests[ordinal].Conditions, conditionApplied)
	if c == nil {
		return ""
	}
	return c.Message
}

// withoutAccount are executors that do not say whom a work acts for.
func withoutAccount() map[string]*workv1.ManifestWorkExecutor {
	return map[string]*workv1.ManifestWorkExecutor{
		"nothing":        {},
		"a type alone":   {Subject: workv1.ManifestWorkExecutorSubject{Type: workv1.ExecutorSubjectTypeServiceAccount}},
		"an unknown one": {Subject: workv1.ManifestWorkExecutorSubject{Type: "User"}},
	}
}

func TestExecutorWithoutAccountIsRefused(t *testing.T) {
	for name, x := range withoutAccount() {
		t.Run(name, func(t *testing.T) {
			steps := []plan.Step{{Target: manifest.Target{ObjectID: manifest.ObjectID{Resource: "configmaps", Namespace: "n", Name: "o"}}}}
			(&Engine{}).resolveOptions(&work{policy: ManifestWork()}, &plan.Spec{ManifestWork: workv1.ManifestWorkSpec{Executor: x}}, steps)
			if err := steps[0].Error; !errors.Is(err, plan.ErrNoExecutor) || !plan.IsPermanent(err) || len(plan.ApplicableSteps(steps)) > 0 {
				t.Errorf("error %v: it is written with the rights of the agent", err)
			}
		})
	}
}

func TestWorkWithoutExecutorAccountIsNotApplied(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
	for label, x := range withoutAccount() {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			name := c.name(strings.ReplaceAll(label, " ", "-"))
			h.ask(name, 1, wire.Work{Spec: workv1.ManifestWorkSpec{Executor: x}}, c.configMap("a"))
			s := h.says(c, name, 1, conditionApplied, metav1.ConditionFalse)
			if got, want := message(s, 0), "Failed to apply manifest: "+plan.ErrNoExecutor.Error(); got != want || c.get("a") != nil {
				t.Errorf("message %q, want %q; the object is there: %t", got, want, c.get("a") != nil)
			}
		})
	}
}

func TestClusterScopedManifestWithNamespaceIsNotApplied(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
	for dialect, publish := range map[string]func(name string, manifests ...string) reportedStatus{
		wire.DialectManifestWork: func(name string, manifests ...string) reportedStatus {
			h.ask(name, 1, wire.Work{}, manifests...)
			return h.says(c, name, 1, conditionApplied, metav1.ConditionFalse)
		},
		wire.DialectMulticluster: func(name string, manifests ...string) reportedStatus {
			h.want(name, 1, manifests...)
			return h.is(c, name, 1, conditionApplied, metav1.ConditionFalse)
		},
	} {
		name := c.name(dialect)
		role := fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":%q,"namespace":%q}}`, name, c.namespace)
		if got := message(publish(name, role, c.configMap(dialect)), 0); !strings.HasSuffix(got, plan.ErrNamespace.Error()) {
			t.Errorf("%s: message %q does not say why", dialect, got)
		}
		if _, err := c.kube.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s: the object of the whole cluster: %v, want none", dialect, err)
		}
		if c.get(dialect) == nil {
			t.Errorf("%s: the manifest beside it is not applied", dialect)
		}
	}
}

// mayWriteConfigMapsAlone returns a user who may, and have anchors, and the role.
func (c *testCluster) mayWriteConfigMapsAlone() (user string, role *rbacv1.ClusterRole) {
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
func (c *testCluster) untilAllowed(user, resource string, allowed bool) {
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

func TestManySmallManifestsTakeLittleMemory(t *testing.T) {
	const count = 300
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
