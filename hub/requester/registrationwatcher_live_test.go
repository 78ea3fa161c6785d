// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package requester

import (
	"context"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// newGrantedClients is a client with the rights that the hub's chart gives the hub, on one name.
func newGrantedClients(t *testing.T, name string) (admin, hub kubernetes.Interface) {
	t.Helper()
	cfg := livetest.Config(t, "SPOKELET_HUB_KUBECONFIG")
	admin, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Name: name}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{admissionregistrationv1.GroupName}, Resources: []string{"mutatingwebhookconfigurations"},
		ResourceNames: []string{name}, Verbs: []string{"get", "list", "watch", "patch"},
	}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = admin.RbacV1().ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{})
		_ = admin.RbacV1().ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{})
		_ = admin.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, name, metav1.DeleteOptions{})
	})
	cfg = rest.CopyConfig(cfg)
	cfg.Impersonate.UserName = name
	if hub, err = kubernetes.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	return admin, hub
}

func TestLiveRegistrationWatcherTracksChanges(t *testing.T) {
	name := "authors-" + rand.String(8)
	admin, hub := newGrantedClients(t, name)
	api := admin.AdmissionregistrationV1().MutatingWebhookConfigurations()
	create := func() string {
		t.Helper()
		is, err := api.Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			// It has no rules, so that nothing is asked.
			Webhooks: []admissionregistrationv1.MutatingWebhook{{
				Name: "authors.spokelet.io", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone),
				ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1")},
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return string(is.UID)
	}
	var r Registration
	f := NewRegistrationWatcher(hub, name, &r, logr.Discard())
	livetest.Eventually(t, "it may be read", func() bool { return f.Read(t.Context()) == nil })
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f.Start(ctx); err != nil {
			t.Errorf("it ended: %v", err)
		}
	})
	defer running.Wait()
	defer cancel()

	first := create()
	livetest.Eventually(t, "it is in force", func() bool { return r.UID() == first })
	if err := api.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	livetest.Eventually(t, "none is in force", func() bool { return r.UID() == "" })
	second := create()
	livetest.Eventually(t, "another is in force", func() bool { return r.UID() == second && second != first })
}
