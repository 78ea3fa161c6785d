// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
)

type (
	scope    = livev1alpha1.ViewWorkScope
	viewSpec = livev1alpha1.ViewWorkSpec
)

func TestParseViewReportsInvalidFields(t *testing.T) {
	broken := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	cases := map[string]struct {
		reason string
		spec   viewSpec
		fields []string
	}{
		"list":              {reason: "the usual case", spec: viewSpec{Scope: scope{Resource: "pods", Namespace: "a", FieldSelector: "status.phase=Running", Limit: 5}}},
		"object":            {reason: "the usual case", spec: viewSpec{Scope: scope{Resource: "Deployment.v1.apps", Name: "x", Namespace: "a"}, Output: livev1alpha1.OutputTable}},
		"many clusters":     {reason: "an empty selector means all", spec: viewSpec{Scope: scope{Resource: "nodes"}, ClusterSelector: &metav1.LabelSelector{}}},
		"no resource":       {reason: "it is required", spec: viewSpec{}, fields: []string{"spec.scope.resource"}},
		"path as resource":  {reason: "it would leave its place in the path", spec: viewSpec{Scope: scope{Resource: "pods/../secrets"}}, fields: []string{"spec.scope.resource"}},
		"subresource":       {reason: "views are of resources", spec: viewSpec{Scope: scope{Resource: "pods/log"}}, fields: []string{"spec.scope.resource"}},
		"odd group":         {reason: "it is a DNS name", spec: viewSpec{Scope: scope{Resource: "pods.A_B"}}, fields: []string{"spec.scope.resource"}},
		"output":            {reason: "there are three", spec: viewSpec{Scope: scope{Resource: "pods"}, Output: "yaml"}, fields: []string{"spec.output"}},
		"both namespaces":   {reason: "which?", spec: viewSpec{Scope: scope{Resource: "pods", Namespace: "a", AllNamespaces: true}}, fields: []string{"spec.scope.allNamespaces"}},
		"odd namespace":     {reason: "it would leave its place in the path", spec: viewSpec{Scope: scope{Resource: "pods", Namespace: "a/b"}}, fields: []string{"spec.scope.namespace"}},
		"odd name":          {reason: "it would leave its place in the path", spec: viewSpec{Scope: scope{Resource: "pods", Name: ".."}}, fields: []string{"spec.scope.name"}},
		"name and selector": {reason: "one of them would be ignored", spec: viewSpec{Scope: scope{Resource: "pods", Name: "a", LabelSelector: &metav1.LabelSelector{}, FieldSelector: "a=b"}}, fields: []string{"spec.scope.fieldSelector", "spec.scope.labelSelector"}},
		"negative limit":    {reason: "it means nothing", spec: viewSpec{Scope: scope{Resource: "pods", Limit: -1}}, fields: []string{"spec.scope.limit"}},
		"field selector":    {reason: "it does not parse", spec: viewSpec{Scope: scope{Resource: "pods", FieldSelector: "a"}}, fields: []string{"spec.scope.fieldSelector"}},
		"label selector":    {reason: "the operator is unknown", spec: viewSpec{Scope: scope{Resource: "pods", LabelSelector: broken}}, fields: []string{"spec.scope.labelSelector.matchExpressions[0].operator"}},
		"cluster selector":  {reason: "the operator is unknown", spec: viewSpec{Scope: scope{Resource: "pods"}, ClusterSelector: broken}, fields: []string{"spec.clusterSelector.matchExpressions[0].operator"}},
		"continue of many":  {reason: "whose list?", spec: viewSpec{Scope: scope{Resource: "pods", Continue: "x"}, ClusterSelector: &metav1.LabelSelector{}}, fields: []string{"spec.scope.continue"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, errs := parseView(&livev1alpha1.ViewWork{Spec: tc.spec})
			var got []string
			for _, e := range errs {
				got = append(got, e.Field)
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.fields, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s\n%v", tc.reason, diff, errs.ToAggregate())
			}
		})
	}
}

func TestViewQueryBuildsURL(t *testing.T) {
	pods := resource{gv: schema.GroupVersion{Version: "v1"}, plural: "pods", namespaced: true}
	roles := resource{gv: schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}, plural: "clusterroles"}
	cases := map[string]struct {
		reason   string
		scope    scope
		output   livev1alpha1.ViewWorkOutput
		resource resource
		want     string // empty: an error
	}{
		"one namespace":        {reason: "of the core group", scope: scope{Namespace: "a"}, resource: pods, want: "http://kube/api/v1/namespaces/a/pods"},
		"one object":           {reason: "names may hold colons", scope: scope{Name: "system:node"}, resource: roles, want: "http://kube/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node"},
		"name with a space":    {reason: "RBAC allows it", scope: scope{Name: "a b"}, resource: roles, want: "http://kube/apis/rbac.authorization.k8s.io/v1/clusterroles/a%20b"},
		"all namespaces":       {reason: "with all that narrows a list", scope: scope{AllNamespaces: true, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, FieldSelector: "x=y", Limit: 3, Continue: "c&d"}, resource: pods, want: "http://kube/api/v1/pods?continue=c%26d&fieldSelector=x%3Dy&labelSelector=a%3Db&limit=3"},
		"table":                {reason: "its cells say all", scope: scope{Namespace: "a"}, output: livev1alpha1.OutputTable, resource: pods, want: "http://kube/api/v1/namespaces/a/pods?includeObject=None"},
		"table of one":         {reason: "its cells say all", scope: scope{Name: "x"}, output: livev1alpha1.OutputTable, resource: roles, want: "http://kube/apis/rbac.authorization.k8s.io/v1/clusterroles/x?includeObject=None"},
		"table of all":         {reason: "no cell names the namespace", scope: scope{AllNamespaces: true}, output: livev1alpha1.OutputTable, resource: pods, want: "http://kube/api/v1/pods"},
		"no namespace":         {reason: "namespaced resources need one", resource: pods},
		"needless namespace":   {reason: "it would be ignored", scope: scope{Namespace: "a"}, resource: roles},
		"needless all of them": {reason: "it would be ignored", scope: scope{AllNamespaces: true}, resource: roles},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.scope.Resource = "x"
			q, errs := parseView(&livev1alpha1.ViewWork{Spec: viewSpec{Scope: tc.scope, Output: tc.output}})
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			got, err := q.buildURL("c1", tc.resource)
			if (err != nil) != (tc.want == "") {
				t.Fatalf("%s: error %v", tc.reason, err)
			}
			if err == nil && got.String() != tc.want {
				t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestCatalogFindsResourceAsKubectl(t *testing.T) {
	core, apps := schema.GroupVersion{Version: "v1"}, schema.GroupVersion{Group: "apps", Version: "v1"}
	metrics := schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}
	x1, x2 := schema.GroupVersion{Group: "x.io", Version: "v2"}, schema.GroupVersion{Group: "x.io", Version: "v1"}
	c := &catalog{resources: []resource{
		{gv: core, plural: "pods", singular: "pod", kind: "Pod", shortNames: []string{"po"}},
		{gv: core, plural: "nodes", singular: "node", kind: "Node", shortNames: []string{"no"}},
		{gv: apps, plural: "deployments", singular: "deployment", kind: "Deployment", shortNames: []string{"deploy", "pod"}},
		{gv: metrics, plural: "pods", kind: "PodMetrics"},
		{gv: x1, plural: "things", singular: "thing", kind: "Thing"},
		{gv: x2, plural: "things", singular: "thing", kind: "Thing"},
	}}
	cases := map[string]struct {
		reason string
		arg    string
		want   string
	}{
		"plural":            {reason: "the first group wins", arg: "pods", want: "/v1 pods"},
		"singular":          {reason: "a name wins over a short name", arg: "pod", want: "/v1 pods"},
		"kind":              {reason: "in any case", arg: "Deployment", want: "apps/v1 deployments"},
		"upper case":        {reason: "as kubectl", arg: "PODS", want: "/v1 pods"},
		"short":             {reason: "short names come second", arg: "deploy", want: "apps/v1 deployments"},
		"group":             {reason: "name.group", arg: "pods.metrics.k8s.io", want: "metrics.k8s.io/v1beta1 pods"},
		"short and group":   {reason: "short names take groups too", arg: "deploy.apps", want: "apps/v1 deployments"},
		"version":           {reason: "name.version.group", arg: "things.v1.x.io", want: "x.io/v1 things"},
		"preferred version": {reason: "the first listed", arg: "things.x.io", want: "x.io/v2 things"},
		"core version":      {reason: "the core group has no name", arg: "pods.v1.", want: "/v1 pods"},
		"core version 2":    {reason: "the dot may be left out", arg: "pods.v1", want: "/v1 pods"},
		"other group":       {reason: "it does not exist", arg: "pods.apps"},
		"other version":     {reason: "it is not served", arg: "things.v9.x.io"},
		"unknown":           {reason: "it does not exist", arg: "foos"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			arg, ok := parseResourceArg(tc.arg)
			if !ok {
				t.Fatal("does not parse")
			}
			r, found := c.find(arg)
			got := ""
			if found {
				got = r.gv.Group + "/" + r.gv.Version + " " + r.plural
			}
			if got != tc.want {
				t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// FuzzParseView checks that a question which parses is asked at its place: no
// field leaves its segment of the path or its parameter of the query.
func FuzzParseView(f *testing.F) {
	f.Add("pods", "a", "b", "k", "x=y", "c", int64(1), true)
	f.Add("deploy.v1.apps", "", "", "", "", "", int64(0), false)
	f.Add("x/../y", "..", "a/b", "k=v", "a=b,c", "&limit=9", int64(-1), true)
	f.Fuzz(func(t *testing.T, res, name, namespace, label, fieldSelector, continuation string, limit int64, namespaced bool) {
		s := scope{Resource: res, Name: name, Namespace: namespace, FieldSelector: fieldSelector, Continue: continuation, Limit: limit}
		if label != "" {
			s.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{label: "v"}}
		}
		q, errs := parseView(&livev1alpha1.ViewWork{Spec: viewSpec{Scope: s}})
		if len(errs) > 0 {
			return
		}
		got, err := q.buildURL("c1", resource{gv: schema.GroupVersion{Group: "g", Version: "v"}, plural: "ps", namespaced: namespaced})
		if err != nil {
			return
		}
		again, err := url.Parse(got.String())
		if err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		want := []string{"", "apis", "g", "v"}
		if namespace != "" {
			want = append(want, "namespaces", namespace)
		}
		want = append(want, "ps")
		if name != "" {
			want = append(want, name)
		}
		if diff := cmp.Diff(want, strings.Split(again.Path, "/")); diff != "" || again.Host != "kube" || strings.Contains(again.Path, "/../") {
			t.Errorf("%s (-want +got):\n%s", got, diff)
		}
		for k, v := range again.Query() {
			if len(v) != 1 || !slices.Contains([]string{"labelSelector", "fieldSelector", "continue", "limit"}, k) {
				t.Errorf("%s: parameter %q is %q", got, k, v)
			}
		}
	})
}
