// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	workv1 "open-cluster-management.io/api/work/v1"
)

// anchorCases are about the AppliedManifestWork.
func anchorCases() map[string]Case {
	return map[string]Case{
		"the anchor bears the names of hub, agent and work, and the work's labels": {
			reason: "facts 1.10, 4.2, 4.3, 4.22",
			then: func(s *stage) {
				s.create("$w", spec("", cm("a", "1")), "team", "blue", "example.com/tier", "one")
				mw := s.good("$w")
				if !slices.Contains(mw.Finalizers, workv1.ManifestWorkFinalizer) {
					s.t.Errorf("finalizers of the work: %v", mw.Finalizers)
				}
				amw := s.anchor("$w")
				want := workv1.AppliedManifestWorkSpec{HubHash: s.target.HubHash, AgentID: s.target.AgentID, ManifestWorkName: s.ns}
				if diff := cmp.Diff(want, amw.Spec); diff != "" {
					s.t.Errorf("spec (-want +got):\n%s", diff)
				}
				if !slices.Contains(amw.Finalizers, workv1.AppliedManifestWorkFinalizer) {
					s.t.Errorf("finalizers of the anchor: %v", amw.Finalizers)
				}
				for key, want := range map[string]string{"team": "blue", "example.com/tier": "one"} {
					if got := amw.Labels[key]; got != want {
						s.t.Errorf("label %s: got %q, want %q", key, got, want)
					}
				}
			},
		},
		"the anchor lists exactly what was applied, sorted": {
			reason: "facts 1.10, 4.6: by group, version, resource, namespace and name; nothing missing, nothing extra, with the live UIDs",
			spec:   spec("", thing("t", "spec: {}"), deployment("d", "replicas: 0,"), account("sa"), cm("b", "1"), cm("a", "1"), cm("A_B", "1")),
			then: func(s *stage) {
				s.lists("$w", "configmaps/a", "configmaps/b", "serviceaccounts/sa", "deployments/d", "things/t")
				amw := s.anchor("$w")
				want := []workv1.AppliedManifestResourceMeta{
					s.meta("", "ConfigMap", "a"), s.meta("", "ConfigMap", "b"), s.meta("", "ServiceAccount", "sa"), s.meta("apps", "Deployment", "d"), s.meta(thingGroup, "Thing", "t"),
				}
				if diff := cmp.Diff(want, amw.Status.AppliedResources); diff != "" {
					s.t.Errorf("applied resources (-want +got):\n%s", diff)
				}
			},
		},
		"the list follows what the work becomes": {
			reason: "facts 1.10, 4.6: pruned objects leave it, recreated ones have their new UID",
			spec:   spec("", cm("a", "1"), cm("b", "1")),
			then: func(s *stage) {
				s.lists("$w", "configmaps/a", "configmaps/b")
				s.update("$w", spec("", cm("b", "1"), cm("c", "1")))
				s.lists("$w", "configmaps/b", "configmaps/c")
				s.absent("ConfigMap", "a")
				old := s.get("ConfigMap", "b").GetUID()
				s.remove("ConfigMap", "b")
				live := s.another("ConfigMap", "b", old)
				s.untilAnchor("$w", "lists the new one", func(amw *workv1.AppliedManifestWork) error {
					if amw.Status.AppliedResources[0].UID != string(live.GetUID()) {
						return errAbsent
					}
					return nil
				})
			},
		},
		"an anchor that is deleted is made anew": {
			reason: "facts 4.2, 4.15: the work still exists; its objects are not lost",
			spec:   spec("", cm("a", "1")),
			then: func(s *stage) {
				s.good("$w")
				old := s.anchor("$w").UID
				s.remove("AppliedManifestWork", s.anchorOf("$w"))
				s.untilAnchor("$w", "is another", func(amw *workv1.AppliedManifestWork) error {
					if amw.UID == old {
						return errPresent
					}
					return nil
				})
				s.owned("ConfigMap", "a", "$w")
				s.lists("$w", "configmaps/a")
			},
		},
	}
}

// nameCases are about the names of works.
func nameCases() map[string]Case {
	return map[string]Case{
		"a name may have 188 characters": {
			reason: "facts 1.10: with the hub hash before it, it is as long as a name may be",
			then: func(s *stage) {
				name := s.ns + "-" + strings.Repeat("x", 187-len(s.ns))
				s.create(name, spec("", cm("a", "1")))
				s.good(name)
				s.owned("ConfigMap", "a", name)
				s.ends(name)
				s.absent("ConfigMap", "a")
			},
		},
		"a work of the same name begins anew": {
			reason: "facts 1.10, 4.5: another work, another anchor, other objects; nothing of the former one is told",
			spec:   spec("", cm("a", "1"), cm("B_B", "1")),
			then: func(s *stage) {
				s.untilCondition("Applied", "False")
				for range 3 {
					old := s.anchor("$w").UID
					s.ends("$w")
					s.create("$w", spec("", cm("a", "2")))
					s.shows("$w", "work\n+work@1\n"+cmMeta(0, "a")+"+manifest@1")
					s.lists("$w", "configmaps/a")
					if s.anchor("$w").UID == old {
						s.t.Error("the anchor is that of the former work")
					}
				}
			},
		},
	}
}

// meta is the entry of a live object.
func (s *stage) meta(group, kind, name string) workv1.AppliedManifestResourceMeta {
	s.t.Helper()
	return workv1.AppliedManifestResourceMeta{
		ResourceIdentifier: workv1.ResourceIdentifier{Group: group, Resource: resources[kind].Resource, Name: name, Namespace: s.ns},
		Version:            resources[kind].Version,
		UID:                string(s.get(kind, name).GetUID()),
	}
}

// evictionCases are about anchors without a work; the grace is short.
func evictionCases() map[string]Case {
	return map[string]Case{
		"an anchor without a work goes after the grace, with its objects": {
			reason: "facts 2.3, 4.15: even if it has no finalizer or somebody else made it with this agent ID; foreign agents' stay",
			then: func(s *stage) {
				own := s.strayAnchor("own", s.target.AgentID)
				foreign := s.strayAnchor("foreign", "somebody-else")
				s.gone("the anchor without a work", s.on("AppliedManifestWork"), own)
				s.gone("its object", s.on("ConfigMap"), "own")
				s.later()
				s.get("ConfigMap", "foreign")
				s.get("AppliedManifestWork", foreign)
				s.remove("AppliedManifestWork", foreign)
			},
		},
	}
}

// strayAnchor makes an anchor that lists a ConfigMap, which it owns.
func (s *stage) strayAnchor(name, agent string) string {
	s.t.Helper()
	work := s.ns + "-" + name
	anchor := &workv1.AppliedManifestWork{
		TypeMeta:   metav1.TypeMeta{APIVersion: "work.open-cluster-management.io/v1", Kind: "AppliedManifestWork"},
		ObjectMeta: metav1.ObjectMeta{Name: s.anchorOf(work)},
		Spec:       workv1.AppliedManifestWorkSpec{HubHash: s.target.HubHash, AgentID: agent, ManifestWorkName: work},
	}
	made, err := s.on(anchor.Kind).Create(s.ctx, s.untyped(anchor), metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	owner := metav1.OwnerReference{APIVersion: anchor.APIVersion, Kind: anchor.Kind, Name: anchor.Name, UID: made.GetUID()}
	object := &unstructured.Unstructured{Object: s.object(cm(name, "1"))}
	object.SetOwnerReferences([]metav1.OwnerReference{owner})
	if _, err := s.on("ConfigMap").Create(s.ctx, object, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	// The agent may be writing it too.
	listed := s.meta("", "ConfigMap", name)
	s.patch(anchor.Kind, anchor.Name, fmt.Sprintf("status: {appliedResources: [{group: '', version: v1, resource: configmaps, namespace: $ns, name: %s, uid: %q}]}", name, listed.UID), "status")
	return anchor.Name
}

func (s *stage) untyped(obj any) *unstructured.Unstructured {
	s.t.Helper()
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		s.t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: out}
}
