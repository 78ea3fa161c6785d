// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/podrefs"
	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// account makes a service account on the hub, which goes with the test.
func (h *liveHub) account(name string) {
	h.t.Helper()
	accounts := h.api.CoreV1().ServiceAccounts(metav1.NamespaceDefault)
	if _, err := accounts.Create(h.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = accounts.Delete(context.WithoutCancel(h.t.Context()), name, metav1.DeleteOptions{}) })
}

// as has a pod run as an account, whose token the hub's admission has it ask for.
func as(account string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.ServiceAccountName, p.Spec.AutomountServiceAccountToken = account, nil
	}
}

// review has the hub's API server say whose a token is.
func (h *liveHub) review(token string) authenticationv1.TokenReviewStatus {
	h.t.Helper()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	review, err := h.api.AuthenticationV1().TokenReviews().Create(h.t.Context(), review, metav1.CreateOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	return review.Status
}

func issueTokens(c *Config) { c.Tokens = TokenPolicy{Issue: true, Namespaces: []string{"default"}} }

func TestLiveTokenIsValidWhileItsPodExists(t *testing.T) {
	h := newLiveHub(t)
	h.account(h.node)
	p, a := h.start(nil, issueTokens), newAgent(t, wire.KindPodToken)
	defer p.stop()
	defer a.connect(p.Controller, p.sync, h.node)()
	other := newAgent(t, wire.KindPodToken)
	defer p.Watch(t.Context(), h.node+"-2")()
	defer other.connect(p.Controller, p.sync, h.node+"-2")()
	pod := h.pod("", as(h.node))
	key := wire.PodTokenKey{PodKey: keyOf(pod), UID: string(pod.UID)}.String()
	began := time.Now()
	a.await("the token and the authority are there", func() bool {
		return len(a.tokens[key].Tokens) == 1 && a.objects["configmap/default/"+podrefs.RootCA].Text["ca.crt"] != ""
	})
	t.Logf("the agent has the token after %s", time.Since(began))
	token := a.tokens[key].Tokens[podrefs.Tokens(&pod.Spec)[0].Name]
	got := h.review(token)
	if !got.Authenticated || got.User.Username != "system:serviceaccount:default:"+h.node || got.User.Extra["authentication.kubernetes.io/pod-uid"][0] != string(pod.UID) {
		t.Errorf("the hub takes the token for: %+v", got)
	}
	other.mu.Lock()
	if len(other.tokens)+len(other.pods) != 0 {
		t.Errorf("another cluster has tokens of %v", other)
	}
	other.mu.Unlock()

	if err := h.api.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	a.await("the token is withdrawn", func() bool { return len(a.tokens) == 0 })
	// The API server remembers for some seconds what it found.
	livetest.Eventually(t, "the hub refuses the token of a pod that is gone", func() bool { return !h.review(token).Authenticated })
}

func TestLivePodWithoutServiceAccountRecovers(t *testing.T) {
	h := newLiveHub(t)
	h.account(h.node)
	pod := h.pod("", as(h.node))
	if err := h.api.CoreV1().ServiceAccounts(pod.Namespace).Delete(t.Context(), h.node, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p, a := h.start(nil, issueTokens), newAgent(t, wire.KindPodToken)
	defer p.stop()
	defer a.connect(p.Controller, p.sync, h.node)()
	now := h.await("refused", pod, func(p *corev1.Pod) bool { return p.Status.Reason == ReasonTokenNotIssued })
	t.Logf("it says: %s", now.Status.Message)
	h.account(h.node)
	a.await("it heals", func() bool { return len(a.tokens) == 1 })
}
