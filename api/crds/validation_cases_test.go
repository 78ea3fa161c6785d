// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"maps"
	"strings"
)

func validationCases() map[string]validationCase {
	cases := map[string]validationCase{}
	maps.Copy(cases, nameCases())
	maps.Copy(cases, specCases())
	maps.Copy(cases, helmCases())
	maps.Copy(cases, setCases())
	maps.Copy(cases, successorCases())
	maps.Copy(cases, shapeCases())
	return cases
}

func nameCases() map[string]validationCase {
	const spec = "{cluster: {name: spoke1}, type: Resource, scope: {resourceType: pods}}"
	refusal := "metadata.name must be a DNS-1035 label"
	return map[string]validationCase{
		"a name of letters":      {reason: "an ordinary one", name: "nginx-list", spec: spec},
		"a name of 63":           {reason: "the longest label", name: strings.Repeat("a", 63), spec: spec},
		"a name of 64":           {reason: "too long for a label", name: strings.Repeat("a", 64), spec: spec, want: refusal},
		"a name of digits":       {reason: "it begins with a digit, which DNS-1123 allows", name: "1234", spec: spec, want: refusal},
		"a name with dots":       {reason: "a subdomain is no label", name: "a.b", spec: spec, want: refusal},
		"a beta with a bad name": {reason: "v1beta1 is of the same schema", kind: "mcm.ibm.com/v1beta1 Work", name: "1234", spec: spec, want: refusal},
	}
}

func specCases() map[string]validationCase {
	return map[string]validationCase{
		"a work without a spec":    {reason: "nothing says what to do", want: "spec: Required value"},
		"a work without a cluster": {reason: "the original required it", spec: "{type: Resource, scope: {resourceType: pods}}", want: "spec.cluster.name is required"},
		"a work of a cluster without a name": {
			reason: "an empty name is none",
			spec:   `{cluster: {name: ""}, type: Resource, scope: {resourceType: pods}}`, want: "spec.cluster.name is required",
		},
		"a work that looks, in lower case": {reason: "the case does not matter", spec: "{cluster: {name: a}, type: resource, scope: {resourceType: pods}}"},
		"a work that looks at nothing": {
			reason: "a list of what?", spec: "{cluster: {name: a}, type: Resource}", want: "spec.scope.resourceType is required for type Resource",
		},
		"a work that looks at an empty type": {
			reason: "an empty one is none",
			spec:   `{cluster: {name: a}, type: RESOURCE, scope: {resourceType: ""}}`, want: "spec.scope.resourceType is required for type Resource",
		},
		"a bare map of labels": {
			reason: "the original's document shows one",
			spec:   "{cluster: {name: a}, type: Resource, scope: {resourceType: pods, labelSelector: {app: nginx}}}",
		},
		"a selector that is no map": {
			reason: "it is an object in both forms",
			spec:   "{cluster: {name: a}, type: Resource, scope: {resourceType: pods, labelSelector: app=nginx}}", want: "must be of type object",
		},
		"a work that changes, in lower case": {
			reason: "the original's document writes create", spec: "{cluster: {name: a}, type: action, actionType: create, kube: {template: {a: b}}}",
		},
		"an unknown action":          {reason: "its status says so", spec: "{cluster: {name: a}, type: Action, actionType: Patch, kube: {}}"},
		"a template of null":         {reason: "Go writes it for a raw object without bytes", spec: "{cluster: {name: a}, type: Action, kube: {template: null}}"},
		"a work without a type":      {reason: "an action, for the original's validation", spec: "{cluster: {name: a}, kube: {}}"},
		"nothing without a type":     {reason: "an action of nothing", spec: "{cluster: {name: a}}", want: "exactly one of spec.helm and spec.kube is required"},
		"an unknown type of nothing": {reason: "validated as an action", spec: "{cluster: {name: a}, type: Magic}", want: "exactly one of spec.helm and spec.kube is required"},
		"an unknown type of one":     {reason: "its status says so", spec: "{cluster: {name: a}, type: Magic, helm: {}}"},
		"an action of both": {
			reason: "which comes first?",
			spec:   "{cluster: {name: a}, type: Action, helm: {releaseName: a}, kube: {}}", want: "exactly one of spec.helm and spec.kube is required",
		},
		"a release": {
			reason: "helm needs its name alone", spec: "{cluster: {name: a}, type: Action, actionType: Delete, helm: {releaseName: a, values: YTogYg==}}",
		},
		"a release without a name": {
			reason: "it cannot be found", spec: "{cluster: {name: a}, type: Action, helm: {}}", want: "spec.helm.releaseName is required",
		},
		"a release with an empty name": {
			reason: "an empty one is none",
			spec:   `{cluster: {name: a}, type: Action, helm: {releaseName: ""}}`, want: "spec.helm.releaseName is required",
		},
		"a chart": {reason: "an ordinary URL", spec: "{cluster: {name: a}, type: Action, helm: {releaseName: a, chartURL: 'https://a/b.tgz'}}"},
		"a chart that is nowhere": {
			reason: "it cannot be parsed",
			spec:   "{cluster: {name: a}, type: Action, helm: {releaseName: a, chartURL: '::no url'}}", want: "spec.helm.chartURL must be a URL",
		},
	}
}

// helmCases are of what Helm is to do; the rest of it is among specCases.
func helmCases() map[string]validationCase {
	const set = "mcm.ibm.com/v1alpha1 WorkSet"
	release := func(fields string) string {
		return "{cluster: {name: a}, type: Action, actionType: Create, helm: {releaseName: a, " + fields + "}}"
	}
	template := func(fields string) string {
		return "{template: {spec: {type: Action, helm: {releaseName: a, " + fields + "}}}}"
	}
	long := func(field string, most int) map[string]validationCase {
		reason := "an agent takes no more"
		return map[string]validationCase{
			"the longest " + field: {reason: reason, spec: release(field + ": " + strings.Repeat("a", most))},
			"a " + field + " that is too long": {
				reason: reason, spec: release(field + ": " + strings.Repeat("a", most+1)), want: "spec.helm." + field + ": Too long",
			},
		}
	}
	cases := map[string]validationCase{
		"a release with all there is": {
			reason: "the original's fields, and ours",
			spec: "{cluster: {name: a}, type: Action, actionType: create, helm: {releaseName: a, namespace: b, chartURL: 'oci://a/b', chartName: c, version: ^1, " +
				"values: YTogYg==, valuesURL: 'https://a/v.yaml', inSecureSkipVerify: true, wait: true, timeoutSeconds: 600}}",
		},
		"a release with no time":          {reason: "nothing could be done", spec: release("timeoutSeconds: 0"), want: "spec.helm.timeoutSeconds"},
		"a release with time before now":  {reason: "nothing could be done", spec: release("timeoutSeconds: -1"), want: "spec.helm.timeoutSeconds"},
		"a release with a second":         {reason: "the least", spec: release("timeoutSeconds: 1")},
		"a release with an hour":          {reason: "the most", spec: release("timeoutSeconds: 3600")},
		"a release with more than that":   {reason: "it would hold up others", spec: release("timeoutSeconds: 3601"), want: "spec.helm.timeoutSeconds"},
		"a release with a part of one":    {reason: "seconds are whole", spec: release("timeoutSeconds: 1.5"), want: "must be of type integer"},
		"a release with a duration":       {reason: "seconds are a number", spec: release("timeoutSeconds: 5m"), want: "must be of type integer"},
		"a release that waits for a word": {reason: "it waits or not", spec: release("wait: soon"), want: "must be of type boolean"},
		"a release that is not named at the update": {
			reason: "it cannot be found", spec: "{cluster: {name: a}, type: Action, actionType: Update, helm: {chartURL: 'https://a/b.tgz'}}", want: "spec.helm.releaseName is required",
		},
		"a set of releases":                {reason: "as a work", kind: set, spec: template("wait: true, timeoutSeconds: 3600")},
		"a set of releases with no time":   {reason: "as a work", kind: set, spec: template("timeoutSeconds: 0"), want: "helm.timeoutSeconds"},
		"a set of releases with long ones": {reason: "as a work", kind: set, spec: template("timeoutSeconds: 3601"), want: "helm.timeoutSeconds"},
	}
	maps.Copy(cases, long("namespace", 253))
	maps.Copy(cases, long("chartName", 1024))
	maps.Copy(cases, long("version", 1024))
	maps.Copy(cases, long("valuesURL", 4096))
	maps.Copy(cases, long("chartURL", 4096))
	return cases
}

func setCases() map[string]validationCase {
	const set, view = "mcm.ibm.com/v1alpha1 WorkSet", "mcm.ibm.com/v1alpha1 ResourceView"
	template := func(spec string) string { return "{clusterSelector: {}, template: {spec: " + spec + "}}" }
	return map[string]validationCase{
		"a set": {
			reason: "its template names no cluster, and carries labels",
			kind:   set, spec: "{clusterSelector: {matchLabels: {a: b}}, template: {metadata: {labels: {c: d}}, spec: {type: Resource, scope: {resourceType: pods}}}}",
		},
		"a set without a spec":         {reason: "nothing says what to do", kind: set, want: "spec: Required value"},
		"a set without a template":     {reason: "nothing says what to do", kind: set, spec: "{clusterSelector: {}}", want: "spec.template: Required value"},
		"a set of an empty template":   {reason: "nothing says what to do", kind: set, spec: "{template: {}}", want: "spec.template.spec: Required value"},
		"a set that looks at nothing":  {reason: "as a work", kind: set, spec: template("{type: Resource}"), want: "scope.resourceType is required for type Resource"},
		"a set of actions of nothing":  {reason: "as a work", kind: set, spec: template("{type: Action}"), want: "exactly one of helm and kube is required"},
		"a set of actions of both":     {reason: "as a work", kind: set, spec: template("{type: Action, kube: {}, helm: {releaseName: a}}"), want: "exactly one of helm and kube is required"},
		"a set of nameless releases":   {reason: "as a work", kind: set, spec: template("{type: Action, helm: {}}"), want: "helm.releaseName is required"},
		"a set of charts from nowhere": {reason: "as a work", kind: set, spec: template("{type: Action, helm: {releaseName: a, chartURL: ':a'}}"), want: "helm.chartURL must be a URL"},
		"a view":                       {reason: "what it looks at is enough", kind: view, spec: "{scope: {resource: pods, labelSelector: {app: nginx}}}"},
		"a view of nothing":            {reason: "a list of what?", kind: view, spec: "{clusterSelector: {}}", want: "spec.scope.resource is required"},
		"a view without a spec":        {reason: "a list of what?", kind: view, want: "spec: Required value"},
	}
}

// What they lack is said by conditions.
func successorCases() map[string]validationCase {
	const view, action = "view.open-cluster-management.io/v1beta1 ManagedClusterView", "action.open-cluster-management.io/v1beta1 ManagedClusterAction"
	return map[string]validationCase{
		"a successor's view":                    {reason: "an ordinary one", kind: view, name: "1.a", spec: "{scope: {resource: pods, name: a, namespace: b}}"},
		"a successor's view without a name":     {reason: "its condition says ResourceNameInvalid", kind: view, spec: "{scope: {resource: pods}}"},
		"a successor's view of text":            {reason: "the schema is all that is checked", kind: view, spec: "{scope: pods}", want: "must be of type object"},
		"a successor's action":                  {reason: "an ordinary one", kind: action, spec: "{actionType: Delete, kube: {resource: pods, name: a, namespace: b, template: null}}"},
		"a successor's action of no known type": {reason: "its condition says ActionTypeInvalid", kind: action, spec: "{actionType: Patch, kube: {template: {a: b}}}"},
		"a successor's action of a list":        {reason: "the schema is all that is checked", kind: action, spec: "{kube: []}", want: "must be of type object"},
	}
}

// shapeCases are of values that a schema may accept and a type in Go not.
func shapeCases() map[string]validationCase {
	const (
		set, resourceView = "mcm.ibm.com/v1alpha1 WorkSet", "mcm.ibm.com/v1alpha1 ResourceView"
		view, action      = "view.open-cluster-management.io/v1beta1 ManagedClusterView", "action.open-cluster-management.io/v1beta1 ManagedClusterAction"
	)
	interval := func(seconds string) string {
		return "{cluster: {name: a}, type: Resource, scope: {resourceType: pods, updateIntervalSeconds: " + seconds + "}}"
	}
	values := func(base64 string) string {
		return "{cluster: {name: a}, type: Action, helm: {releaseName: a, values: " + base64 + "}}"
	}
	meta := func(metadata string) string {
		return "{template: {metadata: " + metadata + ", spec: {type: Resource, scope: {resourceType: pods}}}}"
	}
	return map[string]validationCase{
		"a template's label of a number":     {reason: "a label is text", kind: set, spec: meta("{labels: {a: 1}}"), want: "must be of type string"},
		"a template's label of a boolean":    {reason: "YAML reads yes as true", kind: set, spec: meta("{labels: {a: yes}}"), want: "must be of type string"},
		"a template's label of null":         {reason: "an API server drops it", kind: set, spec: meta("{labels: {a: null}}")},
		"a template's labels as a list":      {reason: "labels are a map", kind: set, spec: meta("{labels: [a]}"), want: "must be of type object"},
		"a template's annotation of a map":   {reason: "an annotation is text", kind: set, spec: meta("{annotations: {a: {b: c}}}"), want: "must be of type string"},
		"a template's metadata of text":      {reason: "it has fields", kind: set, spec: meta("a"), want: "must be of type object"},
		"a template that was never made":     {reason: "clients in Go write it, and it is dropped", kind: set, spec: meta("{creationTimestamp: null, labels: {a: b}}")},
		"a template of a wrong time":         {reason: "it is dropped", kind: set, spec: meta("{creationTimestamp: x, ownerReferences: 1}")},
		"a selector by a number":             {reason: "a label is text", kind: set, spec: "{clusterSelector: {matchLabels: {a: 1}}, template: {spec: {kube: {}}}}", want: "must be of type string"},
		"a view's selector by a number":      {reason: "a label is text", kind: resourceView, spec: "{clusterSelector: {matchLabels: {a: 1}}, scope: {resource: pods}}", want: "must be of type string"},
		"a view's free selector":             {reason: "it is kept as it is", kind: resourceView, spec: "{scope: {resource: pods, labelSelector: {a: 1, matchLabels: [null]}}}"},
		"a view's interval of text":          {reason: "it is a number", kind: resourceView, spec: "{scope: {resource: pods}, updateIntervalSeconds: soon}", want: "must be of type integer"},
		"a free selector":                    {reason: "it is kept as it is", spec: "{cluster: {name: a}, type: Resource, scope: {resourceType: pods, labelSelector: {a: 1, matchLabels: [null]}}}"},
		"a free template":                    {reason: "it is kept as it is", spec: "{cluster: {name: a}, type: Action, kube: {template: {metadata: {labels: {a: 1}, creationTimestamp: x}, a: 1.5}}}"},
		"the largest interval":               {reason: "of 64 bits", spec: interval("9223372036854775807")},
		"an interval of more than 64 bits":   {reason: "it is no integer that an API server keeps", spec: interval("92233720368547758070"), want: "must be of type integer"},
		"an interval with an exponent":       {reason: "it is stored as 1000", spec: interval("1e3")},
		"a large interval with an exponent":  {reason: "it would be stored with one", spec: interval("1e21"), want: "must be of type integer"},
		"an interval of a fraction":          {reason: "it is an integer", spec: interval("1.5"), want: "must be of type integer"},
		"an interval of minus nothing":       {reason: "it is zero", spec: interval("-0.0")},
		"values with a wrong last bit":       {reason: "Go decodes them", spec: values(`"YTogYh=="`)},
		"values without their end":           {reason: "no base64", spec: values(`"YTogYg"`), want: "must be of type byte"},
		"values of another alphabet":         {reason: "that of URLs", spec: values(`"YTog_g=="`), want: "must be of type byte"},
		"values of backslashes":              {reason: "no base64", spec: values(`"\\\\\\\\"`), want: "must be of type byte"},
		"a successor's long interval":        {reason: "of 32 bits", kind: view, spec: "{scope: {resource: pods, name: a, updateIntervalSeconds: 2147483648}}", want: "updateIntervalSeconds"},
		"a successor's interval in the past": {reason: "of 32 bits", kind: view, spec: "{scope: {resource: pods, name: a, updateIntervalSeconds: -2147483649}}", want: "updateIntervalSeconds"},
		"a successor's name of a number":     {reason: "a name is text", kind: view, spec: "{scope: {resource: pods, name: 1}}", want: "must be of type string"},
		"a successor's free template":        {reason: "it is kept as it is", kind: action, spec: "{kube: {template: {metadata: {labels: {a: 1}, creationTimestamp: x}, a: 1.5}}}"},
		"a successor's namespace of null":    {reason: "an API server drops it", kind: action, spec: "{kube: {namespace: null}}"},
	}
}
