// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/podrefs"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const tokenLife = 3607 * time.Second

// withToken has a pod ask for a token, as admission does.
func withToken(p *corev1.Pod) {
	p.Spec.ServiceAccountName = "builder"
	p.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access-1", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(tokenLife / time.Second))}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: podrefs.RootCA}}},
		},
	}}}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "kube-api-access-1", MountPath: podrefs.TokenPath}}
}

// withVault has it ask for one of another audience, too.
func withVault(p *corev1.Pod) {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "vault", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t", Audience: "vault", ExpirationSeconds: new(int64(600))}}},
	}}})
}

// mint issues tokens as an API server does, "pod builder audience 1" and so on.
type mint struct {
	mu sync.Mutex
	// failure is what it answers with instead.
	failure error
	// refused is the audience for which it makes none, by a policy.
	refused string
	// made are the requests that it granted, times those of all.
	made  []authenticationv1.TokenRequestSpec
	times []time.Time
}

func (m *mint) breaks(failure error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failure = failure
}

func (m *mint) refuses(audience string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refused = audience
}

func (m *mint) react(a k8stesting.Action) (bool, runtime.Object, error) {
	create, ok := a.(k8stesting.CreateActionImpl)
	if !ok || a.GetSubresource() != "token" {
		return false, nil, nil
	}
	request, ok := create.GetObject().(*authenticationv1.TokenRequest)
	if !ok {
		return true, nil, errors.New("no request for a token")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.times = append(m.times, time.Now())
	if m.failure != nil {
		return true, nil, m.failure
	}
	if m.refused != "" && slices.Contains(request.Spec.Audiences, m.refused) {
		return true, nil, apierrors.NewForbidden(authenticationv1.Resource("tokenrequests"), "", errors.New("not for "+m.refused))
	}
	m.made = append(m.made, request.Spec)
	answer := request.DeepCopy()
	answer.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(time.Duration(*request.Spec.ExpirationSeconds) * time.Second))
	answer.Status.Token = fmt.Sprintf("%s %s %v %d", request.Spec.BoundObjectRef.Name, create.Name, request.Spec.Audiences, len(m.made))
	return true, answer, nil
}

func (m *mint) with(r *rig) *mint {
	r.client.PrependReactor("create", "serviceaccounts", m.react)
	return m
}

// asks is a stream of an agent that asks for tokens.
func (r *rig) asks(node string) (cut func()) {
	done, ceased := r.connect(node), r.startIssuing(node)
	synctest.Wait()
	return func() {
		ceased()
		done()
	}
}

// tokens returns what a cluster is sent for a pod, nil when nothing.
func (r *rig) tokens(cluster string, pod *corev1.Pod) map[string]string {
	r.t.Helper()
	key := wire.PodTokenKey{PodKey: keyOf(pod), UID: string(pod.UID)}.String()
	told, published := r.hub.Source(cluster, wire.KindPodToken).Ref(key)
	sent, ok := r.Controller.tokens.loadTokens(cluster, key)
	if !ok || !published {
		return nil
	}
	if diff := cmp.Diff(resource.RefOf(sent), told); diff != "" {
		r.t.Errorf("the agent is not told of these tokens (-want +got):\n%s", diff)
	}
	t, err := wire.DecodePodToken(sent.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return t.Tokens
}

// one is the only token of a pod.
func (r *rig) one(pod *corev1.Pod) string {
	r.t.Helper()
	for _, token := range r.tokens(spoke, pod) {
		return token
	}
	return ""
}

func issuing() Config {
	return Config{Tokens: TokenPolicy{Issue: true, Namespaces: []string{"default"}}}
}

func TestTokenPolicyAllowsNamespaces(t *testing.T) {
	cases := map[string]struct {
		reason    string
		policy    TokenPolicy
		namespace string
		want      bool
	}{
		"nobody's":                 {reason: "the hub did not consent", policy: TokenPolicy{Namespaces: []string{"shop"}}, namespace: "shop"},
		"any":                      {reason: "no namespace was named", policy: TokenPolicy{Issue: true}, namespace: "shop"},
		"one that is named":        {reason: "that is the limit", policy: TokenPolicy{Issue: true, Namespaces: []string{"shop"}}, namespace: "shop", want: true},
		"one that is not named":    {reason: "that is the limit", policy: TokenPolicy{Issue: true, Namespaces: []string{"shop"}}, namespace: "till"},
		"one of the system, named": {reason: "its owner said so", policy: TokenPolicy{Issue: true, Namespaces: []string{"kube-system"}}, namespace: "kube-system", want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.policy.allows(tc.namespace); got != tc.want {
				t.Errorf("%s: allows(%q) is %t", tc.reason, tc.namespace, got)
			}
		})
	}
}

func TestTokenRequestMatchesThePod(t *testing.T) {
	inBubble(t, issuing(), func(r *rig) {
		m := (&mint{}).with(r)
		pod := podNamed("a", withToken, withVault)
		r.watch(spoke)
		r.create(pod)
		defer r.asks(spoke)()
		bound := &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "a", UID: pod.UID}
		want := map[string]authenticationv1.TokenRequestSpec{
			"[]":      {BoundObjectRef: bound, ExpirationSeconds: new(int64(3607))},
			"[vault]": {BoundObjectRef: bound, ExpirationSeconds: new(int64(600)), Audiences: []string{"vault"}},
		}
		got := map[string]authenticationv1.TokenRequestSpec{}
		for _, spec := range m.made {
			got[fmt.Sprint(spec.Audiences)] = spec
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		if got := r.tokens(spoke, pod); len(got) != 2 {
			t.Errorf("the agent is sent %d tokens", len(got))
		}
		if !r.sends("configmap/default/" + podrefs.RootCA) {
			t.Error("the hub's authority does not come along")
		}
	})
}

// sends reports whether an object is sent to the cluster.
func (r *rig) sends(key string) bool {
	_, ok := r.objects.Load(spoke, key)
	return ok
}

func TestTokensAreNotSentToAgentsThatDoNotAsk(t *testing.T) {
	inBubble(t, issuing(), func(r *rig) {
		m := (&mint{}).with(r)
		r.watch(spoke)
		defer r.connect(spoke)()
		time.Sleep(time.Hour)
		if len(m.times) != 0 || len(r.published(spoke, wire.KindPodToken)) != 0 {
			t.Errorf("%d tokens were made, and published: %v", len(m.times), r.published(spoke, wire.KindPodToken))
		}
	}, podNamed("a", withToken))
}

func TestPodsOfOtherNamespacesGetNoTokens(t *testing.T) {
	config := Config{Tokens: TokenPolicy{Issue: true, Namespaces: []string{"shop"}}}
	inBubble(t, config, func(r *rig) {
		m := (&mint{}).with(r)
		r.watch(spoke)
		defer r.asks(spoke)()
		sent, ok := r.loadPod(spoke, "default/a")
		if p, err := wire.DecodePod("default/a", sent.Body); !ok || err != nil || p.Issued {
			t.Errorf("the agent hears that there are tokens: %v, %v", p.Issued, err)
		}
		if len(m.times) != 0 {
			t.Errorf("%d tokens were asked for", len(m.times))
		}
	}, podNamed("a", withToken))
}

func TestTokenIsRenewedAfterFourFifthsOfItsLife(t *testing.T) {
	inBubble(t, issuing(), func(r *rig) {
		m := (&mint{}).with(r)
		pod := podNamed("a", withToken)
		r.watch(spoke)
		r.create(pod)
		defer r.asks(spoke)()
		time.Sleep(3 * tokenLife)
		synctest.Wait()
		if got := r.one(pod); len(m.times) != 4 || got != "a builder [] 4" {
			t.Fatalf("%d tokens were made in three lives of one, and the agent has %q", len(m.times), got)
		}
		for i := range 3 {
			if after := m.times[i+1].Sub(m.times[i]); after > tokenLife/5*4 || after < tokenLife/4*3 {
				t.Errorf("token %d is replaced after %s of %s", i+1, after, tokenLife)
			}
		}
	})
}

func TestRenewalTime(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		reason           string
		expires, life    time.Duration
		earliest, latest time.Duration
	}{
		"an hour":       {reason: "as by a kubelet", expires: time.Hour, life: time.Hour, earliest: 47 * time.Minute, latest: 48 * time.Minute},
		"a month":       {reason: "as by a kubelet: it may have leaked", expires: 720 * time.Hour, life: 720 * time.Hour, earliest: 23*time.Hour + 31*time.Minute, latest: 24 * time.Hour},
		"already over":  {reason: "another clock must not have it asked for in a loop", expires: -time.Hour, life: time.Hour, earliest: minRenewal, latest: minRenewal},
		"a life of nil": {reason: "an API server may say anything", life: -time.Hour, earliest: minRenewal, latest: time.Hour},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for range 100 {
				got := renewalTime(now, now.Add(tc.expires), tc.life).Sub(now)
				if got < tc.earliest || got > tc.latest {
					t.Fatalf("%s: renewed after %s, want %s to %s", tc.reason, got, tc.earliest, tc.latest)
				}
			}
		})
	}
}

func TestPodWithoutServiceAccountRecovers(t *testing.T) {
	inBubble(t, issuing(), func(r *rig) {
		missing := apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, "builder")
		m := (&mint{failure: missing}).with(r)
		pod := podNamed("a", withToken)
		r.watch(spoke)
		r.create(pod)
		defer r.asks(spoke)()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		status := r.pod("a").Status
		if status.Phase != corev1.PodPending || status.Reason != ReasonTokenNotIssued ||
			status.Message != `the hub's token of service account "builder": serviceaccounts "builder" not found` {
			t.Errorf("status: %s %s %s", status.Phase, status.Reason, status.Message)
		}
		tries := len(m.times)
		if tries < 15 || tries > 25 || m.times[tries-1].Sub(m.times[tries-2]) < maxRetry {
			t.Errorf("%d attempts in ten minutes, the last %s apart", tries, m.times[tries-1].Sub(m.times[tries-2]))
		}
		if n := r.requests()["patch pods"]; n != 1 {
			t.Errorf("%d statuses were written, want one", n)
		}
		if r.tokens(spoke, pod) != nil {
			t.Error("something was sent to the agent")
		}
		m.breaks(nil)
		time.Sleep(maxRetry + time.Second)
		synctest.Wait()
		if r.one(pod) == "" {
			t.Error("it does not heal")
		}
		r.says(spoke, pod, wire.PodStatus{Generation: 1, Status: running()})
		if got := r.pod("a").Status; got.Phase != corev1.PodRunning || got.Reason != "" {
			t.Errorf("status: %s %s", got.Phase, got.Reason)
		}
	})
}

func TestRunningPodKeepsStatusWhenATokenIsLate(t *testing.T) {
	inBubble(t, issuing(), func(r *rig) {
		m := (&mint{}).with(r)
		pod := podNamed("a", withToken)
		r.watch(spoke)
		r.create(pod)
		defer r.asks(spoke)()
		r.says(spoke, pod, wire.PodStatus{Generation: 1, Status: running()})
		m.breaks(errors.New("the API server is away"))
		time.Sleep(tokenLife - time.Minute)
		synctest.Wait()
		if got := r.pod("a").Status; got.Phase != corev1.PodRunning || got.Reason != "" {
			t.Errorf("status: %s %s", got.Phase, got.Reason)
		}
		if len(m.times) < 5 || r.one(pod) != "a builder [] 1" {
			t.Errorf("after %d attempts the agent has %q", len(m.times), r.one(pod))
		}
		if got := r.warnings(pod); len(got) != 0 {
			t.Errorf("of what comes by itself an event is made: %v", got)
		}
	})
}

func TestTokensAreWithdrawnWithTheirPod(t *testing.T) {
	cases := map[string]struct {
		reason string
		end    func(*rig, *corev1.Pod)
	}{
		"deleted": {reason: "the API server takes its tokens no more", end: func(r *rig, pod *corev1.Pod) {
			err := r.client.CoreV1().Pods("default").Delete(r.t.Context(), pod.Name, metav1.DeleteOptions{})
			if err != nil {
				r.t.Fatal(err)
			}
		}},
		"succeeded": {reason: "nobody is left to use them", end: func(r *rig, pod *corev1.Pod) {
			r.says(spoke, pod, wire.PodStatus{Generation: 1, Status: succeeded()})
		}},
		"forgotten with its cluster": {reason: "whoever comes under the name is another", end: func(r *rig, _ *corev1.Pod) { r.RemoveCluster(spoke) }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, issuing(), func(r *rig) {
				m := (&mint{}).with(r)
				pod := podNamed("a", withToken)
				r.watch(spoke)
				r.create(pod)
				defer r.asks(spoke)()
				if r.one(pod) == "" {
					t.Fatal("there was no token")
				}
				tc.end(r, pod)
				synctest.Wait()
				if keys := r.published(spoke, wire.KindPodToken); len(keys) != 0 || r.tokens(spoke, pod) != nil {
					t.Errorf("%s: still published: %v", tc.reason, keys)
				}
				time.Sleep(24 * time.Hour)
				synctest.Wait()
				if len(m.times) != 1 {
					t.Errorf("%s: %d tokens were asked for after the end", tc.reason, len(m.times)-1)
				}
			})
		})
	}
}

func TestReplacedPodGetsItsOwnTokens(t *testing.T) {
	inBubble(t, issuing(), func(r *rig) {
		(&mint{}).with(r)
		first := podNamed("a", withToken)
		second := podNamed("a", withToken, func(p *corev1.Pod) { p.UID = "another" })
		r.watch(spoke)
		r.create(first)
		defer r.asks(spoke)()
		if err := r.client.CoreV1().Pods("default").Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.create(second)
		if r.tokens(spoke, first) != nil || r.one(second) != "a builder [] 2" {
			t.Errorf("first %v, second %v", r.tokens(spoke, first), r.tokens(spoke, second))
		}
	})
}

func TestReconnectRenewsOnlyDueTokens(t *testing.T) {
	inBubble(t, issuing(), func(r *rig) {
		m := (&mint{}).with(r)
		pod := podNamed("a", withToken)
		r.watch(spoke)
		r.create(pod)
		r.asks(spoke)()
		r.asks(spoke)()
		if len(m.made) != 1 || r.one(pod) != "a builder [] 1" {
			t.Errorf("%d tokens were made for one pod", len(m.made))
		}
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		if len(m.made) != 1 {
			t.Errorf("%d tokens were made while nobody asked", len(m.made)-1)
		}
		if r.one(pod) != "" {
			t.Error("a token that has expired would be sent")
		}
		defer r.asks(spoke)()
		if r.one(pod) != "a builder [] 2" {
			t.Errorf("the agent has %q", r.one(pod))
		}
		time.Sleep(tokenLife)
		synctest.Wait()
		if len(m.made) != 3 {
			t.Errorf("%d tokens were made, want 3: it is renewed again", len(m.made))
		}
	})
}

func TestTokenIsSentToTheClusterOfItsPodOnly(t *testing.T) {
	inBubble(t, issuing(), func(r *rig) {
		(&mint{}).with(r)
		mine, theirs := podNamed("a", withToken), podNamed("b", withToken, onNode("spoke2"))
		r.watch(spoke)
		r.watch("spoke2")
		r.create(mine)
		r.create(theirs)
		defer r.asks(spoke)()
		defer r.asks("spoke2")()
		if r.tokens(spoke, mine) == nil || r.tokens("spoke2", theirs) == nil {
			t.Fatal("there are no tokens")
		}
		for key, cluster := range map[string]string{"default/b/uid-of-b": spoke, "default/a/uid-of-a": "spoke2", "default/a/another": spoke, "default/a": spoke, "": spoke} {
			if _, ok := r.Controller.tokens.loadTokens(cluster, key); ok {
				t.Errorf("%s has the tokens of %s", cluster, key)
			}
		}
		if diff := cmp.Diff([]string{"default/a/uid-of-a"}, r.published(spoke, wire.KindPodToken)); diff != "" {
			t.Errorf("published (-want +got):\n%s", diff)
		}
	})
}

func TestPodWithTooManyTokensGetsNone(t *testing.T) {
	inBubble(t, issuing(), func(r *rig) {
		m := (&mint{}).with(r)
		greedy := func(p *corev1.Pod) {
			sources := &p.Spec.Volumes[0].Projected.Sources
			for i := range wire.PodTokensMax + 1 {
				*sources = append(*sources, corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t", ExpirationSeconds: new(int64(600 + i))}})
			}
		}
		r.watch(spoke)
		r.create(podNamed("a", withToken, greedy))
		defer r.asks(spoke)()
		if len(m.times) != 0 || r.pod("a").Status.Message != errTooManyTokens.Error() {
			t.Errorf("%d requests, and it says %q", len(m.times), r.pod("a").Status.Message)
		}
	})
}

// An agent says what it holds, which may be anything: it is told that this is not so.
func TestTokensOfAnotherPodAreNotSent(t *testing.T) {
	client := fake.NewSimpleClientset(podNamed("mine", withToken), podNamed("theirs", withToken, onNode("spoke2")))
	client.PrependReactor("create", "serviceaccounts", (&mint{}).react) // before anything asks the client
	r := newRig(t, issuing(), client)
	defer func() { r.stop() }()
	defer r.Watch(t.Context(), spoke)()
	defer r.Watch(t.Context(), "spoke2")()
	a := newAgent(t, wire.KindPodToken)
	claimed := wire.PodTokenKey{PodKey: wire.PodKey{Namespace: "default", Name: "theirs"}, UID: "uid-of-theirs"}.String()
	a.mirrors[wire.KindPodToken].Hold(resource.RefOf(resource.Resource{Key: claimed}))
	defer a.connect(r.Controller, r.hub, spoke)()
	a.await("its own tokens are there, and the claim is denied", func() bool {
		return len(a.tokens) == 1 && a.complete[wire.KindPodToken] == 1 && len(a.deleted) == 1
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	if diff := cmp.Diff([]string{wire.KindPodToken + " " + claimed}, a.deleted); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
	for key := range a.tokens {
		if key != "default/mine/uid-of-mine" {
			t.Errorf("it has the tokens of %s", key)
		}
	}
}
