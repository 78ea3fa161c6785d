// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"
)

// deletionCases are about pruning, the delete options and the end of a work.
func deletionCases() map[string]Case {
	held := func(name string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: $ns, finalizers: [example.com/held]}}", name)
	}
	return map[string]Case{
		"a deleted work goes when its objects are gone, and says so before": {
			reason: "facts 1.1, 1.3, 4.4, 4.6, 4.12: WorkDeleting is visible; a finalizing object stays listed; nothing is left to the garbage collector",
			spec:   spec("", cm("a", "1"), held("held"), deployment("d", "replicas: 0,"), thing("t", "spec: {}")),
			then: func(s *stage) {
				s.good("$w")
				s.delete("$w")
				s.untilWork("$w", "is deleting", func(mw *workv1.ManifestWork) error {
					c := meta.FindStatusCondition(mw.Status.Conditions, workv1.WorkDeleting)
					if c == nil || c.Status != metav1.ConditionTrue || c.Reason != "WorkDeleting" || c.Message != "ManifestWork is being deleted" || c.ObservedGeneration != mw.Generation {
						return fmt.Errorf("condition Deleting is not told as in facts 1.3; at generation %d it shows:\n%s", mw.Generation, strings.Join(render(mw.Status), "\n"))
					}
					return nil
				})
				s.lists("$w", "configmaps/held")
				s.absent("ConfigMap", "a")
				s.absent("Deployment", "d")
				s.absent("Thing", "t")
				s.lift("ConfigMap", "held")
				s.gone("the work", s.onHub(), "$w")
				s.absent("ConfigMap", "held")
				s.absent("AppliedManifestWork", s.anchorOf("$w"))
			},
		},
		"what a work no longer has is pruned": {
			reason: "facts 1.1, 4.6: a finalizing object stays listed until it is gone; its entry leaves the status at once",
			spec:   spec("", cm("a", "1"), held("held")),
			then: func(s *stage) {
				s.good("$w")
				s.update("$w", spec("", cm("a", "1")))
				s.shows("$w", "work\n+work@2\n"+cmMeta(0, "a")+"+again@2")
				s.until("the pruned object is deleting", s.on("ConfigMap"), "held", deleting)
				s.lists("$w", "configmaps/a", "configmaps/held")
				s.lift("ConfigMap", "held")
				s.lists("$w", "configmaps/a")
				s.absent("ConfigMap", "held")
			},
		},
		"a work that goes before it was applied leaves nothing": {
			reason: "facts 4.5: apply and delete are serialised; no object may exist or reappear",
			then: func(s *stage) {
				for i := range 5 {
					name := fmt.Sprintf("$w-%d", i)
					s.create(name, spec("", cm("a", "1"), cm("b", "1"), thing("t", "spec: {}")))
					s.untilWork(name, "has its finalizer", func(mw *workv1.ManifestWork) error {
						if len(mw.Finalizers) == 0 {
							return errAbsent
						}
						return nil
					})
					s.ends(name)
					s.nothing()
				}
				s.later()
				s.nothing()
			},
		},
		"a work that goes at once leaves nothing": {
			reason: "facts 4.5: even if it is gone before it got its finalizer, and another of its name comes after it",
			then: func(s *stage) {
				for range 8 {
					s.create("$w", spec("", cm("a", "1"), cm("b", "1"), thing("t", "spec: {}")))
					s.ends("$w")
				}
				s.later()
				s.gone("the anchor", s.on("AppliedManifestWork"), s.anchorOf("$w"))
				s.nothing()
				s.create("$w", spec("", cm("a", "1")))
				s.good("$w")
			},
		},
		"an object with other owners is deleted too": {
			reason: "facts 2.4, 4.4: without any anchor as an owner it goes, whoever else owns it",
			ready:  func(s *stage) { s.make(cm("other", "1")) },
			spec:   spec("", cm("a", "1")),
			then: func(s *stage) {
				s.good("$w")
				other := s.get("ConfigMap", "other")
				owner := string(s.anchor("$w").UID)
				s.patch("ConfigMap", "a", fmt.Sprintf(`metadata: {ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: other, uid: %q},
					{apiVersion: work.open-cluster-management.io/v1, kind: AppliedManifestWork, name: %s, uid: %q}]}`, other.GetUID(), s.anchorOf("$w"), owner))
				s.ends("$w")
				s.absent("ConfigMap", "a")
				s.get("ConfigMap", "other")
			},
		},
	}
}

// orphanCases are about objects that stay.
func orphanCases() map[string]Case {
	orphan := "deleteOption: {propagationPolicy: Orphan}"
	orphanOne := "deleteOption: {propagationPolicy: SelectivelyOrphan, selectivelyOrphans: {orphaningRules: [{group: '', resource: configmaps, name: a, namespace: $ns}]}}"
	return map[string]Case{
		"Orphan leaves the objects, without an owner": {
			reason: "facts 1.1, 4.13",
			spec:   spec(orphan, cm("a", "1"), thing("t", "spec: {size: 1}")),
			then: func(s *stage) {
				s.good("$w")
				s.ends("$w")
				s.still("ConfigMap", "a", "{metadata: {ownerReferences: null, deletionTimestamp: null}, data: {k: '1'}}")
				s.still("Thing", "t", "{metadata: {ownerReferences: null, deletionTimestamp: null}, spec: {size: 1}}")
			},
		},
		"SelectivelyOrphan leaves what matches a rule": {
			reason: "facts 1.1: exact match of group, resource, name and namespace",
			spec:   spec(orphanOne, cm("a", "1"), cm("b", "1"), `{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: $ns}}`),
			then: func(s *stage) {
				s.good("$w")
				s.owned("ConfigMap", "a")
				s.owned("ConfigMap", "b", "$w")
				s.ends("$w")
				s.still("ConfigMap", "a", "{metadata: {ownerReferences: null}, data: {k: '1'}}")
				s.absent("ConfigMap", "b")
				s.absent("Secret", "a")
			},
		},
		"an orphaned object is not pruned": {
			reason: "facts 1.1: how an object moves from one work to another without a gap",
			spec:   spec(orphanOne, cm("a", "1"), cm("b", "1")),
			then: func(s *stage) {
				s.good("$w")
				uid := s.get("ConfigMap", "a").GetUID()
				s.create("$w-two", spec("", cm("a", "1")))
				s.good("$w-two")
				stop := s.releases()
				s.update("$w", spec(orphanOne, cm("b", "1")))
				s.good("$w")
				s.lists("$w", "configmaps/b")
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
		"the delete option may change while the work lives": {
			reason: "facts 4.13: the ownerReference goes and comes with it",
			spec:   spec("", cm("a", "1"), cm("b", "1")),
			then: func(s *stage) {
				s.good("$w")
				s.owned("ConfigMap", "a", "$w")
				s.update("$w", spec(orphan, cm("a", "1"), cm("b", "1")))
				s.good("$w")
				s.owned("ConfigMap", "a")
				s.owned("ConfigMap", "b")
				s.update("$w", spec(orphanOne, cm("a", "1"), cm("b", "1")))
				s.good("$w")
				s.owned("ConfigMap", "a")
				s.owned("ConfigMap", "b", "$w")
				s.update("$w", spec("deleteOption: {propagationPolicy: Foreground}", cm("a", "1"), cm("b", "1")))
				s.good("$w")
				s.owned("ConfigMap", "a", "$w")
				s.ends("$w")
				s.absent("ConfigMap", "a")
				s.absent("ConfigMap", "b")
			},
		},
	}
}
