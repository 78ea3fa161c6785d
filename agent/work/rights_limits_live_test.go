// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"net/http"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// worker is a user with rights that a test gives and takes.
type worker struct {
	c    *testCluster
	role *rbacv1.ClusterRole
	user string
}

func rights(groups, resources string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: strings.Split(groups, ","), Resources: strings.Split(resources, ","), Verbs: []string{"*"}}
}

const anchorGroups = "multicluster.x-k8s.io,work.open-cluster-management.io"

func (c *testCluster) worker() *worker {
	c.t.Helper()
	w := &worker{c: c, user: c.name("worker"), role: &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: c.name("worker")}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: w.role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: w.role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: w.user}},
	}
	rbac := c.kube.RbacV1()
	if _, err := rbac.ClusterRoles().Create(c.t.Context(), w.role, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	if _, err := rbac.ClusterRoleBindings().Create(c.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = rbac.ClusterRoleBindings().Delete(contextOf(c.t), w.role.Name, metav1.DeleteOptions{})
		_ = rbac.ClusterRoles().Delete(contextOf(c.t), w.role.Name, metav1.DeleteOptions{})
	})
	return w
}

// may replaces the rights and waits until the API server acts by them: probe is
// then allowed, or not.
func (w *worker) may(probe string, allowed bool, rules ...rbacv1.PolicyRule) {
	w.c.t.Helper()
	w.role.Rules, w.role.ResourceVersion = rules, ""
	if _, err := w.c.kube.RbacV1().ClusterRoles().Update(w.c.t.Context(), w.role, metav1.UpdateOptions{}); err != nil {
		w.c.t.Fatal(err)
	}
	w.c.untilAllowed(w.user, probe, allowed)
}

func TestRightsRevokedWhileRunning(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	user := c.worker()
	anchors, objects, secrets := rights(anchorGroups, "*"), rights("", "configmaps"), rights("", "secrets")
	user.may("secrets", true, anchors, objects, secrets)
	c.startForOCM(h, func(cfg *Config) { cfg.Impersonate = user.user })
	secret := func(value string) string {
		return `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"` + c.namespace + `"},"stringData":{"k":"` + value + `"}}`
	}
	work := c.name("w")
	h.applies(c, work, 1, c.configMap("cm", "k", "1"), secret("1"))

	user.may("configmaps", false, anchors, secrets)
	h.ask(work, 2, wire.Work{}, c.configMap("cm", "k", "2"), secret("2"))
	h.waitForFailure(c, work, 2, 0, workv1.AppliedManifestFailed, "forbidden")
	if got := c.get("cm").Data["k"]; got != "1" {
		t.Errorf("without rights it became %q", got)
	}
	user.may("configmaps", true, anchors, objects, secrets)
	h.says(c, work, 2, conditionApplied, metav1.ConditionTrue)

	// Without its anchor nothing of a work can be recorded, so nothing is begun.
	user.may("appliedmanifestworks.work.open-cluster-management.io", false, objects, secrets)
	h.ask(work, 3, wire.Work{}, c.configMap("cm", "k", "3"), secret("3"), c.configMap("more"))
	s := h.says(c, work, 3, conditionApplied, metav1.ConditionFalse)
	if got := message(s, 2); !strings.Contains(got, "appliedmanifestworks") || !strings.Contains(got, "forbidden") {
		t.Errorf("message = %q", got)
	}
	if c.get("more") != nil {
		t.Error("an object was made that is listed nowhere")
	}
	user.may("appliedmanifestworks.work.open-cluster-management.io", true, anchors, objects, secrets)
	h.says(c, work, 3, conditionApplied, metav1.ConditionTrue)
	if err := c.kube.CoreV1().ConfigMaps(c.namespace).Delete(t.Context(), "more", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually("drift is repaired again", func() bool { return c.get("more") != nil })

	user.may("configmaps", false, anchors, secrets)
	h.ask(work, 4, wire.Work{Deleting: true})
	h.says(c, work, 4, conditionDeleting, metav1.ConditionTrue)
	c.eventually("what may be deleted is", func() bool {
		_, err := c.kube.CoreV1().Secrets(c.namespace).Get(t.Context(), "s", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if h.said(work).Finalized || c.applied(hubHashOne+"-"+work) == nil {
		t.Error("a work is finalized whose objects nobody could delete")
	}
	user.may("configmaps", true, anchors, objects, secrets)
	c.eventually("finalized", func() bool { return h.said(work).Finalized })
	if c.get("cm") != nil || c.get("more") != nil {
		t.Error("something is left behind")
	}
}

// What is not listed would be forgotten with the next restart. However often the
// list cannot be written, nothing that it lacks is made.
func TestUnlistedObjectIsNotCreated(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	f := c.front()
	c.startForOCM(h, f.through)
	work := c.name("w")
	h.applies(c, work, 1, c.configMap("one"))
	c.eventually("what was applied is recorded", func() bool {
		a := c.applied(hubHashOne + "-" + work)
		return a != nil && len(a.Status.AppliedResources) == 1
	})
	tries := make(chan struct{}, 64)
	refuse := with(http.StatusInternalServerError, "text/plain", "boom")
	f.answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet || !strings.Contains(r.URL.Path, "/appliedmanifestworks/") {
			return false
		}
		select {
		case tries <- struct{}{}:
		default:
		}
		return refuse(w, r)
	})
	h.ask(work, 2, wire.Work{}, c.configMap("one"), c.configMap("two"))
	h.says(c, work, 2, conditionApplied, metav1.ConditionFalse)
	for range 4 {
		select {
		case <-tries:
		case <-time.After(livetest.Patience):
			t.Fatal("it is not tried again")
		}
		if c.get("two") != nil {
			t.Fatal("an object was made that is listed nowhere")
		}
	}
	f.answer(nil)
	h.says(c, work, 2, conditionApplied, metav1.ConditionTrue)
}
