// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// refusalCases are about what a spoke, or its API server, does not take.
func refusalCases() map[string]Case {
	return map[string]Case{
		"what a policy of the spoke denies is told in its words": {
			reason: "issue 3 (bad input): a webhook that denies; the others go on, and it is applied once nobody objects",
			ready: func(s *stage) {
				s.make(denyPolicy)
				s.make(denyBinding)
				s.t.Cleanup(func() {
					s.forget("ValidatingAdmissionPolicyBinding")
					s.forget("ValidatingAdmissionPolicy")
				})
				s.untilRefused(s.spoke, "ConfigMap", deniedMap, "key denied is not wanted here")
			},
			spec: spec("", deniedMap, cm("good", "1")),
			want: `
				work
				+failed@1
				Available=False ResourcesNotAvailable @1: 1 of 2 resources are not available
				` + cmMeta(0, "bad") + `
				Applied=False AppliedManifestFailed @1: Failed to apply manifest: *key denied is not wanted here*
				+missing
				?+silent
				` + cmMeta(1, "good") + `
				+manifest@1
			`,
			then: func(s *stage) {
				s.forget("ValidatingAdmissionPolicyBinding")
				s.good("$w")
			},
		},
		"what cannot be deleted is waited for": {
			reason: "facts 1.1, 4.6, 4.12: a policy that denies the deletion; the work stays, says that it is going, and goes when it may",
			spec:   spec("", cm("kept", "1"), cm("a", "1")),
			then: func(s *stage) {
				s.good("$w")
				s.make(strings.NewReplacer("[CREATE, UPDATE]", "[DELETE]", "!('denied' in object.?data.orValue({}))", "oldObject.metadata.name != 'kept'").Replace(denyPolicy))
				s.make(denyBinding)
				s.t.Cleanup(func() {
					s.forget("ValidatingAdmissionPolicyBinding")
					s.forget("ValidatingAdmissionPolicy")
				})
				s.repeat("the API server refuses the deletion", func() error {
					err := s.on("ConfigMap").Delete(s.ctx, "kept", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
					if err == nil {
						return errAdmitted
					}
					return nil
				})
				s.delete("$w")
				s.untilCondition("Deleting", "True")
				s.lists("$w", "configmaps/kept")
				s.absent("ConfigMap", "a")
				s.forget("ValidatingAdmissionPolicyBinding")
				s.gone("the work", s.onHub(), "$w")
				s.absent("ConfigMap", "kept")
			},
		},
		"a namespace that is terminating takes nothing": {
			reason: "issue 3 (bad input): the API server's words; the others go on",
			ready: func(s *stage) {
				s.namespace(s.ns + "-end")
				other := *s
				other.ns = s.ns + "-end"
				other.make("{apiVersion: v1, kind: ConfigMap, metadata: {name: holds, namespace: $ns, finalizers: [example.com/held]}}")
				s.remove("Namespace", other.ns)
				s.t.Cleanup(func() {
					other.ctx = s.ctx
					other.lift("ConfigMap", "holds")
				})
			},
			spec: spec("", "{apiVersion: v1, kind: ConfigMap, metadata: {name: late, namespace: $ns-end}}", cm("good", "1")),
			want: `
				work
				+failed@1
				Available=False ResourcesNotAvailable @1: 1 of 2 resources are not available
				0 v1 ConfigMap configmaps $ns-end/late
				Applied=False AppliedManifestFailed @1: Failed to apply manifest: *being terminated*
				+missing
				?+silent
				` + cmMeta(1, "good") + `
				+manifest@1
			`,
		},
	}
}

// malformedCases are about manifests that no API server takes.
func malformedCases() map[string]Case {
	return map[string]Case{
		"a manifest without a name is refused, or fails alone": {
			reason: "facts 1.9, issue 3 (bad input)",
			then: func(s *stage) {
				s.refusedOr(spec("", "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: $ns}}", cm("good", "1")), "name must be set in manifest")
			},
		},
		"generateName is refused, or fails alone": {
			reason: "facts 1.9, issue 3 (bad input)",
			then: func(s *stage) {
				s.refusedOr(spec("", "{apiVersion: v1, kind: ConfigMap, metadata: {generateName: x-, namespace: $ns}}", cm("good", "1")), "must")
			},
		},
		"a duplicate is refused, or fails alone": {
			reason: "facts 1.9, issue 3 (bad input): the first one counts",
			then: func(s *stage) {
				s.refusedOr(spec("", cm("twice", "2"), cm("good", "1"), cm("twice", "3")), "duplicate manifest for resource $ns/twice with resource type v1.ConfigMap")
			},
		},
		"a namespaced manifest without a namespace fails alone": {
			reason: "issue 3 (bad input)",
			spec:   spec("", "{apiVersion: v1, kind: ConfigMap, metadata: {name: nowhere}}", cm("good", "1")),
			then: func(s *stage) {
				s.untilCondition("Applied", "False")
				s.has("ConfigMap", "good", "data: {k: '1'}")
			},
		},
		"a cluster-scoped manifest that names a namespace fails alone": {
			reason: "by ServerSideApply the original asks the API server for it in that namespace, where it serves none",
			spec: spec(configs("{resourceIdentifier: {group: rbac.authorization.k8s.io, resource: clusterroles, name: '*', namespace: '*'}, "+strategy("ServerSideApply")+"}"),
				"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: $ns-wide, namespace: $ns}}", cm("good", "1")),
			then: func(s *stage) {
				s.untilCondition("Applied", "False")
				s.has("ConfigMap", "good", "data: {k: '1'}")
				s.absent("ClusterRole", "$ns-wide")
			},
		},
		"a list of objects fails alone": {
			reason: "issue 3 (bad input): a List is no object",
			spec:   spec("", "{apiVersion: v1, kind: List, metadata: {name: x}, items: ["+cm("inside", "1")+"]}", cm("good", "1")),
			then: func(s *stage) {
				s.untilCondition("Applied", "False")
				s.has("ConfigMap", "good", "data: {k: '1'}")
				s.absent("ConfigMap", "inside")
			},
		},
		"a value of a wrong type fails alone": {
			reason: "issue 3 (bad input): the message names the field",
			spec:   spec("", "{apiVersion: v1, kind: ConfigMap, metadata: {name: wrong, namespace: $ns}, data: {k: {deep: 1}}}", cm("good", "1")),
			then: func(s *stage) {
				s.untilCondition("Applied", "False")
				s.has("ConfigMap", "good", "data: {k: '1'}")
				s.absent("ConfigMap", "wrong")
			},
		},
		"the definition refuses what the original refuses": {
			reason: "facts 1.1, 1.5.4, 1.7, 1.8: enumerations, patterns and the rule that CEL needs a condition",
			then: func(s *stage) {
				for rest, words := range map[string]string{
					configs(option("configmaps", "a", conditionRules(cel(`""`, "", "true")))):         "Condition is required for CEL rules",
					configs(option("configmaps", "a", conditionRules("{condition: C, type: Other}"))): "Unsupported value",
					configs(option("configmaps", "a", strategy("Replace"))):                           "Unsupported value",
					configs(option("configmaps", "a", applied("fieldManager: somebody"))):             "work-agent",
					configs(option("configmaps", "a", "feedbackScrapeType: Push")):                    "Unsupported value",
					"deleteOption: {propagationPolicy: Background}":                                   "Unsupported value",
					"executor: {subject: {type: User}}":                                               "Unsupported value",
					strings.Replace(asAccount, "name: sa", "name: S_A", 1):                            "should match",
				} {
					if err := s.tryCreate("$w", spec(rest, cm("a", "1"))); err == nil || !strings.Contains(err.Error(), words) {
						s.t.Errorf("%s: got %v, want %q in it", rest, err, words)
					}
				}
			},
		},
		"deep nesting does no harm": {
			reason: "issue 3 (bad input): nesting depth 10 000; refused by the hub's API server, or applied, or told; the others go on",
			then: func(s *stage) {
				for name, depth := range map[string]int{"$w-1": 500, "$w-2": 9000} {
					if err := s.tryCreateSpec(name, s.nest(depth)); err != nil {
						s.t.Logf("depth %d is refused: %.200v", depth, err)
						continue
					}
					s.has("ConfigMap", "good", "data: {k: '1'}")
					s.ends(name)
				}
				s.create("$w", spec("", cm("after", "1")))
				s.good("$w")
			},
		},
	}
}

// forget deletes an object that bears the case's name.
func (s *stage) forget(kind string) {
	err := s.on(kind).Delete(context.WithoutCancel(s.t.Context()), s.ns, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Errorf("cannot delete %s: %v", kind, err)
	}
}

// refusedOr expects that admission refuses a work with words, or else that the work
// fails and its manifest good is applied.
func (s *stage) refusedOr(spec, words string) {
	s.t.Helper()
	err := s.tryCreate("$w", spec)
	switch {
	case err == nil:
		s.untilCondition("Applied", "False")
		s.has("ConfigMap", "good", "data: {k: '1'}")
	case !strings.Contains(err.Error(), s.text(words)):
		s.t.Errorf("refused with %q, want %q in it", err, s.text(words))
	}
}

// nest is the spec of a work with a manifest of some depth beside a good one.
func (s *stage) nest(depth int) map[string]any {
	s.t.Helper()
	var value any = int64(1)
	for range depth {
		value = map[string]any{"a": value}
	}
	body := s.object(spec("", thing("deep", "spec: {}"), cm("good", "1")))
	manifests, _, _ := unstructured.NestedFieldNoCopy(body, "workload", "manifests")
	list, ok := manifests.([]any)
	if !ok {
		s.t.Fatalf("manifests are %T", manifests)
	}
	deep, ok := list[0].(map[string]any)
	if !ok {
		s.t.Fatalf("a manifest is %T", list[0])
	}
	deep["spec"] = value
	return body
}

const deniedMap = `{apiVersion: v1, kind: ConfigMap, metadata: {name: bad, namespace: $ns}, data: {denied: "1"}}`

const denyPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: $ns}
spec:
	failurePolicy: Fail
	matchConstraints:
		namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $ns}}
		resourceRules:
		- {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}
	validations:
	- {expression: "!('denied' in object.?data.orValue({}))", message: key denied is not wanted here}
`

const denyBinding = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: $ns}
spec: {policyName: $ns, validationActions: [Deny]}
`
