// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"

	"github.com/go-logr/logr/testr"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// liveAccount is the account of the live test, its role and its binding.
const liveAccount = "spokelet-test-figures"

// makeLiveAccount makes an account with the rights that the chart gives, for as
// long as the test runs.
func makeLiveAccount(t *testing.T, client kubernetes.Interface) typedcorev1.ServiceAccountInterface {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	accounts, rbac := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault), client.RbacV1()
	name := metav1.ObjectMeta{Name: liveAccount}
	_, account := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: name}, metav1.CreateOptions{})
	_, role := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes/metrics", "nodes/stats"}, Verbs: []string{"get"}},
	}}, metav1.CreateOptions{})
	_, binding := rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: name,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: liveAccount},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: liveAccount}},
	}, metav1.CreateOptions{})
	t.Cleanup(func() {
		for _, remove := range []func(context.Context, string, metav1.DeleteOptions) error{
			rbac.ClusterRoleBindings().Delete, rbac.ClusterRoles().Delete, accounts.Delete,
		} {
			if err := remove(ctx, liveAccount, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
	if err := errors.Join(account, role, binding); err != nil {
		t.Fatal(err)
	}
	// The API server learns of new rights a moment after they were written, and a
	// kubelet remembers for half a minute what it was told before.
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               "system:serviceaccount:" + metav1.NamespaceDefault + ":" + liveAccount,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "nodes", Subresource: "metrics"},
	}}
	livetest.Eventually(t, "the account has its rights", func() bool {
		got, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err == nil && got.Status.Allowed
	})
	return accounts
}

// TestWatcherSummarizesRealSpoke asks a real spoke's API server and kubelets. Those of
// the development clusters sign their own certificates.
func TestWatcherSummarizesRealSpoke(t *testing.T) {
	own := livetest.Config(t, "SPOKELET_SPOKE_KUBECONFIGS")
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		t.Fatal(err)
	}
	summaries := make(chan []byte, 16)
	w, err := NewWatcher(WatcherConfig{
		Client: client, Version: discovery.ToServerVersionInterfaceWithContext(client.Discovery()), Logger: testr.New(t),
		Publisher: PublisherFunc(func(b []byte) { summaries <- b }),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Errorf("Run(): %v", err)
		}
	})
	defer running.Wait()
	defer cancel()
	s, err := wire.DecodeNodeSummary(<-summaries)
	if err != nil || s.Nodes.Ready == 0 || s.KubernetesVersion == "" || s.Capacity["cpu"] == "" {
		t.Fatalf("summary: %+v, %v", s, err)
	}
	kubelets := newKubelets(t, KubeletConfig{REST: own, Tokens: makeLiveAccount(t, client), Account: liveAccount, InsecureTLS: true})
	scraper, err := NewScraper(ScraperConfig{Name: "spoke1", Nodes: w, Transport: kubelets, Logger: testr.NewWithOptions(t, testr.Options{Verbosity: 1})})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/metrics/resource", "/stats/summary"} {
		code, body := scrape(t, scraper, path)
		t.Logf("%s: %d\n%s", path, code, body)
		if code != http.StatusOK {
			t.Errorf("%s: got %d", path, code)
		}
	}
}
