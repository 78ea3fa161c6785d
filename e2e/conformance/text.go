// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"strings"
)

// The functions of this file write YAML that cases have in common.

// spec of a work that holds manifests, with whatever else it says.
func spec(rest string, manifests ...string) string {
	if rest != "" {
		rest = ",\n" + rest
	}
	return "{workload: {manifests: [\n" + strings.Join(manifests, ",\n") + "\n]}" + rest + "}"
}

// configs is manifestConfigs.
func configs(options ...string) string {
	return "manifestConfigs: [\n" + strings.Join(options, ",\n") + "\n]"
}

// option is what applies to one resource, "group/plural" or "plural", of the
// case's namespace.
func option(resource, name, rest string) string {
	group, plural, grouped := strings.Cut(resource, "/")
	if !grouped {
		group, plural = "", resource
	}
	return fmt.Sprintf("{resourceIdentifier: {group: %q, resource: %q, name: %q, namespace: $ns}, %s}", group, plural, name, rest)
}

// things is the resource of the suite's kind, for option.
const things = thingGroup + "/things"

// cm is a ConfigMap whose key k has a value.
func cm(name, value string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: $ns}, data: {k: %q}}", name, value)
}

// cmMeta is the line of a ConfigMap in a status.
func cmMeta(ordinal int, name string) string {
	return fmt.Sprintf("%d v1 ConfigMap configmaps $ns/%s\n", ordinal, name)
}

// thing is an object of the suite's kind with further fields.
func thing(name, rest string) string {
	return fmt.Sprintf("{apiVersion: %s/v1, kind: Thing, metadata: {name: %s, namespace: $ns}, %s}", thingGroup, name, rest)
}

func thingMeta(ordinal int, name string) string {
	return fmt.Sprintf("%d %s/v1 Thing things $ns/%s\n", ordinal, thingGroup, name)
}

// deployment with further fields in its spec.
func deployment(name, rest string) string {
	return fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %[1]s, namespace: $ns}, spec: {%[2]s
		selector: {matchLabels: {app: %[1]s}},
		template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: main, image: example.com/none}]}}}}`, name, rest)
}

// job called j that no controller runs, with further fields in its spec.
func job(rest string) string {
	return fmt.Sprintf(`{apiVersion: batch/v1, kind: Job, metadata: {name: j, namespace: $ns}, spec: {managedBy: example.com/nobody, %s
		template: {spec: {restartPolicy: Never, containers: [{name: main, image: example.com/none}]}}}}`, rest)
}

// account is a ServiceAccount.
func account(name string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: ServiceAccount, metadata: {name: %s, namespace: $ns}}", name)
}

// role that allows verbs, as a YAML list, on resources.
func role(name, group, resources, verbs string) string {
	return fmt.Sprintf("{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: %s, namespace: $ns}, rules: [{apiGroups: [%q], resources: [%s], verbs: [%s]}]}",
		name, group, resources, verbs)
}

// binding of a role to an account.
func binding(name, role, account string) string {
	return fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: %s, namespace: $ns},
		roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %s}, subjects: [{kind: ServiceAccount, name: %s, namespace: $ns}]}`, name, role, account)
}

// strategy is an updateStrategy of a type.
func strategy(kind string) string { return "updateStrategy: {type: " + kind + "}" }

// paths is the feedback of values, given as pairs of name and JSON path.
func paths(pairs ...string) string {
	var list []string
	for i := 0; i+1 < len(pairs); i += 2 {
		list = append(list, fmt.Sprintf("{name: %q, path: %q}", pairs[i], pairs[i+1]))
	}
	return "feedbackRules: [{type: JSONPaths, jsonPaths: [" + strings.Join(list, ", ") + "]}]"
}

// cel is a condition by expressions, with further fields.
func cel(condition, rest string, expressions ...string) string {
	var list []string
	for _, e := range expressions {
		list = append(list, fmt.Sprintf("%q", e))
	}
	if rest != "" {
		rest = ", " + rest
	}
	return fmt.Sprintf("{condition: %s, type: CEL, celExpressions: [%s]%s}", condition, strings.Join(list, ", "), rest)
}

// conditionRules is a list of rules.
func conditionRules(rules ...string) string {
	return "conditionRules: [" + strings.Join(rules, ", ") + "]"
}

// wellKnown is a condition that needs no expression.
func wellKnown(condition string) string {
	return fmt.Sprintf("{condition: %s, type: WellKnownConditions}", condition)
}
