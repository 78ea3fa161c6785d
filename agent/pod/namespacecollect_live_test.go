// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// grantAsTheChart gives a user the rights that the chart gives the account of the pods.
func (c *cluster) grantAsTheChart(user string) {
	c.t.Helper()
	const core, rbac = "", rbacv1.GroupName
	rule := func(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
	}
	bind := rule(rbac, []string{"clusterroles"}, "bind")
	bind.ResourceNames = []string{roleContent}
	roles := c.kube.RbacV1().ClusterRoles()
	for name, rules := range map[string][]rbacv1.PolicyRule{
		roleContent: {rule("*", []string{"*"}, "list")},
		user: {
			rule(core, []string{"namespaces"}, "get", "list", "watch", "create", "patch", "delete"),
			rule(rbac, []string{"rolebindings"}, "create", "delete"), bind,
			rule(core, []string{"pods"}, "list", "watch", "get", "create", "update", "patch", "delete"),
			rule(core, []string{"configmaps", "secrets"}, "get", "create", "update", "patch", "delete"),
			rule(core, []string{"serviceaccounts"}, "get", "create"), rule(core, []string{"events"}, "list", "watch"),
		},
	} {
		_, err := roles.Create(c.t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
		if err != nil {
			c.t.Fatal(err)
		}
	}
	bindings := c.kube.RbacV1().ClusterRoleBindings()
	_, err := bindings.Create(c.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbac, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbac, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		ctx := context.WithoutCancel(c.t.Context())
		_ = bindings.Delete(ctx, user, metav1.DeleteOptions{})
		for _, name := range []string{roleContent, user} {
			_ = roles.Delete(ctx, name, metav1.DeleteOptions{})
		}
	})
}

// kept is why the namespace of the test is there, "gone" when it is not, or goes.
func (c *cluster) kept() string {
	c.t.Helper()
	ns, err := c.kube.CoreV1().Namespaces().Get(c.t.Context(), c.namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && ns.DeletionTimestamp != nil {
		return "gone"
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return ns.Annotations[AnnotationKeptBecause]
}

func TestLiveEmptyNamespaceIsCollected(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	user := "spokelet-test:" + c.namespace
	c.grantAsTheChart(user)
	h := newHub(c)
	made := make(chan resource.Resource, 10)
	h.sync.Publish(wire.KindPodNamespaceGone, nil)
	h.sync.Mirror(wire.KindPodNamespace, resource.HubReceiver{Put: func(_ string, r resource.Resource) { made <- r }})
	h.complete()
	h.start(func(cfg *Config) { cfg.Account = user })
	h.object(h.configMap("settings"), wire.PodObject{Text: map[string]string{"k": "1"}})
	h.want(h.pod("web", reading("settings"), func(p *wire.Pod) { p.NamespaceUID = "uid-of-the-hubs" }))
	c.appears("web", "uid-web")
	if r := <-made; r.Key != c.namespace || r.UID != "uid-of-the-hubs" {
		t.Errorf("the hub is told of %s with UID %s", r.Key, r.UID)
	}
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}
	if _, err := c.kube.CoreV1().ConfigMaps(c.namespace).Create(t.Context(), theirs, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	err := h.sync.Source(spokeName, wire.KindPodNamespaceGone).Put(resource.Resource{Key: c.namespace, UID: "uid-of-the-hubs"})
	if err != nil {
		t.Fatal(err)
	}
	h.removePod("web")
	c.eventually("it says why it is there", func() bool { return c.kept() == "holds configmaps/theirs" })
	c.eventually("the right to look is taken back", func() bool {
		_, err := c.kube.RbacV1().RoleBindings(c.namespace).Get(t.Context(), roleContent, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})

	if err := c.kube.CoreV1().ConfigMaps(c.namespace).Delete(t.Context(), "theirs", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	again := []byte(`{"metadata":{"annotations":{"` + AnnotationKeptBecause + `":null}}}`)
	if _, err := c.kube.CoreV1().Namespaces().Patch(t.Context(), c.namespace, types.MergePatchType, again, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually("it is gone", func() bool { return c.kept() == "gone" })
}
