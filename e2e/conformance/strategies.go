// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"

	workv1 "open-cluster-management.io/api/work/v1"
)

// strategyCases are CreateOnly and ReadOnly.
func strategyCases() map[string]Case {
	createOnly := configs(option("configmaps", "a", strategy("CreateOnly")))
	return map[string]Case{
		"CreateOnly creates, and then leaves the object alone": {
			reason: "facts 1.5.2, 4.8: edits stay, on the event as with a new generation",
			spec:   spec(createOnly, cm("a", "1")),
			then: func(s *stage) {
				s.good("$w")
				s.owned("ConfigMap", "a", "$w")
				s.onlyManager("ConfigMap", "a")
				s.patch("ConfigMap", "a", "data: {k: theirs}")
				s.later()
				s.still("ConfigMap", "a", "data: {k: theirs}")
				s.update("$w", spec(createOnly, cm("a", "2"), cm("b", "1")))
				s.shows("$w", "work\n+work@2\n"+cmMeta(0, "a")+"+again@2\n"+cmMeta(1, "b")+"+manifest@2")
				s.still("ConfigMap", "a", "data: {k: theirs}")
				s.lists("$w", "configmaps/a", "configmaps/b")
			},
		},
		"CreateOnly maintains its ownerReference, and makes a deleted object again": {
			reason: "facts 1.5.2: only the ownerReference is maintained; absence is drift",
			spec:   spec(createOnly, cm("a", "1")),
			then: func(s *stage) {
				s.good("$w")
				s.patch("ConfigMap", "a", "{metadata: {ownerReferences: null}, data: {k: theirs}}")
				s.owned("ConfigMap", "a", "$w")
				s.still("ConfigMap", "a", "data: {k: theirs}")
				old := s.get("ConfigMap", "a").GetUID()
				s.remove("ConfigMap", "a")
				s.another("ConfigMap", "a", old)
				s.has("ConfigMap", "a", "data: {k: '1'}")
			},
		},
		"CreateOnly takes over what is there as it is, and deletes it with the work": {
			reason: "facts 1.5.2, 1.1: owned, and so deleted in the foreground",
			ready:  func(s *stage) { s.make(cm("a", "theirs")) },
			spec:   spec(createOnly, cm("a", "1")),
			want:   "work\n+work@1\n" + cmMeta(0, "a") + "+manifest@1",
			then: func(s *stage) {
				s.owned("ConfigMap", "a", "$w")
				s.still("ConfigMap", "a", "data: {k: theirs}")
				s.ends("$w")
				s.absent("ConfigMap", "a")
			},
		},
	}
}

// readOnlyCases are about objects that are only looked at.
func readOnlyCases() map[string]Case {
	readOnly := configs(option("configmaps", "a", strategy("ReadOnly")+", "+paths("value", ".data.k")))
	return map[string]Case{
		"ReadOnly reads, and never writes": {
			reason: "facts 1.5.3, 4.13: no ownerReference, no field; listed with its live UID; it survives the work",
			ready:  func(s *stage) { s.make(cm("a", "theirs")) },
			spec:   spec(readOnly, cm("a", "1")),
			want:   "work\n+work@1\n" + cmMeta(0, "a") + "+applied@1\n+there\n+heard\nvalue = String theirs",
			then: func(s *stage) {
				before := s.get("ConfigMap", "a")
				if before.GetOwnerReferences() != nil || managers(before) != somebody {
					s.t.Errorf("owners %v, managers %s", before.GetOwnerReferences(), managers(before))
				}
				s.lists("$w", "configmaps/a")
				s.patch("ConfigMap", "a", "data: {k: changed}")
				s.shows("$w", "work\n+work@1\n"+cmMeta(0, "a")+"+applied@1\n+there\n+heard\nvalue = String changed")
				s.ends("$w")
				if after := s.still("ConfigMap", "a", "data: {k: changed}"); after.GetUID() != before.GetUID() || after.GetOwnerReferences() != nil {
					s.t.Errorf("the object became %v", after.Object)
				}
			},
		},
		"ReadOnly follows an object that comes and goes": {
			reason: "facts 1.3, 1.5.3: Applied either way; listed while it is there; the old values stay when the GET fails",
			spec:   spec(readOnly, cm("a", "1")),
			then: func(s *stage) {
				absent := `
					work
					Applied=True AppliedManifestWorkComplete @1: Apply manifest work complete
					Available=False ResourcesNotAvailable @1: 1 of 1 resources are not available
					` + cmMeta(0, "a") + "+applied@1\n+missing\n"
				s.shows("$w", absent+"?StatusFeedbackSynced=*")
				s.absent("ConfigMap", "a")
				s.lists("$w")
				first := s.make(cm("a", "one")).GetUID()
				s.shows("$w", "work\n+work@1\n"+cmMeta(0, "a")+"+applied@1\n+there\n+heard\nvalue = String one")
				s.lists("$w", "configmaps/a")
				s.remove("ConfigMap", "a")
				s.shows("$w", absent+"+heard\nvalue = String one")
				second := s.make(cm("a", "two")).GetUID()
				s.shows("$w", "work\n+work@1\n"+cmMeta(0, "a")+"+applied@1\n+there\n+heard\nvalue = String two")
				if first == second {
					s.t.Error("the second object is the first")
				}
				s.untilAnchor("$w", "lists the second", func(amw *workv1.AppliedManifestWork) error {
					if got := amw.Status.AppliedResources; len(got) != 1 || got[0].UID != string(second) {
						return fmt.Errorf("it lists %v, the first was %s", got, first)
					}
					return nil
				})
			},
		},
		"a manifest that becomes ReadOnly lets its object go": {
			reason: "facts 1.5.3, 4.13: never deleted, so no ownerReference may be left",
			spec:   spec("", cm("a", "1")),
			then: func(s *stage) {
				s.good("$w")
				s.owned("ConfigMap", "a", "$w")
				s.update("$w", spec(readOnly, cm("a", "1")))
				s.good("$w")
				s.owned("ConfigMap", "a")
				s.ends("$w")
				s.still("ConfigMap", "a", "data: {k: '1'}")
			},
		},
	}
}
