// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A kind that cases write in one way, and then in another.
type writtenKind struct {
	resource schema.GroupVersionResource
	// cluster: it has no namespace.
	cluster bool
	// body is the object but for apiVersion, kind and metadata; $v is what
	// changes, $name what the object is called.
	body        string
	first, then string
	// want is what the second one must have.
	want string
}

// writtenKinds are those for which Update has rules of its own (facts 1.5.1), and
// others that works have in practice.
var writtenKinds = map[string]writtenKind{
	"NetworkPolicy": {
		resource: schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
		body:     "spec: {podSelector: {matchLabels: {app: $v}}}", first: "one", then: "two", want: "spec: {podSelector: {matchLabels: {app: two}}}",
	},
	"PodDisruptionBudget": {
		resource: schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
		body:     "spec: {minAvailable: $v, selector: {matchLabels: {app: none}}}", first: "1", then: "2", want: "spec: {minAvailable: 2}",
	},
	"ClusterRole": {
		resource: schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}, cluster: true,
		body: "rules: [{apiGroups: [''], resources: [pods], verbs: [$v]}]", first: "get", then: "list", want: "rules: [{apiGroups: [''], resources: [pods], verbs: [list]}]",
	},
	"ClusterRoleBinding": {
		resource: schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}, cluster: true,
		body:  "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: $name}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: $v}]",
		first: "one", then: "two", want: "subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: two}]",
	},
	"StorageClass": {
		resource: schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"}, cluster: true,
		body: "provisioner: example.com/none, allowVolumeExpansion: $v", first: "false", then: "true", want: "allowVolumeExpansion: true",
	},
	"ValidatingWebhookConfiguration": {
		resource: schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}, cluster: true,
		body: `webhooks: [{name: none.example.com, admissionReviewVersions: [v1], sideEffects: None, failurePolicy: Ignore, timeoutSeconds: $v, clientConfig: {url: "https://127.0.0.1:9/none"},
			namespaceSelector: {matchLabels: {no: such}}, rules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [none]}]}]`,
		first: "1", then: "2", want: "{}",
	},
	"MutatingWebhookConfiguration": {
		resource: schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}, cluster: true,
		body: `webhooks: [{name: none.example.com, admissionReviewVersions: [v1], sideEffects: None, failurePolicy: Ignore, timeoutSeconds: $v, clientConfig: {url: "https://127.0.0.1:9/none"},
			namespaceSelector: {matchLabels: {no: such}}, rules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [none]}]}]`,
		first: "1", then: "2", want: "{}",
	},
	"ValidatingAdmissionPolicy": {
		resource: schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"}, cluster: true,
		body: `spec: {failurePolicy: $v, matchConstraints: {resourceRules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [none]}]},
			validations: [{expression: "true"}]}`,
		first: "Fail", then: "Ignore", want: "spec: {failurePolicy: Ignore}",
	},
	"ValidatingAdmissionPolicyBinding": {
		resource: schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"}, cluster: true,
		body: "spec: {policyName: none-such, validationActions: [$v]}", first: "Warn", then: "Audit", want: "spec: {validationActions: [Audit]}",
	},
	"CSIDriver": {
		resource: schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "csidrivers"}, cluster: true,
		body: "spec: {requiresRepublish: $v}", first: "false", then: "true", want: "spec: {requiresRepublish: true}",
	},
	"PriorityClass": {
		resource: schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses"}, cluster: true,
		body: "value: 1, description: $v", first: "one", then: "two", want: "description: two",
	},
	"LimitRange": {
		resource: schema.GroupVersionResource{Version: "v1", Resource: "limitranges"},
		body:     "spec: {limits: [{type: PersistentVolumeClaim, max: {storage: $v}}]}", first: "1Gi", then: "2Gi", want: "spec: {limits: [{type: PersistentVolumeClaim, max: {storage: 2Gi}}]}",
	},
	"ResourceQuota": {
		resource: schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"},
		body:     "spec: {hard: {count/none.example.com: $v}}", first: `"1"`, then: `"2"`, want: `spec: {hard: {count/none.example.com: "2"}}`,
	},
	"Lease": {
		resource: schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
		body:     "spec: {holderIdentity: $v}", first: "one", then: "two", want: "spec: {holderIdentity: two}",
	},
	"CronJob": {
		resource: schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"},
		body: `spec: {schedule: "0 0 1 1 *", suspend: true, startingDeadlineSeconds: $v, jobTemplate: {spec: {template: {spec: {restartPolicy: Never,
			containers: [{name: main, image: example.com/none}]}}}}}`,
		first: "30", then: "40", want: "spec: {startingDeadlineSeconds: 40}",
	},
	"StatefulSet": {
		resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"},
		body: `spec: {replicas: 0, serviceName: none, minReadySeconds: $v, selector: {matchLabels: {app: s}}, template: {metadata: {labels: {app: s}},
			spec: {containers: [{name: main, image: example.com/none}]}}}`,
		first: "1", then: "2", want: "spec: {minReadySeconds: 2}",
	},
	"HorizontalPodAutoscaler": {
		resource: schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
		body:     "spec: {maxReplicas: $v, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: none}}", first: "2", then: "3", want: "spec: {maxReplicas: 3}",
	},
	"Ingress": {
		resource: schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"},
		body:     "spec: {ingressClassName: none, defaultBackend: {service: {name: $v, port: {number: 80}}}}", first: "one", then: "two", want: "spec: {defaultBackend: {service: {name: two}}}",
	},
}

// manifest of a written kind; its name is unique in the cluster.
func (k writtenKind) manifest(kind, value, labels string) string {
	name := "$ns-" + strings.ToLower(kind)
	namespace := ", namespace: $ns"
	if k.cluster {
		namespace = ""
	}
	return fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: %s%s, labels: {l: %s}}, %s}", k.resource.GroupVersion(), kind, name, namespace, labels,
		strings.NewReplacer("$v", value, "$name", name).Replace(k.body))
}

// kindCases write every one of these kinds, by either strategy.
func kindCases() map[string]Case {
	cases := map[string]Case{}
	for _, by := range []string{"Update", "ServerSideApply"} {
		options, first, second := []string{}, []string{}, []string{}
		for kind, k := range writtenKinds {
			options = append(options, fmt.Sprintf("{resourceIdentifier: {group: %q, resource: %s, name: '*', namespace: '*'}, %s}", k.resource.Group, k.resource.Resource, strategy(by)))
			first, second = append(first, k.manifest(kind, k.first, "one")), append(second, k.manifest(kind, k.then, "two"))
		}
		cases["all kinds are created, changed and removed by "+by] = Case{
			reason: "facts 1.5.1, 1.5.4, 4.4: the rules of each kind; cluster-scoped ones are deleted as well",
			spec:   spec(configs(options...), first...),
			then: func(s *stage) {
				s.good("$w")
				s.update("$w", spec(configs(options...), second...))
				s.good("$w")
				for kind, k := range writtenKinds {
					s.written(kind, k)
				}
				s.later()
				s.good("$w")
				s.ends("$w")
				for kind, k := range writtenKinds {
					s.gone(kind, s.resource(k.resource, k.cluster), s.ns+"-"+strings.ToLower(kind))
				}
			},
		}
	}
	return cases
}

// written waits until an object is as its second manifest says.
func (s *stage) written(kind string, k writtenKind) {
	s.t.Helper()
	want := s.object(k.want)
	want["metadata"] = map[string]any{"labels": map[string]any{"l": "two"}}
	s.until(kind+" is as it was changed", s.resource(k.resource, k.cluster), s.ns+"-"+strings.ToLower(kind), content(want))
}
