// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/pod/translate"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// What is here are faults that other virtual nodes have: each test fails without the
// cure of one of them.

// prompt is an API server without a network that answers at once. It has no pods
// but those that were made, and namespaces as it is told.
type prompt struct {
	// refuse is asked about each pod that is to be made: a code, 0 to make it.
	refuse func(name string) int
	// labels are those of every namespace.
	labels map[string]string

	mu   sync.Mutex
	made map[string]*corev1.Pod
}

// RoundTrip implements http.RoundTripper.
func (p *prompt) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/"), "/")
	switch {
	case r.Method == http.MethodGet && len(parts) == 2:
		p.answer(w, &corev1.Namespace{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: parts[1], Labels: p.labels},
		})
	case r.Method == http.MethodPost && parts[len(parts)-1] == "pods":
		p.create(w, r)
	case r.Method == http.MethodGet:
		p.get(w, parts[len(parts)-1])
	default:
		w.WriteHeader(http.StatusNotImplemented)
	}
	return w.Result(), nil
}

func (*prompt) answer(w io.Writer, object any) {
	if err := json.NewEncoder(w).Encode(object); err != nil {
		panic(err) // it is what the API machinery itself encodes
	}
}

func (p *prompt) create(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err) // there is no network
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		panic(err) // the client is client-go
	}
	pod := object.(*corev1.Pod)
	p.mu.Lock()
	defer p.mu.Unlock()
	if code := p.refuse(pod.Name); code != 0 {
		p.fail(w, pod.Name, code)
		return
	}
	if p.made[pod.Name] != nil {
		p.fail(w, pod.Name, http.StatusConflict)
		return
	}
	pod.APIVersion, pod.Kind = "v1", "Pod"
	pod.UID, pod.ResourceVersion = types.UID("spoke-"+pod.Name), strconv.Itoa(len(p.made)+10)
	p.made[pod.Name] = pod
	p.answer(w, pod)
}

func (p *prompt) get(w http.ResponseWriter, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pod := p.made[name]; pod != nil {
		p.answer(w, pod)
		return
	}
	p.fail(w, name, http.StatusNotFound)
}

// fail refuses as an API server does, which names the object.
func (p *prompt) fail(w http.ResponseWriter, name string, code int) {
	w.WriteHeader(code)
	p.answer(w, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code),
		Message: "so says the test", Details: &metav1.StatusDetails{Kind: "pods", Name: name},
		Reason: map[int]metav1.StatusReason{
			http.StatusConflict: metav1.StatusReasonAlreadyExists, http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusNotFound: metav1.StatusReasonNotFound,
		}[code],
	})
}

func (p *prompt) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.made)
}

// engine is an engine of which nothing runs, with such an API server: through is p, or
// what answers in front of it.
func (p *prompt) engine(t *testing.T, through http.RoundTripper) *Engine {
	t.Helper()
	p.made = map[string]*corev1.Pod{}
	if p.refuse == nil {
		p.refuse = func(string) int { return 0 }
	}
	if p.labels == nil {
		p.labels = map[string]string{LabelCreatedBy: Creator}
	}
	e := idle(t)
	spoke, err := newSpokeClient(&rest.Config{Host: "http://spoke", Transport: through}, "")
	if err != nil {
		t.Fatal(err)
	}
	e.spoke, e.namespaces, e.accounts = spoke, newNamespaceEnsurer(spoke.core, e.cfg, e.invalidateCopies), newAccountEnsurer(spoke.core, e.cfg.HubID)
	return e
}

// atOnce runs a test with an engine that works, against such an API server, in a
// bubble: what waits for anything takes time.
func atOnce(t *testing.T, p *prompt, test func(*testing.T, *Engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := p.engine(t, p)
		e.observePodList(nil, "1")
		ctx, cancel := context.WithCancel(t.Context())
		var workers sync.WaitGroup
		for range e.cfg.Workers {
			workers.Go(func() { e.runWorker(ctx) })
		}
		test(t, e)
		cancel()
		e.shutDownQueues()
		workers.Wait()
	})
}

func tellNamed(t *testing.T, e *Engine, name string) {
	t.Helper()
	body, err := json.Marshal(wire.Pod{SplitLabel: poolLabel, Pod: corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("hub-" + name), Generation: 1},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "web"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	e.handlePod(resource.Resource{Key: "shop/" + name, UID: "hub-" + name, Body: body})
}

// said is what the hub is told of a pod now.
func said(e *Engine, name string) wire.PodStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, _ := e.pods[namespacedName{Namespace: "shop", Name: name}].status()
	return s
}

func TestSixHundredPodsAreCreatedWithoutDelay(t *testing.T) {
	const many = 600
	p := &prompt{}
	atOnce(t, p, func(t *testing.T, e *Engine) {
		began := time.Now()
		for i := range many {
			tellNamed(t, e, fmt.Sprint("p", i))
		}
		synctest.Wait()
		if n, waited := p.count(), time.Since(began); n != many || waited != 0 {
			t.Errorf("%d of %d pods are made after %s of waiting", n, many, waited)
		}
		if n := e.countStates()[statePending]; n != many {
			t.Errorf("%d of %d pods are told of", n, many)
		}
	})
}

func TestFailingPodsBackOffSeparately(t *testing.T) {
	const many = 600
	failed := map[string]bool{}
	p := &prompt{refuse: func(name string) int {
		if failed[name] {
			return 0
		}
		failed[name] = true
		return http.StatusServiceUnavailable
	}}
	atOnce(t, p, func(t *testing.T, e *Engine) {
		for i := range many {
			tellNamed(t, e, fmt.Sprint("p", i))
		}
		<-time.After(2 * minRetry)
		synctest.Wait()
		if n := p.count(); n != many {
			t.Errorf("%d of %d pods are made at their second attempt", n, many)
		}
	})
}

func TestRefusedPodIsRetriedForever(t *testing.T) {
	const often = 100
	cases := map[string]struct {
		reason string
		code   int
		says   string
	}{
		"a quota":   {reason: "it may be raised after hours", code: http.StatusForbidden, says: ReasonForbidden},
		"an outage": {reason: "it heals", code: http.StatusServiceUnavailable, says: ReasonCreateFailed},
		"a webhook": {reason: "its policy may change", code: http.StatusTeapot, says: ReasonAdmissionDenied},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			left := often
			p := &prompt{refuse: func(string) int {
				if left--; left < 0 {
					return 0
				}
				return tc.code
			}}
			atOnce(t, p, func(t *testing.T, e *Engine) {
				tellNamed(t, e, "web")
				synctest.Wait()
				if s := said(e, "web"); s.Reason != tc.says || !s.Retried || s.Gone || s.Status != nil {
					t.Errorf("%s: told %+v, want a pod that waits for %s", tc.reason, s, tc.says)
				}
				<-time.After(often * maxRetry)
				synctest.Wait()
				if p.count() != 1 {
					t.Errorf("%s: the pod is not made, %d refusals are left", tc.reason, left)
				}
				if s := said(e, "web"); s.Reason != "" || s.Status == nil {
					t.Errorf("%s: told %+v of a pod that is there", tc.reason, s)
				}
			})
		})
	}
}

func TestUnsupportedPodIsRefusedOnce(t *testing.T) {
	cases := map[string]struct {
		change func(*corev1.PodSpec)
		says   string
	}{
		"of the host's network": {func(s *corev1.PodSpec) { s.HostNetwork = true }, translate.ReasonHostAccess},
		"with a host path": {func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		}, translate.ReasonHostAccess},
		"with a volume that does not travel": {func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "far", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}}}
		}, translate.ReasonVolumeNotSupported},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := &prompt{refuse: func(string) int {
				t.Error("the spoke was asked for it")
				return http.StatusForbidden
			}}
			atOnce(t, p, func(t *testing.T, e *Engine) {
				tellChanged(t, e, "hub-1", func(d *wire.Pod) { tc.change(&d.Pod.Spec) })
				<-time.After(time.Hour)
				synctest.Wait()
				if s := said(e, "web"); s.Reason != tc.says || s.Message == "" || s.Retried || s.Gone {
					t.Errorf("told %+v, want %s for good", s, tc.says)
				}
			})
		})
	}
}

func TestPodWithMissingReferenceIsCreated(t *testing.T) {
	for name, optional := range map[string]*bool{"needed": nil, "optional": new(true)} {
		t.Run(name, func(t *testing.T) {
			p := &prompt{}
			atOnce(t, p, func(t *testing.T, e *Engine) {
				key := wire.PodObjectKey{Kind: wire.PodObjectConfigMap, Namespace: "shop", Name: "settings"}
				tellChanged(t, e, "hub-1", func(d *wire.Pod) {
					reading(key.Name)(d)
					d.Pod.Spec.Containers[0].EnvFrom[0].ConfigMapRef.Optional = optional
				})
				synctest.Wait()
				if p.count() != 0 {
					t.Error("it is made before the hub has said what it refers to")
				}
				e.handleObject(resource.Resource{Key: key.String(), Body: []byte(`{"missing":true}`)})
				synctest.Wait()
				if p.count() != 1 {
					t.Error("it is not made: nobody says what it waits for")
				}
			})
		})
	}
}

func TestNamespacesWithoutConsentGetNoPods(t *testing.T) {
	cases := map[string]struct {
		reason    string
		namespace string
		labels    map[string]string
		only      []string
		says      string
		retried   bool
	}{
		"the system's":                {reason: "rights in the hub's would be rights here", namespace: "kube-system", says: ReasonNamespaceNotAllowed},
		"another of the system's":     {reason: "the prefix is Kubernetes' own", namespace: "kube-public", labels: map[string]string{LabelPods: PodsAllowed}, says: ReasonNamespaceNotAllowed},
		"the agent's":                 {reason: "its credentials are there", namespace: "spokelet-agent", labels: map[string]string{LabelPods: PodsAllowed}, says: ReasonNamespaceNotAllowed},
		"one that is not named":       {reason: "the owner named others", namespace: "shop", only: []string{"office"}, says: ReasonNamespaceNotAllowed},
		"the owner's":                 {reason: "it was not made for pods", namespace: "shop", labels: map[string]string{"team": "a"}, says: ReasonNamespaceNotAllowed, retried: true},
		"the owner's, with his leave": {reason: "he said so", namespace: "shop", labels: map[string]string{LabelPods: PodsAllowed}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			atOnce(t, &prompt{labels: tc.labels}, func(t *testing.T, e *Engine) {
				e.namespaces.only = tc.only
				_, err := e.namespaces.ensure(t.Context(), tc.namespace, origin{})
				var got RefusedError
				if err != nil {
					got = *refusedOf(t, err)
				}
				if got.Reason != tc.says || got.Retried != tc.retried {
					t.Errorf("%s: refused for %q, retried %t", tc.reason, got.Reason, got.Retried)
				}
			})
		})
	}
}

func refusedOf(t *testing.T, err error) *RefusedError {
	t.Helper()
	refused, ok := err.(*RefusedError) //nolint:errorlint // it is not wrapped
	if !ok {
		t.Fatal(err)
	}
	return refused
}

func TestForeignPodIsNotAdopted(t *testing.T) {
	cases := map[string]struct {
		reason string
		labels map[string]string
		taken  bool
	}{
		"the owner's":     {reason: "it was there before", labels: nil},
		"another hub's":   {reason: "two hubs may have one cluster", labels: map[string]string{translate.LabelHub: "other", translate.LabelHubPodUID: "hub-web"}},
		"of no pod of it": {reason: "nobody knows what it runs for", labels: map[string]string{translate.LabelHub: "hub"}},
		"ours":            {reason: "the answer to its creation was lost", labels: map[string]string{translate.LabelHub: "hub", translate.LabelHubPodUID: "hub-web"}, taken: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := &prompt{}
			atOnce(t, p, func(t *testing.T, e *Engine) {
				p.made["web"] = &corev1.Pod{
					TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
					ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "theirs", ResourceVersion: "5", Labels: tc.labels},
				}
				tellNamed(t, e, "web")
				synctest.Wait()
				_, _, found := e.Locate(wire.PodKey{Namespace: "shop", Name: "web"})
				if s := said(e, "web"); found != tc.taken || (s.Reason == ReasonNameTaken) == tc.taken {
					t.Errorf("%s: taken %t, told %+v", tc.reason, found, s)
				}
			})
		})
	}
}

func TestNothingIsDecidedBeforeThePodsAreListed(t *testing.T) {
	e := idle(t)
	e.handlePodsSynced()
	tellChanged(t, e, "hub-1", func(p *wire.Pod) { p.Seen = true })
	if got := e.next(); got != actNone {
		t.Errorf("a pod that was there, before the list: %s, want %s", got, actNone)
	}
	e.observePod(inSpoke(t, "spoke-1", "hub-1", "5"))
	e.observePodList(map[types.UID]struct{}{"spoke-1": {}}, "6")
	if got := e.next(); got != actNone {
		t.Errorf("a pod that is there, after it: %s, want %s", got, actNone)
	}
}

func TestNothingIsDeletedBeforeTheHubIsSynced(t *testing.T) {
	e := idle(t)
	e.observePod(inSpoke(t, "spoke-1", "hub-1", "5"))
	e.observePodList(map[types.UID]struct{}{"spoke-1": {}}, "6")
	if got := e.next(); got != actNone {
		t.Errorf("before: %s, want %s: a hub that has just started knows of no pod", got, actNone)
	}
	e.handlePodsSynced()
	if got := e.next(); got != actDeleteUnknown {
		t.Errorf("after: %s, want %s: nobody else would ever end it", got, actDeleteUnknown)
	}
}

func TestDeletionNamesTheUIDOfThePod(t *testing.T) {
	e := against(t, stubborn{})
	sent := deletions(t, e)
	e.observePodList(nil, "1")
	tellChanged(t, e, "hub-1", deleting(20))
	e.observePod(inSpoke(t, "spoke-1", "hub-1", "5"))
	if err := e.reconcile(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	if p := sent.Preconditions; p == nil || p.UID == nil || *p.UID != "spoke-1" || *sent.GracePeriodSeconds != 20 {
		t.Errorf("deletion is of %+v", sent)
	}
}

// TestSourcesAreCompleteOnlyAfterTheList joins an engine to a hub: what
// an agent has not listed yet is not gone.
func TestSourcesAreCompleteOnlyAfterTheList(t *testing.T) {
	e := idle(t)
	puts, synced := make(chan int64, 100), make(chan struct{}, 1)
	h := &hub{t: t, c: &cluster{t: t, namespace: "shop"}, sync: resource.NewHub()}
	h.sync.Publish(wire.KindPod, nil)
	h.sync.Publish(wire.KindPodObject, nil)
	h.sync.Mirror(wire.KindPodEvent, resource.HubReceiver{})
	h.sync.Mirror(wire.KindPodStatus, resource.HubReceiver{
		Put: func(_ string, r resource.Resource) {
			s, err := wire.DecodePodStatus(r.Body)
			if err != nil {
				t.Error(err)
			}
			puts <- s.Generation
		},
		Synced: func(string) { synced <- struct{}{} },
	})
	defer h.connect(e)()
	e.handlePodsSynced()
	pod := inSpoke(t, "spoke-1", "hub-1", "5")
	e.observePod(pod)
	for generation := range int64(20) {
		tellChanged(t, e, "hub-1", func(p *wire.Pod) { p.Pod.Generation = generation + 1 })
		if got := <-puts; got != generation+1 {
			t.Errorf("told of generation %d, want %d", got, generation+1)
		}
	}
	select {
	case <-synced:
		t.Fatal("the hub takes what was said so far for all that there is")
	default:
	}
	e.observePodList(map[types.UID]struct{}{"spoke-1": {}}, "6")
	<-synced
}
