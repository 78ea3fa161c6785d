// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/e2e/testbed"
)

// carol may make works in bob's namespace, and for no cluster yet.
const carol = "carol"

// bindRole is the manifest of a binding of a user in a namespace, which is named carol.
func bindRole(namespace, kind, role, user string) string {
	return fmt.Sprintf("{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: carol, namespace: %s}, "+
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: %s, name: %s}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %q}]}\n---\n",
		namespace, kind, role, user)
}

// worksRole is the manifest of a role on works, which is named carol.
func worksRole(namespace, verbs string) string {
	return fmt.Sprintf("{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: carol, namespace: %s}, rules: [{apiGroups: [mcm.ibm.com], resources: [works], verbs: [%s]}]}\n---\n",
		namespace, verbs)
}

// rights: who asks is who is asked about, on the hub and in the spoke.
func (s *tests) rights(t *testing.T) {
	s.Hub.Apply(t, worksRole("bob", `"*"`)+bindRole("bob", "Role", carol, carol))
	testbed.Until(t, "carol's rights in bob's namespace", testbed.Settle, func(ctx context.Context) error {
		_, err := s.Hub.As(carol).Run(ctx, "get", works, "-n", "bob")
		return err
	})
	view := work("of-carol", "spoke1", "type: Resource, scope: {resourceType: configmaps, namespace: bob, fieldSelector: metadata.name=kube-root-ca.crt}")
	testbed.Refused(t, "carol may make no works for spoke1", s.Hub.As(carol), view, []string{"apply", "-f", "-"},
		"(Forbidden)", `"carol" cannot create resource "works" in API group "mcm.ibm.com" in the namespace "spoke1"`)
	s.Hub.Apply(t, worksRole("spoke1", "create")+bindRole("spoke1", "Role", carol, carol))
	forged := strings.Replace(view, "namespace: bob}", "namespace: bob, annotations: {mcm.ibm.com/user-identity: Ym9i, mcm.ibm.com/user-group: c3lzdGVtOm1hc3RlcnM=}}", 1)
	testbed.Until(t, "carol's rights for spoke1", testbed.Settle, func(ctx context.Context) error {
		_, err := s.Hub.As(carol).RunInput(ctx, strings.NewReader(forged), "apply", "-f", "-")
		return err
	})
	w := s.until(t, works, "bob", "of-carol", "carol has no rights in the spoke", func(w object) error { return w.is("Failed", "forbidden", "hub:carol") })
	ofCarol(t, w)
	s.rightsEndViews(t)
	s.actsWithinRights(t)
	s.Hub.Kubectl(t, "delete", works, "-n", "bob", "of-carol", "by-carol")
}

// ofCarol fails unless carol is the author, in place of whom she wrote there.
func ofCarol(t *testing.T, w object) {
	t.Helper()
	annotations := w.GetAnnotations()
	if got := annotations["mcm.ibm.com/user-identity"]; got != "Y2Fyb2w=" {
		t.Errorf("the author is %q, want carol", got)
	}
	if got := annotations["mcm.ibm.com/user-group"]; got == "c3lzdGVtOm1hc3RlcnM=" {
		t.Errorf("the author's groups are those that were written there")
	}
}

// rightsEndViews takes carol's rights and gives them back, in the spoke and on the hub. Without
// watches of what they come from the view would go on for minutes.
func (s *tests) rightsEndViews(t *testing.T) {
	t.Helper()
	inSpoke, onHub := bindRole("bob", "ClusterRole", "view", "hub:"+carol), bindRole("spoke1", "Role", carol, carol)
	s.Spoke().Apply(t, inSpoke)
	s.until(t, works, "bob", "of-carol", "rights that come begin a view", func(w object) error { return w.is("Completed") })
	for _, where := range []struct {
		what      string
		on        *testbed.Site
		namespace string
		binding   string
		words     []string
	}{
		{"in the spoke", s.Spoke(), "bob", inSpoke, []string{"forbidden", "hub:carol"}},
		{"on the hub", s.Hub, "spoke1", onHub, []string{"forbidden", `"carol" cannot create resource "works"`}},
	} {
		if err := where.on.Kube.RbacV1().RoleBindings(where.namespace).Delete(t.Context(), carol, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		s.until(t, works, "bob", "of-carol", "rights that go end a view", func(w object) error { return w.is("Failed", where.words...) })
		t.Logf("a right that is taken away %s ends a view after %s", where.what, time.Since(began).Round(time.Millisecond))
		where.on.Apply(t, where.binding)
		s.until(t, works, "bob", "of-carol", "rights that come again begin a view", func(w object) error { return w.is("Completed") })
	}
}

// actsWithinRights: the template's namespace gives nobody more.
func (s *tests) actsWithinRights(t *testing.T) {
	t.Helper()
	by := work("by-carol", "spoke1", "type: Action, actionType: Create, kube: {template: {apiVersion: v1, kind: ConfigMap, metadata: {name: carols, namespace: kube-system}}}")
	if _, err := s.Hub.As(carol).RunInput(t.Context(), strings.NewReader(by), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	s.until(t, works, "bob", "by-carol", "carol acts in another namespace", func(w object) error {
		return w.is("Failed", "forbidden", "hub:carol", "kube-system")
	})
}
