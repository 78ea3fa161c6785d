// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	k8stesting "k8s.io/client-go/testing"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

func pulled(count int32, last metav1.Time) wire.PodEvent {
	return wire.PodEvent{
		Type: corev1.EventTypeNormal, Reason: "Pulled", Message: "the image is there", Count: count,
		First: early2000, Last: metav1.NewMicroTime(last.Time), FieldPath: "spec.containers{main}", Source: "kubelet", Host: "n1",
	}
}

// reports is an event of the agent about the pod "a".
func (r *rig) reports(uid string, e wire.PodEvent) {
	r.t.Helper()
	r.handleEvent(spoke, resource.Resource{Key: "default/a/" + uid, UID: "uid-of-a", Body: encoded(r.t, e)})
	synctest.Wait()
}

func (r *rig) events() []corev1.Event {
	r.t.Helper()
	list, err := r.client.CoreV1().Events("default").List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return list.Items
}

func TestSpokeEventBecomesEventOfTheHubPod(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		r.requests()
		r.reports("e1", pulled(1, early2000))
		r.reports("e1", pulled(3, later))
		events := r.events()
		if len(events) != 1 {
			t.Fatalf("%d events", len(events))
		}
		got := events[0]
		got.ManagedFields, got.TypeMeta = nil, metav1.TypeMeta{}
		want := corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: eventName("a", "e1")},
			InvolvedObject: corev1.ObjectReference{
				APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "a", UID: "uid-of-a", FieldPath: "spec.containers{main}",
			},
			Type: corev1.EventTypeNormal, Reason: "Pulled", Message: "the image is there", Count: 3,
			FirstTimestamp: early2000, LastTimestamp: later,
			Source: corev1.EventSource{Component: "kubelet", Host: "n1"}, ReportingController: "spokelet.io/hub",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("event (-want +got):\n%s", diff)
		}
		// As after a restart of the hub.
		r.Controller.events.deleteEvent(spoke, "default/a/e1")
		r.requests()
		r.reports("e1", pulled(3, later))
		if diff := cmp.Diff(map[string]int{"create events": 1}, r.requests()); diff != "" {
			t.Errorf("an event that is there (-want +got):\n%s", diff)
		}
	}, podNamed("a"))
}

func TestWrittenEventIsUpdatedInOneRequest(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		r.reports("e1", pulled(1, early2000))
		r.client.ClearActions()
		r.reports("e1", pulled(3, later))
		if n := len(r.client.Actions()); n != 1 {
			t.Errorf("%d requests: %v", n, r.client.Actions())
		}
		if events := r.events(); len(events) != 1 || events[0].Count != 3 || !events[0].LastTimestamp.Equal(&later) {
			t.Errorf("events: %v", events)
		}
		// Events expire.
		if err := r.client.CoreV1().Events("default").Delete(t.Context(), eventName("a", "e1"), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.reports("e1", pulled(4, later))
		if events := r.events(); len(events) != 1 || events[0].Count != 4 {
			t.Errorf("events after the first expired: %v", events)
		}
	}, podNamed("a"))
}

func TestEventInFlightIsNotMovedToAPodOfTheSameName(t *testing.T) {
	key := wire.PodKey{Namespace: "default", Name: "a"}
	cases := map[string]struct {
		reason    string
		meanwhile func(*rig)
	}{
		"its pod is replaced": {reason: "the successor did nothing of the kind", meanwhile: func(r *rig) {
			successor := podNamed("a", func(p *corev1.Pod) { p.UID = "another" })
			r.podHandler(r.getCluster(spoke), spoke).HandleEvent(successor, false)
			r.updatePod(podRef{cluster: spoke, key: key}, func(h *podState) { h.events = map[string]eventState{} })
		}},
		"it is withdrawn": {reason: "the agent has it no more, and makes no room for it again", meanwhile: func(r *rig) {
			r.Controller.events.deleteEvent(spoke, "default/a/e")
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(r *rig) {
				var once sync.Once
				r.client.PrependReactor("create", "events", func(k8stesting.Action) (failed bool, _ runtime.Object, err error) {
					once.Do(func() {
						tc.meanwhile(r)
						failed, err = true, apierrors.NewServiceUnavailable("boom")
					})
					return failed, nil, err
				})
				r.watch(spoke)
				r.reports("e", pulled(1, early2000))
				<-time.After(time.Hour)
				synctest.Wait()
				for _, e := range r.events() {
					t.Errorf("%s: an event about %s", tc.reason, e.InvolvedObject.UID)
				}
				r.updatePod(podRef{cluster: spoke, key: key}, func(h *podState) {
					if len(h.events) != 0 || h.eventLimit.refunded != 0 {
						t.Errorf("%s: %d events are kept, and %d more may be written", tc.reason, len(h.events), h.eventLimit.refunded)
					}
				})
			}, podNamed("a"))
		})
	}
}

func TestEventsPerPodAreBounded(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		r.requests()
		for i := range 2 * wire.PodEventsMax {
			key := fmt.Sprintf("default/a/e%d", i)
			if known := r.Controller.events.acceptsEvent(spoke, key); known != (i < wire.PodEventsMax) {
				t.Errorf("event %d: known is %t", i, known)
			}
			r.reports(fmt.Sprintf("e%d", i), pulled(1, early2000))
		}
		if got := r.requests()["create events"]; got != eventBurst {
			t.Errorf("%d events are written at once, want %d", got, eventBurst)
		}
		r.Controller.events.deleteEvent(spoke, "default/a/e0")
		if !r.Controller.events.acceptsEvent(spoke, "default/a/new") {
			t.Error("one was withdrawn, and there is no room")
		}
		<-time.After(eventEvery)
		r.reports("new", pulled(1, early2000))
		if got := r.requests()["create events"]; got != 1 {
			t.Errorf("%d events are written after %s", got, eventEvery)
		}
	}, podNamed("a"))
}

func TestHubRestartDoesNotUseUpTheEventLimit(t *testing.T) {
	pod := podNamed("a")
	objects := []runtime.Object{pod}
	for i := range 2 * eventBurst {
		objects = append(objects, newEvent(pod, fmt.Sprintf("old%d", i), pulled(1, early2000)))
	}
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		for i := range 2 * eventBurst {
			r.reports(fmt.Sprintf("old%d", i), pulled(1, early2000))
		}
		for i := range wire.PodEventsMax - 2*eventBurst {
			r.reports(fmt.Sprintf("new%d", i), pulled(1, early2000))
		}
		if got := len(r.events()); got != wire.PodEventsMax {
			t.Errorf("%d events are there, want all %d", got, wire.PodEventsMax)
		}
		// What is there is not told of for nothing without end.
		r.requests()
		for i := range 10 * wire.PodEventsMax {
			r.reports("old0", pulled(-int32(i), early2000))
		}
		if got := r.requests()["create events"]; got > wire.PodEventsMax+eventBurst {
			t.Errorf("%d attempts at an event that is there", got)
		}
	}, objects...)
}

func TestOutageDoesNotUseUpTheEventLimit(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		var failures atomic.Int64
		failures.Store(3 * eventBurst)
		r.client.PrependReactor("create", "events", func(k8stesting.Action) (bool, runtime.Object, error) {
			return failures.Add(-1) >= 0, nil, apierrors.NewServiceUnavailable("boom")
		})
		r.watch(spoke)
		for i := range eventBurst {
			r.reports(fmt.Sprintf("e%d", i), pulled(1, early2000))
		}
		<-time.After(eventEvery / 2)
		synctest.Wait()
		if got := len(r.events()); got != eventBurst {
			t.Errorf("%d events are written, want %d", got, eventBurst)
		}
	}, podNamed("a"))
}

func TestUnknownOrMalformedEventsAreDropped(t *testing.T) {
	cases := map[string]struct {
		reason   string
		resource resource.Resource
	}{
		"of another pod":     {"it has the name alone", resource.Resource{Key: "default/a/e", UID: "another"}},
		"of no pod":          {"nothing is held for it", resource.Resource{Key: "default/b/e", UID: "uid-of-b"}},
		"with a bad key":     {"nothing is said by it", resource.Resource{Key: "default/a/", UID: "uid-of-a"}},
		"with no key":        {"nothing is said by it", resource.Resource{Key: "e", UID: "uid-of-a"}},
		"that is not one":    {"it cannot be read", resource.Resource{Key: "default/a/e", UID: "uid-of-a", Body: []byte("{")}},
		"of an unknown type": {"the API server takes two", resource.Resource{Key: "default/a/e", UID: "uid-of-a", Body: []byte(`{"type":"Odd","reason":"x"}`)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(r *rig) {
				r.watch(spoke)
				defer r.connect(spoke)()
				r.requests()
				r.handleEvent(spoke, tc.resource)
				r.handleEvent("spoke2", tc.resource)
				<-time.After(time.Hour)
				synctest.Wait()
				if diff := cmp.Diff(map[string]int{}, r.requests()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			}, podNamed("a"))
		})
	}
}

func TestEventWriteIsRetriedUntilItIsHopeless(t *testing.T) {
	events := corev1.Resource("events")
	cases := map[string]struct {
		reason string
		err    error
		writes int
	}{
		"an outage":                         {"it is tried a few times", apierrors.NewServiceUnavailable("boom"), eventTries + 1},
		"a namespace that is being deleted": {"it will not be better", apierrors.NewForbidden(events, "e", errors.New("boom")), 1},
		"a bad request":                     {"it will not be better", apierrors.NewBadRequest("boom"), 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(r *rig) {
				r.client.PrependReactor("create", "events", func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, tc.err })
				r.watch(spoke)
				r.requests()
				r.reports("e", pulled(1, early2000))
				<-time.After(time.Hour)
				synctest.Wait()
				if got := r.requests()["create events"]; got != tc.writes {
					t.Errorf("%s: %d writes, want %d", tc.reason, got, tc.writes)
				}
			}, podNamed("a"))
		})
	}
}

func TestEventNameIsValid(t *testing.T) {
	for _, pod := range []string{"a", strings.Repeat("a", 253), strings.Repeat("a", 235) + "." + strings.Repeat("b", 17)} {
		name := eventName(pod, "uid")
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
		if name == eventName(pod, "another") || name != eventName(pod, "uid") {
			t.Errorf("%s is not the event's own", name)
		}
	}
}
