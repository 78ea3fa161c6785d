// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/hub/registration/token"
	"github.com/spokelet/spokelet/internal/testing/livetest"
)

func TestLiveCacheHoldsTokensOfHubNamespaceOnly(t *testing.T) {
	config := livetest.Config(t, "SPOKELET_HUB_KUBECONFIG")
	kube := kubernetes.NewForConfigOrDie(config)
	hub, other := livetest.Namespace(t, kube, "tokens-"), livetest.Namespace(t, kube, "tokens-")
	secrets, err := cache.New(config, cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: TokensInCache(hub)}})
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t)
	if err := h.watchTokens(secrets); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- secrets.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	made := map[string]token.Token{}
	create := func(namespace, cluster string, kind corev1.SecretType) {
		t.Helper()
		made[cluster] = token.New()
		record := token.Record{Hash: made[cluster].Hash(), Expires: h.now.Add(time.Hour)}
		_, err := kube.CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: token.SecretName(cluster)}, Type: kind, Data: record.Encode(),
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	create(other, "elsewhere", token.SecretType)
	create(hub, "opaque", corev1.SecretTypeOpaque)
	create(hub, store1, token.SecretType)
	holders := h.enroller.limiter.tokenLimiter
	livetest.Eventually(t, "who holds the token is known", func() bool { return holders.allow(store1, made[store1].Reveal()) })
	var list corev1.SecretList
	if err := secrets.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, secret := range list.Items {
		names = append(names, secret.Namespace+"/"+secret.Name)
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{hub + "/" + token.SecretName(store1)}, names); diff != "" {
		t.Errorf("secrets in the hub's memory (-want +got):\n%s", diff)
	}
	if err := kube.CoreV1().Secrets(hub).Delete(t.Context(), token.SecretName(store1), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	livetest.Eventually(t, "nobody holds the token that is gone", func() bool {
		holders.mu.Lock()
		defer holders.mu.Unlock()
		return len(holders.tokens) == 0
	})
}
