// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"
)

// statusCases are the rows of the condition tables, in full. Rows about feedback,
// rules, ignored fields and deletion are with their sections.
func statusCases() map[string]Case {
	unicorn := "{apiVersion: example.com/v1, kind: Unicorn, metadata: {name: u, namespace: $ns}}"
	return map[string]Case{
		"a work without rules has exactly the documented conditions": {
			reason: "facts 1.2, 1.3, 4.7: three conditions per manifest, two of the work, in this order, and observedGeneration on these alone",
			spec:   spec("", cm("a", "1")),
			want: `
				work
				Applied=True AppliedManifestWorkComplete @1: Apply manifest work complete
				Available=True ResourcesAvailable @1: All resources are available
				0 v1 ConfigMap configmaps $ns/a
				Applied=True AppliedManifestComplete @1: Apply manifest complete
				Available=True ResourceAvailable: Resource is available
				StatusFeedbackSynced=True NoStatusFeedbackSynced
			`,
		},
		"the manifests of the status are those of the spec, in its order": {
			reason: "facts 1.1, 4.7: one entry per manifest, whatever the order of application; the meta names group, version, kind and resource",
			spec:   spec("", deployment("d", ""), cm("c", "1"), account("b"), thing("a", "spec: {}")),
			want: `
				work
				+work@1
				0 apps/v1 Deployment deployments $ns/d
				+manifest@1
				1 v1 ConfigMap configmaps $ns/c
				+manifest@1
				2 v1 ServiceAccount serviceaccounts $ns/b
				+manifest@1
				3 conformance.spokelet.io/v1 Thing things $ns/a
				+manifest@1
			`,
		},
		"a kind that is not served fails alone": {
			reason: "facts 1.3, 1.5.6: the manifest says why, its meta is incomplete, and the others go on",
			spec:   spec("", unicorn, cm("good", "1")),
			want: `
				work
				+failed@1
				Available=Unknown ResourcesStatusUnknown @1: 1 of 2 resources have unknown status
				0 example.com/v1 Unicorn - $ns/u
				Applied=False AppliedManifestFailed @1: Failed to apply manifest: *the server doesn't have a resource type "Unicorn"*
				Available=Unknown IncompleteResourceMeta: Resource meta is incomplete
				1 v1 ConfigMap configmaps $ns/good
				+manifest@1
			`,
		},
		"a manifest that the API server refuses fails alone": {
			reason: "facts 1.3: the error follows; the object is not there",
			spec:   spec("", cm("A_B", "1"), cm("good", "1")),
			want: `
				work
				+failed@1
				Available=False ResourcesNotAvailable @1: 1 of 2 resources are not available
				0 v1 ConfigMap configmaps $ns/A_B
				Applied=False AppliedManifestFailed @1: Failed to apply manifest: *invalid*
				Available=False ResourceNotAvailable: Resource is not available
				?+silent
				1 v1 ConfigMap configmaps $ns/good
				+manifest@1
			`,
		},
		"an object that is not there is not available": {
			reason: "facts 1.3, 1.5.3: Available is about the GET alone; a ReadOnly manifest is applied either way",
			spec:   spec(configs(option("configmaps", "absent", strategy("ReadOnly"))), cm("absent", "1"), cm("good", "1")),
			want: `
				work
				Applied=True AppliedManifestWorkComplete @1: Apply manifest work complete
				Available=False ResourcesNotAvailable @1: 1 of 2 resources are not available
				0 v1 ConfigMap configmaps $ns/absent
				+applied@1
				Available=False ResourceNotAvailable: Resource is not available
				?StatusFeedbackSynced=True NoStatusFeedbackSynced
				1 v1 ConfigMap configmaps $ns/good
				+manifest@1
			`,
		},
		"an unavailable object outweighs one of unknown status": {
			reason: "facts 1.3: the work counts what is not available before what is not known",
			spec:   spec(configs(option("configmaps", "absent", strategy("ReadOnly"))), cm("absent", "1"), unicorn),
			want: `
				work
				+failed@1
				Available=False ResourcesNotAvailable @1: 1 of 2 resources are not available
				0 v1 ConfigMap configmaps $ns/absent
				+applied@1
				+missing
				?StatusFeedbackSynced=True NoStatusFeedbackSynced
				1 example.com/v1 Unicorn - $ns/u
				Applied=False AppliedManifestFailed @1: *
				Available=Unknown IncompleteResourceMeta: Resource meta is incomplete
			`,
		},
	}
}

// availabilityCases are the rows of what cannot be known.
func availabilityCases() map[string]Case {
	return map[string]Case{
		"a failure is observed in its generation": {
			reason: "facts 1.2, 1.3: observedGeneration of Applied is the spec's, whether it failed or not",
			spec:   spec("", cm("a", "1")),
			want:   "work\n+work@1\n" + cmMeta(0, "a") + "+manifest@1",
			then: func(s *stage) {
				s.update("$w", spec("", cm("a", "2"), cm("B_B", "1")))
				s.shows("$w", `
					work
					Applied=False AppliedManifestWorkFailed @2: Failed to apply manifest work
					Available=False ResourcesNotAvailable @2: 1 of 2 resources are not available
					`+cmMeta(0, "a")+`
					+again@2
					`+cmMeta(1, "B_B")+`
					Applied=False AppliedManifestFailed @2: Failed to apply manifest: *
					+missing
					?StatusFeedbackSynced=True NoStatusFeedbackSynced
				`)
			},
		},
		"a work without manifests has no available resource": {
			reason: "facts 1.3, 1.9: unless admission refuses it, its availability is unknown",
			then: func(s *stage) {
				if err := s.tryCreate("$w", spec("")); err != nil {
					if !strings.Contains(err.Error(), "manifests should not be empty") {
						s.t.Errorf("refused with %v", err)
					}
					return
				}
				s.untilWork("$w", "is of unknown availability", func(mw *workv1.ManifestWork) error {
					if err := differ(expand("work\nApplied=True AppliedManifestWorkComplete @1: Apply manifest work complete\n"+
						"Available=Unknown ResourcesStatusUnknown @1: cannot get any available resource*"), render(mw.Status)); err != nil {
						return err
					}
					// The space at the end is the original's.
					const message = "cannot get any available resource "
					if got := meta.FindStatusCondition(mw.Status.Conditions, "Available").Message; got != message {
						s.t.Errorf("message %q, want %q", got, message)
					}
					return nil
				})
			},
		},
		"an object that cannot be read is of unknown availability": {
			reason: "facts 1.3: a GET that fails with anything but NotFound; it is read again once it can be",
			ready: func(s *stage) {
				s.define(definition("gizmos", "Gizmo", "$group", "v1", "v2"))
				s.established(s.text("gizmos.$group"))
				s.makeOwn("v1", "gizmos", `{apiVersion: $group/v1, kind: Gizmo, metadata: {name: g, namespace: $ns}}`)
				s.patch("CustomResourceDefinition", "gizmos.$group", brokenConversion)
				s.repeat("version v2 cannot be read", func() error {
					_, err := s.own("v2", "gizmos").Get(s.ctx, "g", metav1.GetOptions{})
					if err == nil {
						return errAdmitted
					}
					return nil
				})
			},
			spec: spec(configs(option("$group/gizmos", "g", strategy("ReadOnly"))), "{apiVersion: $group/v2, kind: Gizmo, metadata: {name: g, namespace: $ns}}"),
			want: `
				work
				Applied=*
				Available=Unknown ResourcesStatusUnknown @1: 1 of 1 resources have unknown status
				0 $group/v2 Gizmo gizmos $ns/g
				Applied=*
				Available=Unknown FetchingResourceFailed: Failed to fetch resource: *
				?StatusFeedbackSynced=*
			`,
			then: func(s *stage) {
				s.patch("CustomResourceDefinition", "gizmos.$group", "spec: {conversion: {strategy: None, webhook: null}}")
				s.good("$w")
			},
		},
	}
}

// brokenConversion makes every conversion between versions fail.
const brokenConversion = `spec: {conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: "https://127.0.0.1:9/none"}}}}`
