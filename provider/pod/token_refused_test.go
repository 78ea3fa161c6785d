// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/podrefs"
)

// nameOf is the name of a pod's token for an audience.
func nameOf(p *corev1.Pod, audience string) string {
	for _, token := range podrefs.Tokens(&p.Spec) {
		if token.Audience == audience {
			return token.Name
		}
	}
	return ""
}

func TestRefusedTokenDoesNotStopOtherRenewals(t *testing.T) {
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
		if got := r.warnings(pod); len(got) != 1 {
			t.Errorf("events: %v", got)
		}
		cut()
		if got := r.tokens(spoke, pod); got[api] == "" {
			t.Error("on a reconnect the good one is withheld for the other")
		}
		m.refuses("")
		defer r.asks(spoke)()
		time.Sleep(maxRetry + time.Second)
		synctest.Wait()
		if got := r.tokens(spoke, pod); got[vault] == first[vault] || got[vault] == "" {
			t.Errorf("it does not heal: %q", got[vault])
		}
	})
}

// warnings are the messages of the events of a pod that are about its tokens.
func (r *rig) warnings(pod *corev1.Pod) (messages []string) {
	r.t.Helper()
	list, err := r.client.CoreV1().Events(pod.Namespace).List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.InvolvedObject.UID == pod.UID && e.Reason == ReasonTokenNotIssued && e.Type == corev1.EventTypeWarning {
			messages = append(messages, e.Message)
		}
	}
	return messages
}

// The agent has all of the tokens from the process before, and keeps what it is not
// sent.
func TestRestartedHubRenewsTokensOfRunningPod(t *testing.T) {
	inBubble(t, issuing(), func(r *rig) {
		m := (&mint{refused: "vault"}).with(r)
		pod := podNamed("a", withToken, withVault, inCluster)
		api, vault := nameOf(pod, ""), nameOf(pod, "vault")
		r.watch(spoke)
		r.create(pod)
		defer r.asks(spoke)()
		for life := range 3 {
			before := r.tokens(spoke, pod)
			if len(before) != 1 || before[api] == "" {
				t.Fatalf("life %d: the agent is sent %d tokens, want the one that is granted", life, len(before))
			}
			time.Sleep(tokenLife)
			synctest.Wait()
			if got := r.tokens(spoke, pod); got[api] == before[api] {
				t.Errorf("life %d: it is not renewed", life)
			}
		}
		asked := len(m.times) - len(m.made)
		if most := int(3*tokenLife/maxRetry) + 15; asked < 100 || asked > most {
			t.Errorf("the refused one was asked for %d times, want once in each %s", asked, maxRetry)
		}
		const why = `the hub's token of service account "builder" for "vault": tokenrequests.authentication.k8s.io is forbidden: not for vault`
		if diff := cmp.Diff([]string{why}, r.warnings(pod)); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if n := r.requests()["create events"]; n != 1 {
			t.Errorf("%d attempts at an event, want one", n)
		}
		if got := r.pod("a").Status; got.Phase != corev1.PodRunning || got.Reason != "" {
			t.Errorf("status: %s %s", got.Phase, got.Reason)
		}
		m.refuses("")
		time.Sleep(maxRetry + time.Second)
		synctest.Wait()
		if got := r.tokens(spoke, pod); got[vault] == "" || got[api] == "" {
			t.Errorf("it does not heal: %d tokens", len(got))
		}
	})
}

func TestTokenFailureKeepsStatusOfRunningPod(t *testing.T) {
	inBubble(t, issuing(), func(r *rig) {
		(&mint{refused: "vault"}).with(r)
		pod := podNamed("a", withToken, withVault)
		r.watch(spoke)
		r.create(pod)
		defer r.asks(spoke)()
		if got := r.pod("a").Status.Reason; got != ReasonTokenNotIssued || r.tokens(spoke, pod) != nil {
			t.Fatalf("before the agent has said anything: reason %q, tokens %v", got, r.tokens(spoke, pod))
		}
		r.says(spoke, pod, wire.PodStatus{Generation: 1, Status: running()})
		if got := r.pod("a").Status; got.Phase != corev1.PodRunning || got.Reason != "" {
			t.Errorf("status: %s %s", got.Phase, got.Reason)
		}
		if got := r.tokens(spoke, pod); len(got) != 1 || got[nameOf(pod, "")] == "" {
			t.Errorf("the agent is sent %d tokens, want the one that is granted", len(got))
		}
	})
}

func TestTokenFailureEventIsRetried(t *testing.T) {
	inBubble(t, issuing(), func(r *rig) {
		m := (&mint{refused: "vault"}).with(r)
		pod := podNamed("a", withToken, withVault, inCluster)
		var away atomic.Bool
		away.Store(true)
		r.client.PrependReactor("create", "events", func(k8stesting.Action) (bool, runtime.Object, error) {
			return away.Load(), nil, errors.New("the API server is away")
		})
		r.watch(spoke)
		r.create(pod)
		defer r.asks(spoke)()
		time.Sleep(time.Hour)
		if got := r.warnings(pod); len(got) != 0 {
			t.Fatalf("events: %v", got)
		}
		away.Store(false)
		pass := func() {
			time.Sleep(maxRetry + time.Second)
			synctest.Wait()
		}
		pass()
		if got := r.warnings(pod); len(got) != 1 {
			t.Errorf("events when they can be written: %v", got)
		}
		m.refuses("")
		pass()
		m.refuses("vault")
		r.requests()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := r.requests()["create events"]; n != 1 {
			t.Errorf("%d attempts at an event after it has healed and is refused again, want one", n)
		}
	})
}

func TestNewPodWaitsForAllTokens(t *testing.T) {
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
		time.Sleep(maxRetry + time.Second)
		synctest.Wait()
		if got := r.tokens(spoke, pod); len(got) != 2 {
			t.Errorf("it does not heal: %d tokens", len(got))
		}
	})
}

func TestEveryTokenFailureIsReported(t *testing.T) {
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
