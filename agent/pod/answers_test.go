// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/pod/translate"
	"github.com/spokelet/spokelet/api/wire"
)

// stubborn is an API server that has one pod, and answers some requests with a code.
type stubborn struct {
	pod *corev1.Pod
	// refuses maps "METHOD suffix-of-the-path" to a code.
	refuses map[string]int
}

// ServeHTTP implements http.Handler.
func (s stubborn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	for what, code := range s.refuses {
		method, suffix, _ := strings.Cut(what, " ")
		if r.Method == method && strings.HasSuffix(r.URL.Path, suffix) {
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
				Code: int32(code), Reason: map[int]metav1.StatusReason{404: metav1.StatusReasonNotFound, 409: metav1.StatusReasonConflict}[code],
			})
			return
		}
	}
	pod := s.pod.DeepCopy()
	pod.APIVersion, pod.Kind = "v1", "Pod"
	_ = json.NewEncoder(w).Encode(pod)
}

// against is an engine of which nothing runs, with that API server.
func against(t *testing.T, s stubborn) *Engine {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	e := idle(t)
	spoke, err := newSpokeClient(&rest.Config{Host: server.URL}, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(spoke.close)
	e.spoke = spoke
	return e
}

var web = namespacedName{Namespace: "shop", Name: "web"}

func TestUnrelatedErrorDoesNotEndAPod(t *testing.T) {
	resized := func(d *wire.Pod) {
		d.Pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("2")}
	}
	tests := map[string]struct {
		reason  string
		refuses map[string]int
		change  func(*wire.Pod)
	}{
		"a resize that the API server does not serve": {
			reason: "an older one answers 404, and the pod runs", refuses: map[string]int{"PATCH /resize": 404}, change: resized,
		},
		"a deletion that a webhook denies with a conflict": {
			reason: "the pod runs on", refuses: map[string]int{"DELETE /web": 409}, change: deleting(1),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := inSpoke(t, "spoke-1", "hub-1", "5")
			e := against(t, stubborn{pod: pod, refuses: tt.refuses})
			e.observePodList(nil, "1")
			tellChanged(t, e, "hub-1", tt.change)
			e.observePod(pod)
			if err := e.reconcile(t.Context(), web); err == nil {
				t.Error("reason: " + tt.reason + ": it is not tried again")
			}
			if _, _, ok := e.Locate(wire.PodKey{Namespace: "shop", Name: "web"}); !ok {
				t.Errorf("reason: %s: the pod is taken for gone", tt.reason)
			}
		})
	}
}

func TestRelabelledPodIsAdopted(t *testing.T) {
	pod := inSpoke(t, "spoke-1", "hub-1", "5")
	e := against(t, stubborn{pod: pod, refuses: map[string]int{"POST /pods": 409}})
	e.observePodList(nil, "1")
	tellPod(t, e, "hub-1")
	e.observePod(pod)
	e.observePodDeleted(web, "spoke-1", nil) // somebody took our label off, and puts it on again
	e.mu.Lock()
	en := e.pods[web]
	want := en.desired
	e.mu.Unlock()
	if err := e.adoptExisting(t.Context(), en, want); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := e.Locate(wire.PodKey{Namespace: "shop", Name: "web"}); !ok {
		t.Error("a pod that is there is not found")
	}
}

func TestPodEndRetriesAFewRefusedPods(t *testing.T) {
	e := idle(t)
	e.observePodList(nil, "1")
	tellPod(t, e, "hub-1")
	e.observePod(inSpoke(t, "spoke-1", "hub-1", "5"))
	for range e.queue.Len() {
		next, _ := e.queue.Get()
		e.queue.Done(next)
	}
	e.mu.Lock()
	for i := range 100 {
		e.retried[namespacedName{Namespace: "shop", Name: fmt.Sprint("job-", i)}] = struct{}{}
	}
	e.mu.Unlock()
	e.observePodDeleted(web, "spoke-1", nil)
	if n := e.queue.Len(); n > maxRetriedAtOnce+1 {
		t.Errorf("%d pods are tried again at once", n)
	}
}

func TestOversizedStatusIsTruncated(t *testing.T) {
	pod := inSpoke(t, "spoke-1", "hub-1", "5")
	for range 100 {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Message: strings.Repeat("x", 4096)}},
		})
	}
	whole, err := json.Marshal(wire.PodStatus{Status: &pod.Status})
	if _, tooLong := wire.DecodePodStatus(whole); err != nil || tooLong == nil {
		t.Fatalf("the whole is no test: %v", err)
	}
	short, err := json.Marshal(wire.PodStatus{Status: truncateStatus(&pod.Status), Generation: 4})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := wire.DecodePodStatus(short); err != nil || got.Status.ContainerStatuses[0].State.Terminated.ExitCode != 3 {
		t.Errorf("what is left of it: %v", err)
	}
}

func TestGoneStatusOfPodNeverCreatedHasTheRefusal(t *testing.T) {
	hostNetwork := func(p *wire.Pod) { p.Pod.Spec.HostNetwork = true }
	cases := map[string]struct {
		reason string
		// spec is the pod's, answer the API server's, 0 for a pod that is made.
		spec    func(*wire.Pod)
		answer  int
		unheard bool
		says    string
	}{
		"it cannot be here":                             {reason: "its user asked for what nobody permits", spec: hostNetwork, says: translate.ReasonHostAccess},
		"it cannot be here, and was deleted on the way": {reason: "that is so of a pod that goes, too", spec: hostNetwork, unheard: true, says: translate.ReasonHostAccess},
		"a quota": {reason: "it was used up to the end", answer: http.StatusForbidden, says: ReasonForbidden},
		"nobody has judged it, and was deleted on the way": {reason: "there is nothing to be said", answer: http.StatusForbidden, unheard: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			atOnce(t, &prompt{refuse: func(string) int { return tc.answer }}, func(t *testing.T, e *Engine) {
				tell := func(deleted *metav1.Time) {
					tellChanged(t, e, "hub-1", func(p *wire.Pod) {
						p.Pod.DeletionTimestamp = deleted
						if tc.spec != nil {
							tc.spec(p)
						}
					})
					synctest.Wait()
				}
				if !tc.unheard {
					tell(nil)
				}
				tell(new(metav1.Now()))
				if s := said(e, "web"); !s.Gone || s.Lost || s.Reason != tc.says || (s.Message == "") != (tc.says == "") {
					t.Errorf("%s: told %+v, want its end for %q", tc.reason, s, tc.says)
				}
			})
		})
	}
}
