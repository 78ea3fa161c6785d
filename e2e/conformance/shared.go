// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	workv1 "open-cluster-management.io/api/work/v1"
)

// sharedCases are about works that have an object in common.
func sharedCases() map[string]Case {
	plain := "work\n+work@1\n" + cmMeta(0, "a") + "+manifest@1"
	return map[string]Case{
		"works that agree share an object until the last one goes": {
			reason: "facts 2.4, 4.14: one ownerReference per work; a departing work removes its own; nobody is told anything",
			spec:   spec("", cm("a", "1")),
			then: func(s *stage) {
				s.create("$w-two", spec("", cm("a", "1")))
				s.good("$w")
				s.good("$w-two")
				s.owned("ConfigMap", "a", "$w", "$w-two")
				uid, version := s.get("ConfigMap", "a").GetUID(), s.get("ConfigMap", "a").GetResourceVersion()
				s.later()
				if after := s.get("ConfigMap", "a").GetResourceVersion(); after != version {
					s.t.Errorf("the object went from version %s to %s", version, after)
				}
				s.shows("$w", plain)
				s.shows("$w-two", plain)
				stop := s.releases()
				s.ends("$w")
				s.owned("ConfigMap", "a", "$w-two")
				s.later()
				stop()
				if s.get("ConfigMap", "a").GetUID() != uid {
					s.t.Error("the object was made anew")
				}
				s.ends("$w-two")
				s.absent("ConfigMap", "a")
			},
		},
		"works that disagree are told so, and do not fight": {
			reason: "issue 3 (better than the original), facts 4.14: SharedResources names the other while the values differ; the last applied wins",
			spec:   spec("", cm("a", "one")),
			want:   plain,
			then: func(s *stage) {
				s.create("$w-two", spec("", cm("a", "two")))
				s.disagrees("$w", "$w-two")
				s.disagrees("$w-two", "$w")
				s.has("ConfigMap", "a", "data: {k: two}")
				s.owned("ConfigMap", "a", "$w", "$w-two")
				s.later()
				version := s.get("ConfigMap", "a").GetResourceVersion()
				stop := s.record("$w", func(mw *workv1.ManifestWork) error {
					if !meta.IsStatusConditionTrue(mw.Status.Conditions, "SharedResources") {
						return fmt.Errorf("in between it shows:\n%s", strings.Join(render(mw.Status), "\n"))
					}
					return nil
				})
				s.later()
				s.later()
				stop()
				if after := s.still("ConfigMap", "a", "data: {k: two}").GetResourceVersion(); after != version {
					s.t.Errorf("the object went from version %s to %s: the works fight", version, after)
				}
				s.patch("ConfigMap", "a", "data: {k: theirs}")
				s.has("ConfigMap", "a", "data: {k: two}")
				s.update("$w", spec("", cm("a", "three")))
				s.has("ConfigMap", "a", "data: {k: three}")
				s.update("$w-two", spec("", cm("a", "three")))
				s.agrees("$w")
				s.agrees("$w-two")
				s.still("ConfigMap", "a", "data: {k: three}")
			},
		},
		"when one of those who disagree goes, the other has its way": {
			reason: "issue 3 (better than the original), facts 2.4: the condition goes with the reason for it",
			spec:   spec("", cm("a", "one")),
			want:   plain,
			then: func(s *stage) {
				s.create("$w-two", spec("", cm("a", "two")))
				s.disagrees("$w", "$w-two")
				s.owned("ConfigMap", "a", "$w", "$w-two")
				stop := s.releases()
				s.ends("$w-two")
				s.agrees("$w")
				s.has("ConfigMap", "a", "data: {k: one}")
				s.owned("ConfigMap", "a", "$w")
				s.later()
				stop()
			},
		},
	}
}

// releaseCases are about works that give up an object and stay, beside one that
// keeps it.
func releaseCases() map[string]Case {
	after := func(leave func(*stage)) func(*stage) {
		return func(s *stage) {
			s.create("$w-two", spec("", cm("a", "1")))
			s.good("$w")
			s.good("$w-two")
			s.owned("ConfigMap", "a", "$w", "$w-two")
			stop := s.releases()
			leave(s)
			s.good("$w")
			s.owned("ConfigMap", "a", "$w-two")
			s.later()
			stop()
			s.patch("ConfigMap", "a", "data: {k: theirs}")
			s.has("ConfigMap", "a", "data: {k: '1'}")
			s.owned("ConfigMap", "a", "$w-two")
			s.ends("$w")
			s.owned("ConfigMap", "a", "$w-two")
			s.ends("$w-two")
			s.absent("ConfigMap", "a")
		}
	}
	return map[string]Case{
		"a manifest that leaves a work leaves its object to the other": {
			reason: "facts 2.4, 4.14: the reference goes, and stays away when the object is repaired",
			spec:   spec("", cm("a", "1"), cm("b", "1")),
			then:   after(func(s *stage) { s.update("$w", spec("", cm("b", "1"))) }),
		},
		"a work that orphans an object leaves it to the other": {
			reason: "facts 4.13, 4.14: the same while the manifest stays",
			spec:   spec("", cm("a", "1")),
			then:   after(func(s *stage) { s.update("$w", spec("deleteOption: {propagationPolicy: Orphan}", cm("a", "1"))) }),
		},
	}
}

// releases watches the ConfigMap a, which works share; what it returns fails when
// an owner went and came back. Where a garbage collector runs, looking once would
// not show that.
func (s *stage) releases() (stop func()) {
	s.t.Helper()
	known, before := map[types.UID]bool{}, s.get("ConfigMap", "a").GetOwnerReferences()
	return s.watched(s.on("ConfigMap"), "a", func(obj *unstructured.Unstructured) error {
		now := obj.GetOwnerReferences()
		for _, o := range before {
			known[o.UID] = true
		}
		for _, o := range now {
			if known[o.UID] && !slices.ContainsFunc(before, func(b metav1.OwnerReference) bool { return b.UID == o.UID }) {
				return fmt.Errorf("%s is an owner again", o.Name)
			}
		}
		before = now
		return nil
	})
}

// disagrees waits until a work is told that another wants something else.
func (s *stage) disagrees(name, other string) {
	s.t.Helper()
	s.untilWork(name, "is told of the other", func(mw *workv1.ManifestWork) error {
		c := meta.FindStatusCondition(mw.Status.Conditions, "SharedResources")
		if c == nil || c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, s.text(other)) || c.ObservedGeneration != mw.Generation {
			return fmt.Errorf("it shows:\n%s", strings.Join(render(mw.Status), "\n"))
		}
		return nil
	})
}

// agrees waits until a work has no such condition any more.
func (s *stage) agrees(name string) {
	s.t.Helper()
	s.good(name)
	s.untilWork(name, "is told of no other", func(mw *workv1.ManifestWork) error {
		if meta.FindStatusCondition(mw.Status.Conditions, "SharedResources") != nil {
			return fmt.Errorf("it shows:\n%s", strings.Join(render(mw.Status), "\n"))
		}
		return nil
	})
}
