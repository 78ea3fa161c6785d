// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/api/podref"
	"github.com/spokelet/spokelet/api/wire"
)

// nameOf is the name of a pod's token for an audience.
func nameOf(p *corev1.Pod, audience string) string {
	for _, token := range podref.Tokens(&p.Spec) {
		if token.Audience == audience {
			return token.Name
		}
	}
	return ""
}

func TestATokenThatIsRefusedKeepsNoOtherFromBeingRenewed(t *testing.T) {
	inBubble(t, issuing(), func(r *rig) {
		m := (&mint{}).with(r)
		pod := podNamed("a", withToken, withVault)
		api, vault := nameOf(pod, ""), nameOf(pod, "vault")
		r.watch(spoke)
		r.create(pod)
		cut := r.asks(spoke)
		first := r.tokens(spoke, pod)
		if len(first) != 2 {
			t.Fatalf("the agent is sent %d tokens", len(first))
		}
		r.says(spoke, pod, wire.PodStatus{Generation: 1, Status: running()})
		m.refuses("vault")
		for life := range 3 {
			before := r.tokens(spoke, pod)
			time.Sleep(tokenLife)
			synctest.Wait()
			got := r.tokens(spoke, pod)
			if got[api] == "" || got[api] == before[api] {
				t.Errorf("life %d: the token that is granted is not renewed: %q", life, got[api])
			}
			if got[vault] != first[vault] {
				t.Errorf("life %d: the refused one is %q: no volume can be made without it", life, got[vault])
			}
		}
		if got := r.pod("a").Status; got.Phase != corev1.PodRunning || got.Reason != "" {
			t.Errorf("status: %s %s", got.Phase, got.Reason)
		}
		cut()
		if got := r.tokens(spoke, pod); got[api] == "" {
			t.Error("on a reconnect the good one is withheld for the other")
		}
		m.refuses("")
		defer r.asks(spoke)()
		time.Sleep(lastRetry + time.Second)
		synctest.Wait()
		if got := r.tokens(spoke, pod); got[vault] == first[vault] || got[vault] == "" {
			t.Errorf("it does not heal: %q", got[vault])
		}
	})
}

func TestAPodThatHasHadNoTokensWaitsForAllOfThem(t *testing.T) {
	inBubble(t, issuing(), func(r *rig) {
		m := (&mint{refused: "vault"}).with(r)
		pod := podNamed("a", withToken, withVault)
		r.watch(spoke)
		r.create(pod)
		defer r.asks(spoke)()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := r.tokens(spoke, pod); got != nil {
			t.Errorf("the agent is sent %d tokens of two", len(got))
		}
		if status := r.pod("a").Status; status.Reason != ReasonTokenNotIssued || !strings.HasPrefix(status.Message, `the hub's token of service account "builder" for "vault": `) {
			t.Errorf("status: %s %s", status.Reason, status.Message)
		}
		if len(m.made) != 1 {
			t.Errorf("the one that is granted was made %d times", len(m.made))
		}
		m.refuses("")
		time.Sleep(lastRetry + time.Second)
		synctest.Wait()
		if got := r.tokens(spoke, pod); len(got) != 2 {
			t.Errorf("it does not heal: %d tokens", len(got))
		}
	})
}

func TestWhyThereAreNoTokensIsToldOfEach(t *testing.T) {
	inBubble(t, issuing(), func(r *rig) {
		(&mint{failure: errors.New("boom")}).with(r)
		r.watch(spoke)
		r.create(podNamed("a", withToken, withVault))
		defer r.asks(spoke)()
		const api, vault = `the hub's token of service account "builder": boom`, `the hub's token of service account "builder" for "vault": boom`
		if got := r.pod("a").Status.Message; got != api+"; "+vault && got != vault+"; "+api {
			t.Errorf("message: %s", got)
		}
	})
}
