// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/pod/translate"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// idle returns an engine that does not run: what it is told, it knows.
func idle(t testing.TB) *Engine {
	t.Helper()
	e, err := New(Config{REST: &rest.Config{Host: "http://127.0.0.1:1"}, HubID: "hub", Namespace: "spokelet-agent"})
	if err != nil {
		t.Fatal(err)
	}
	// The followers of events end before they begin.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e.runContext = ctx
	t.Cleanup(func() {
		e.shutDownQueues()
		e.watchers.Wait()
	})
	return e
}

// tellPod gives an engine a pod of the hub.
func tellPod(t *testing.T, e *Engine, uid types.UID) {
	t.Helper()
	tellChanged(t, e, uid, func(*wire.Pod) {})
}

func tellChanged(t *testing.T, e *Engine, uid types.UID, change func(*wire.Pod)) {
	t.Helper()
	pod := wire.Pod{SplitLabel: poolLabel, Pod: corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: uid, Generation: 4},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "web"}}},
	}}
	change(&pod)
	body, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	e.handlePod(resource.Resource{Key: "shop/web", UID: string(uid), Body: body})
}

// inSpoke is what runs for the pod that tellPod tells of.
func inSpoke(t *testing.T, uid, hubUID types.UID, version string) *corev1.Pod {
	t.Helper()
	hub := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: hubUID},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "web"}}},
	}
	pod, err := translate.NewPod(hub, translate.Options{HubID: "hub", Namespace: "shop", Tokens: translate.TokensSpoke})
	if err != nil {
		t.Fatal(err)
	}
	pod.UID, pod.ResourceVersion = uid, version
	return pod
}

func (e *Engine) next() action {
	e.mu.Lock()
	defer e.mu.Unlock()
	return decide(e.decisionInput(e.pods[namespacedName{Namespace: "shop", Name: "web"}]))
}

func TestLateEventOfDeletedPodIsIgnored(t *testing.T) {
	e := idle(t)
	e.observePodList(nil, "1")
	tellPod(t, e, "hub-1")
	pod := inSpoke(t, "spoke-1", "hub-1", "5")
	e.observePod(pod)
	if got := e.next(); got != actNone {
		t.Errorf("while it runs: %s", got)
	}
	e.observePodDeleted(namespacedName{Namespace: "shop", Name: "web"}, "spoke-1", nil)
	e.observePod(inSpoke(t, "spoke-1", "hub-1", "6"))
	if got := e.next(); got != actReportLost {
		t.Errorf("after its end: %s, want %s", got, actReportLost)
	}
	if _, _, ok := e.Locate(wire.PodKey{Namespace: "shop", Name: "web"}); ok {
		t.Error("a pod that is gone is found")
	}
}

func TestGoneStatusHasTheLastStatus(t *testing.T) {
	e := idle(t)
	e.observePodList(nil, "1")
	tellPod(t, e, "hub-1")
	e.observePod(inSpoke(t, "spoke-1", "hub-1", "5"))
	// As a kubelet does: it writes the status and deletes the pod at once.
	last := inSpoke(t, "spoke-1", "hub-1", "7")
	last.Status.Phase = corev1.PodSucceeded
	(&podSink{engine: e}).HandleEvent(last, true)
	if err := e.reconcile(t.Context(), namespacedName{Namespace: "shop", Name: "web"}); err != nil {
		t.Fatal(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	said, ok := e.pods[namespacedName{Namespace: "shop", Name: "web"}].status()
	if !ok || !said.Gone || said.Status == nil || said.Status.Phase != corev1.PodSucceeded {
		t.Errorf("told %+v, want the end with its status", said)
	}
}

func TestPodThatEndedByItselfIsNotLost(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		deleting bool
		want     action
	}{
		"by itself":        {reason: "who clears it away takes nothing", want: actReleaseObjects},
		"by being deleted": {reason: "it would have gone on", deleting: true, want: actReportLost},
	} {
		t.Run(name, func(t *testing.T) {
			e := idle(t)
			e.observePodList(nil, "1")
			tellPod(t, e, "hub-1")
			end := inSpoke(t, "spoke-1", "hub-1", "5")
			end.Status.Phase = corev1.PodFailed
			if tc.deleting {
				end.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_700_000_000, 0)}
			}
			e.observePod(end)
			last := end.DeepCopy()
			last.ResourceVersion, last.DeletionTimestamp = "6", &metav1.Time{Time: time.Unix(1_700_000_000, 0)}
			e.observePod(last)
			(&podSink{engine: e}).HandleEvent(last, true)
			if got := e.next(); got != tc.want {
				t.Errorf("reason: %s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestPodMissingFromAListIsDeleted(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		version string
		want    action
	}{
		"made before the list": {reason: "it was deleted while nobody watched", version: "10", want: actReportLost},
		"made after the list":  {reason: "the list could not know of it", version: "30", want: actNone},
	} {
		t.Run(name, func(t *testing.T) {
			e := idle(t)
			tellPod(t, e, "hub-1")
			e.observePodList(nil, "1")
			e.observePod(inSpoke(t, "spoke-1", "hub-1", tc.version))
			e.observePodList(map[types.UID]struct{}{}, "20")
			if got := e.next(); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestOlderPodVersionIsIgnored(t *testing.T) {
	e := idle(t)
	e.observePodList(nil, "1")
	tellPod(t, e, "hub-1")
	newer, older := inSpoke(t, "spoke-1", "hub-1", "8"), inSpoke(t, "spoke-1", "hub-1", "7")
	newer.Status.Phase, older.Status.Phase = corev1.PodSucceeded, corev1.PodRunning
	e.observePod(newer)
	e.observePod(older)
	if states := e.countStates(); states[stateEnded] != 1 {
		t.Errorf("states: %v, want one that has ended", states)
	}
}

func TestUnreadablePodIsNotAbsent(t *testing.T) {
	e := idle(t)
	e.observePodList(nil, "1")
	e.observePod(inSpoke(t, "spoke-1", "hub-1", "5"))
	e.handlePod(resource.Resource{Key: "shop/web", UID: "hub-1", Body: []byte(`{"pod":[]}`)})
	e.handlePodsSynced()
	if got := e.next(); got != actNone {
		t.Errorf("got %s, want %s", got, actNone)
	}
}

func TestEventsPerPodAreBounded(t *testing.T) {
	e := idle(t)
	e.observePodList(nil, "1")
	tellPod(t, e, "hub-1")
	sink := &eventSink{engine: e, scope: &eventWatch{}}
	event := func(n int) *corev1.Event {
		return &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{UID: types.UID(strconv.Itoa(n))},
			InvolvedObject: corev1.ObjectReference{Namespace: "shop", Name: "web", UID: "spoke-1"},
			Type:           corev1.EventTypeNormal, Reason: "Pulled",
		}
	}
	sink.HandleEvent(event(0), false)
	if keys := e.events.Keys(); len(keys) > 0 {
		t.Errorf("events of a pod that is not known: %v", keys)
	}
	e.observePod(inSpoke(t, "spoke-1", "hub-1", "5"))
	if diff := cmp.Diff([]string{"shop/web/0"}, e.events.Keys()); diff != "" {
		t.Errorf("what came early (-want +got):\n%s", diff)
	}
	for n := range 2 * wire.PodEventsMax {
		sink.HandleEvent(event(n), false)
	}
	if n := len(e.events.Keys()); n != wire.PodEventsMax {
		t.Errorf("%d events are kept, want %d", n, wire.PodEventsMax)
	}
	sink.HandleEvent(event(2*wire.PodEventsMax-1), true)
	if n := len(e.events.Keys()); n != wire.PodEventsMax-1 {
		t.Errorf("%d events are kept after one expired", n)
	}
	e.observePodDeleted(namespacedName{Namespace: "shop", Name: "web"}, "spoke-1", nil)
	e.handlePodDeleted("shop/web")
	if err := e.reconcile(t.Context(), namespacedName{Namespace: "shop", Name: "web"}); err != nil {
		t.Fatal(err)
	}
	if keys := append(e.events.Keys(), e.statuses.Keys()...); len(keys) > 0 || len(e.pods) > 0 {
		t.Errorf("left behind: %v, %v", keys, e.pods)
	}
}

func TestNewPodEventReadsBothEventAPIs(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	cases := map[string]struct {
		reason string
		event  corev1.Event
		want   wire.PodEvent
	}{
		"v1": {
			reason: "the kubelet's",
			event: corev1.Event{Type: "Warning", Reason: "BackOff", Count: 2, FirstTimestamp: metav1.NewTime(at), LastTimestamp: metav1.NewTime(at),
				Source: corev1.EventSource{Component: "kubelet", Host: "a"}},
			want: wire.PodEvent{Type: "Warning", Reason: "BackOff", Count: 2, First: metav1.NewTime(at), Last: metav1.NewMicroTime(at), Source: "kubelet", Host: "a"},
		},
		"events.k8s.io": {
			reason: "the scheduler's",
			event: corev1.Event{Type: "Normal", Reason: "Scheduled", EventTime: metav1.NewMicroTime(at), ReportingController: "default-scheduler", ReportingInstance: "b",
				Series: &corev1.EventSeries{Count: 3, LastObservedTime: metav1.NewMicroTime(at.Add(time.Second))}},
			want: wire.PodEvent{Type: "Normal", Reason: "Scheduled", Count: 3, First: metav1.NewTime(at), Last: metav1.NewMicroTime(at.Add(time.Second)), Source: "default-scheduler", Host: "b"},
		},
		"of no known type": {
			reason: "the hub takes two types, and a reason",
			event:  corev1.Event{Type: "Strange"},
			want:   wire.PodEvent{Type: "Normal", Reason: "Unknown"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, newPodEvent(&tc.event)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestClassifyRefusals(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	terminating := apierrors.NewForbidden(pods, "web", errors.New("namespace ends"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	policy := apierrors.NewForbidden(pods, "web", errors.New("the owner says no"))
	policy.ErrStatus.Reason, policy.ErrStatus.Code = metav1.StatusReasonInvalid, http.StatusUnprocessableEntity
	policy.ErrStatus.Details.Causes = []metav1.StatusCause{{Message: "the owner says no"}}
	cases := map[string]struct {
		err     error
		reason  string
		retried bool
	}{
		"shape":       {err: &translate.RefusedError{Reason: "HostAccess", Message: "no"}, reason: "HostAccess"},
		"quota":       {err: apierrors.NewForbidden(pods, "web", errors.New("quota")), reason: ReasonForbidden, retried: true},
		"right":       {err: apierrors.NewForbidden(pods, "", errors.New("cannot create")), reason: ReasonRightMissing, retried: true},
		"policy":      {err: policy, reason: ReasonAdmissionDenied, retried: true},
		"proxy":       {err: apierrors.NewGenericServerResponse(403, "POST", pods, "web", "no", 0, true), reason: ReasonForbidden, retried: true},
		"terminating": {err: terminating, reason: ReasonNamespaceTerminating, retried: true},
		"invalid":     {err: apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", nil), reason: ReasonInvalid, retried: true},
		"field":       {err: apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", field.ErrorList{field.Required(field.NewPath("spec"), "no")}), reason: ReasonInvalid, retried: true},
		"webhook":     {err: &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusTeapot}}, reason: ReasonAdmissionDenied, retried: true},
		"webhook 403": {err: &apierrors.StatusError{ErrStatus: metav1.Status{Code: 403, Message: "no"}}, reason: ReasonAdmissionDenied, retried: true},
		"overload":    {err: apierrors.NewTooManyRequests("later", 1), reason: ReasonCreateFailed, retried: true},
		"server":      {err: apierrors.NewInternalError(errors.New("boom")), reason: ReasonCreateFailed, retried: true},
		"network":     {err: errors.New("connection refused"), reason: ReasonCreateFailed, retried: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := newRefusal(fmt.Errorf("copy: %w", tc.err))
			if got.Reason != tc.reason || got.Retried != tc.retried || !errors.Is(got, tc.err) {
				t.Errorf("got %+v, want %s, retried %t", got, tc.reason, tc.retried)
			}
			if !wire.IsReason(got.Reason) {
				t.Errorf("the hub does not take the reason %q", got.Reason)
			}
		})
	}
}

func TestAnswerCacheAsksOnceForConcurrentCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newAnswerCache[string, int]()
		var asked atomic.Int64
		var crowd sync.WaitGroup
		for range 100 {
			crowd.Go(func() {
				_, _ = m.get("a", func() (int, error) { return int(asked.Add(1)), nil })
			})
		}
		crowd.Wait()
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times for a crowd", n)
		}
	})
}

func TestAnswerCacheExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, asked := newAnswerCache[string, int](), 0
		ask := func() int {
			v, _ := m.get("a", func() (int, error) { asked++; return asked, nil })
			return v
		}
		ask()
		if got := ask(); got != 1 {
			t.Errorf("the answer is %d, want that of just before", got)
		}
		<-time.After(answerTTL)
		if got := ask(); got != 2 {
			t.Errorf("the answer is %d, want a fresh one", got)
		}
		m.delete("a")
		if got := ask(); got != 3 {
			t.Errorf("the answer is %d, want a fresh one after it proved wrong", got)
		}
		_, _ = m.get("b", func() (int, error) { return 0, context.DeadlineExceeded })
		if v, err := m.get("b", func() (int, error) { return 7, nil }); v != 7 || err != nil {
			t.Errorf("that the asker was out of time was kept: %d, %v", v, err)
		}
	})
}

func TestConfigValidate(t *testing.T) {
	_, err := New(Config{HubID: "not a label", Tokens: "theirs", Workers: -1})
	if err == nil {
		t.Fatal("no error")
	}
	for _, field := range []string{"REST", "HubID", "Namespace", "Tokens", "Workers"} {
		if !strings.Contains(err.Error(), "field "+field) {
			t.Errorf("error %q does not name %s", err, field)
		}
	}
}

func TestMetricsAreRegistered(t *testing.T) {
	registry := prometheus.NewRegistry()
	e, err := New(Config{REST: &rest.Config{}, HubID: "hub", Namespace: "spokelet-agent", Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	defer e.shutDownQueues()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	if diff := cmp.Diff([]string{"spokelet_pod_create_seconds", "spokelet_pods"}, names); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

func FuzzAccept(f *testing.F) {
	f.Add("shop/web", []byte(`{"pod":{"metadata":{"namespace":"shop","name":"web","uid":"1"},"spec":{"containers":[{"name":"a","image":"b","envFrom":[{"configMapRef":{"name":"c"}}]}]}},"seen":true}`))
	f.Add("shop/web", []byte(`{"group":"gpu","grouped":{"metadata":{"namespace":"shop","name":"web","uid":"1"},"spec":{"nodeName":"spoke.gpu"}}}`))
	f.Add("configmap/shop/c", []byte(`{"text":{"a":"b"}}`))
	f.Add("secret/shop/c", []byte(`{"missing":true}`))
	f.Fuzz(func(t *testing.T, key string, body []byte) {
		e := idle(t)
		e.observePodList(nil, "1")
		for range 2 {
			e.handlePod(resource.Resource{Key: key, UID: "1", Body: body})
			e.handleObject(resource.Resource{Key: key, Body: body})
			e.handlePodsSynced()
			for _, en := range e.pods {
				_ = decide(e.decisionInput(en))
			}
			e.handlePodDeleted(key)
			e.handleObjectDeleted(key)
		}
		for at := range e.pods {
			if err := e.reconcile(t.Context(), at); err != nil {
				t.Errorf("forget: %v", err)
			}
		}
		if len(e.pods) > 0 {
			t.Errorf("%d entries are left", len(e.pods))
		}
	})
}

func TestLeftOutAnnotationsAreReportedOncePerPod(t *testing.T) {
	e := idle(t)
	e.observePodList(nil, "1")
	at := namespacedName{Namespace: "shop", Name: "web"}
	bears := func(uid types.UID, keys ...string) {
		t.Helper()
		tellChanged(t, e, uid, func(p *wire.Pod) {
			p.Pod.Annotations = map[string]string{"note": "x"}
			for _, key := range keys {
				p.Pod.Annotations[key] = "x"
			}
		})
		e.mu.Lock()
		defer e.mu.Unlock()
		e.reportLeftOutAnnotations(e.pods[at])
	}
	bears("hub-1", "k8s.v1.cni.cncf.io/networks")
	if keys := e.events.Keys(); len(keys) > 0 {
		t.Errorf("said of a pod that is not there: %v", keys)
	}
	e.observePod(inSpoke(t, "spoke-1", "hub-1", "5"))
	const key = "shop/web/hub-1-annotations"
	var told []resource.Hash
	for _, more := range [][]string{nil, nil, {"iam.amazonaws.com/role"}, {"iam.amazonaws.com/role"}} {
		bears("hub-1", append(more, "k8s.v1.cni.cncf.io/networks")...)
		ref, ok := e.events.Ref(key)
		if !ok {
			t.Fatalf("nothing is said: %v", e.events.Keys())
		}
		told = append(told, ref.Hash)
	}
	if told[0] != told[1] || told[1] == told[2] || told[2] != told[3] {
		t.Error("it is not said once for each set of annotations")
	}
	bears("hub-2", "k8s.v1.cni.cncf.io/networks")
	e.observePodDeleted(at, "spoke-1", nil)
	e.observePod(inSpoke(t, "spoke-2", "hub-2", "6"))
	bears("hub-2", "k8s.v1.cni.cncf.io/networks")
	if _, ok := e.events.Ref("shop/web/hub-2-annotations"); !ok {
		t.Error("nothing is said of the pod that replaced it")
	}
}
