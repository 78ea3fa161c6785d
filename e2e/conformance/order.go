// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	workv1 "open-cluster-management.io/api/work/v1"
)

// orderCases are about where conditions stand in their lists, and their times.
func orderCases() map[string]Case {
	read := paths("value", ".data.k")
	return map[string]Case{
		"a manifest at another place keeps its conditions": {
			reason: "facts 1.2, 4.7: entries are carried over without the ordinal; conditions[0] is the one that readers take, and its time stays",
			spec:   spec(configs(option("configmaps", "*", read)), cm("a", "1"), cm("b", "1")),
			then: func(s *stage) {
				s.good("$w")
				s.update("$w", spec(configs(option("configmaps", "*", read)), cm("a", "1"), cm("b", "1"), cm("c", "1")))
				before := s.told("$w")
				s.tick()
				s.update("$w", spec(configs(option("configmaps", "*", read)), cm("b", "1"), cm("a", "1")))
				after := s.shows("$w", `
					work
					+work@3
					`+cmMeta(0, "b")+`
					+there
					+heard
					+applied@3
					value = String 1
					`+cmMeta(1, "a")+`
					+there
					+heard
					+applied@3
					value = String 1
				`)
				s.times(before.Status.ResourceStatus.Manifests[0].Conditions, after.Status.ResourceStatus.Manifests[1].Conditions,
					map[string]bool{"Applied": true, "Available": false, "StatusFeedbackSynced": false})
			},
		},
		"feedback survives an apply": {
			reason: "facts 1.2: values are carried over to the next generation",
			spec:   spec(configs(option("configmaps", "a", read)), cm("a", "1"), cm("b", "1")),
			then: func(s *stage) {
				s.told("$w")
				stop := s.record("$w", func(mw *workv1.ManifestWork) error {
					for _, m := range mw.Status.ResourceStatus.Manifests {
						if m.ResourceMeta.Name == "a" && len(m.StatusFeedbacks.Values) == 0 {
							return fmt.Errorf("without values at generation %d", mw.Generation)
						}
					}
					return nil
				})
				s.update("$w", spec(configs(option("configmaps", "a", read)), cm("a", "1"), cm("b", "2")))
				s.good("$w")
				stop()
			},
		},
		"a change of the object that says nothing new is not written": {
			reason: "facts 1.2: conditions change time only when the status changes, and a hub is not told what it knows",
			spec:   spec(configs(option("configmaps", "a", read)), cm("a", "1")),
			then: func(s *stage) {
				before := s.told("$w")
				s.patch("ConfigMap", "a", "metadata: {annotations: {note: theirs}}")
				s.later()
				after := s.good("$w")
				if before.ResourceVersion != after.ResourceVersion {
					s.t.Errorf("the work was written from %v to %v", render(before.Status), render(after.Status))
				}
			},
		},
	}
}

// timeCases are about which times move, and which do not.
func timeCases() map[string]Case {
	return map[string]Case{
		"a new generation moves Applied of a manifest to the end, with a new time": {
			reason: "facts 1.2: removed and appended again; the others keep place and time",
			spec:   spec("", cm("a", "1")),
			then: func(s *stage) {
				before := s.told("$w")
				s.tick()
				s.update("$w", spec("", cm("a", "2")))
				after := s.shows("$w", "work\n+work@2\n"+cmMeta(0, "a")+"+again@2")
				s.times(before.Status.ResourceStatus.Manifests[0].Conditions, after.Status.ResourceStatus.Manifests[0].Conditions,
					map[string]bool{"Applied": true, "Available": false, "StatusFeedbackSynced": false})
				s.times(before.Status.Conditions, after.Status.Conditions, map[string]bool{"Applied": false, "Available": false})
			},
		},
		"changed feedback moves StatusFeedbackSynced, with a new time": {
			reason: "facts 1.2: removed and set again; the others keep their time, those of the work too",
			spec:   spec(configs(option(things, "a", paths("value", ".status.size"))), thing("a", "spec: {size: 1}")),
			then: func(s *stage) {
				before := s.told("$w")
				s.tick()
				s.patch("Thing", "a", "status: {size: 7}", "status")
				after := s.shows("$w", `
					work
					+work@1
					`+thingMeta(0, "a")+`
					+applied@1
					+there
					+heard
					value = Integer 7
				`)
				s.times(before.Status.ResourceStatus.Manifests[0].Conditions, after.Status.ResourceStatus.Manifests[0].Conditions,
					map[string]bool{"Applied": false, "Available": false, "StatusFeedbackSynced": true})
				s.times(before.Status.Conditions, after.Status.Conditions, map[string]bool{"Applied": false, "Available": false})
			},
		},
		"a failure that is mended moves the times of what changed": {
			reason: "facts 1.2: the work's conditions change time with their status",
			spec:   spec("", cm("a", "1"), cm("B_B", "1")),
			then: func(s *stage) {
				before := s.shows("$w", "work\n+failed@1\nAvailable=False ResourcesNotAvailable @1: 1 of 2 resources are not available\n"+
					cmMeta(0, "a")+"+manifest@1\n"+cmMeta(1, "B_B")+"Applied=False *\n+missing\n?+silent")
				s.tick()
				s.update("$w", spec("", cm("a", "1")))
				after := s.shows("$w", "work\n+work@2\n"+cmMeta(0, "a")+"+again@2")
				s.times(before.Status.Conditions, after.Status.Conditions, map[string]bool{"Applied": true, "Available": true})
			},
		},
	}
}

// times checks which conditions got a later time, and that the others kept theirs.
func (s *stage) times(before, after []metav1.Condition, moved map[string]bool) {
	s.t.Helper()
	for kind, want := range moved {
		b, a := meta.FindStatusCondition(before, kind), meta.FindStatusCondition(after, kind)
		switch {
		case b == nil || a == nil:
			s.t.Errorf("%s: got %v, then %v", kind, b, a)
		case want && !b.LastTransitionTime.Before(&a.LastTransitionTime):
			s.t.Errorf("%s: its time stayed %s (facts 1.2)", kind, b.LastTransitionTime)
		case !want && !b.LastTransitionTime.Equal(&a.LastTransitionTime):
			s.t.Errorf("%s: its time moved from %s to %s (facts 1.2)", kind, b.LastTransitionTime, a.LastTransitionTime)
		}
	}
}

// record looks at every version that a work comes to have, until it is stopped,
// and fails the case for what so is not content with.
func (s *stage) record(name string, so func(*workv1.ManifestWork) error) (stop func()) {
	s.t.Helper()
	return s.watched(s.onHub(), s.text(name), func(obj *unstructured.Unstructured) error {
		mw := &workv1.ManifestWork{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, mw); err != nil {
			return err
		}
		return so(mw)
	})
}

// watched does so with any object.
func (s *stage) watched(in dynamic.ResourceInterface, name string, so func(*unstructured.Unstructured) error) (stop func()) {
	s.t.Helper()
	from, err := in.Get(s.ctx, name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	watcher, err := in.Watch(s.ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(), ResourceVersion: from.GetResourceVersion(),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return func() {
		s.t.Helper()
		defer watcher.Stop()
		to, err := in.Get(s.ctx, name, metav1.GetOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		for version := from.GetResourceVersion(); version != to.GetResourceVersion(); {
			e, ok := <-watcher.ResultChan()
			obj, isObject := e.Object.(*unstructured.Unstructured)
			if !ok || !isObject {
				s.t.Fatalf("the watch ended before version %s: %v", to.GetResourceVersion(), e.Object)
			}
			version = obj.GetResourceVersion()
			if err := so(obj); err != nil {
				s.t.Error(err)
			}
		}
	}
}

// later returns when things have happened, on both sides, that were asked for after
// everything so far: what has not happened by then is taken for never.
func (s *stage) later() {
	s.t.Helper()
	name, body := s.ns+"-later", func(value string) string {
		return spec(configs(option("configmaps", "later", paths("mark", ".metadata.annotations.mark"))), cm("later", value))
	}
	if s.marks == 0 {
		s.create(name, body("0"))
		s.good(name)
	}
	for range 2 {
		s.marks++
		mark := strconv.Itoa(s.marks)
		s.patch("ConfigMap", "later", fmt.Sprintf("metadata: {annotations: {mark: %q}}", mark))
		s.untilWork(name, "shows mark "+mark, func(mw *workv1.ManifestWork) error {
			if text := strings.Join(render(mw.Status), "\n"); !strings.Contains(text, "mark = String "+mark) {
				return fmt.Errorf("it shows:\n%s", text)
			}
			return nil
		})
		s.update(name, body(mark))
		s.good(name)
	}
}
