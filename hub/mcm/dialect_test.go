// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	actionv1beta1 "github.com/spokelet/spokelet/api/action/v1beta1"
	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	viewv1beta1 "github.com/spokelet/spokelet/api/view/v1beta1"
	"github.com/spokelet/spokelet/api/wire"
)

const testBytes = 1000

// newFailure is a request that failed.
func newFailure(reason, message string) request {
	return request{cluster: managed, failure: &failure{reason: reason, message: message}}
}

func newRaw(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }

// compareRequests reads an object and completes what is wanted of it.
func compareRequests(t *testing.T, reason string, got, want request) {
	t.Helper()
	if want.view != nil {
		want.view.MaxBytes = testBytes
	}
	if want.action != nil {
		want.action.MaxBytes = testBytes
	}
	// One by one, the bytes of the largest values take half a minute under the race detector.
	bytesAtOnce := cmp.Comparer(bytes.Equal)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(request{}, failure{}), bytesAtOnce); diff != "" {
		t.Errorf("%s (-want +got):\n%s", reason, diff)
	}
}

func newViewRequest(v wire.View) request     { return request{cluster: managed, view: &v} }
func newActionRequest(a wire.Action) request { return request{cluster: managed, action: &a} }

func TestParseResourceWork(t *testing.T) {
	pods := wire.Target{Resource: "pods"}
	tests := map[string]struct {
		reason  string
		kind    string
		scope   v1alpha1.ResourceFilter
		options options
		want    request
	}{
		"all pods":                {reason: "the least that can be asked", scope: v1alpha1.ResourceFilter{ResourceType: "pods"}, want: newViewRequest(wire.View{Target: pods})},
		"in capitals":             {reason: "types are read in any case", kind: "RESOURCE", scope: v1alpha1.ResourceFilter{ResourceType: "pods"}, want: newViewRequest(wire.View{Target: pods})},
		"in small letters":        {reason: "as the document writes it", kind: "resource", scope: v1alpha1.ResourceFilter{ResourceType: "pods"}, want: newViewRequest(wire.View{Target: pods})},
		"periodically":            {reason: "the mode is the status's", scope: v1alpha1.ResourceFilter{ResourceType: "pods", Mode: "periodic", UpdateIntervalSeconds: 3600}, want: newViewRequest(wire.View{Target: pods})},
		"with secrets shown":      {reason: "the hub's option allows it", scope: v1alpha1.ResourceFilter{ResourceType: "pods"}, options: options{showSecrets: true}, want: newViewRequest(wire.View{Target: pods, Secrets: wire.SecretsShown})},
		"all that is said":        {reason: "no field is dropped", scope: v1alpha1.ResourceFilter{ResourceType: "deploy", APIGroup: "apps", Version: "v1", NameSpace: "ns", FieldSelector: "metadata.name=a", ServerPrint: true, LabelSelector: newRaw(`{"matchLabels":{"a":"b"}}`)}, want: newViewRequest(wire.View{Target: wire.Target{Resource: "deploy", Group: "apps", Version: "v1", Namespace: "ns"}, LabelSelector: "a=b", FieldSelector: "metadata.name=a", Table: true})},
		"one object":              {reason: "selectors and tables are of lists", scope: v1alpha1.ResourceFilter{ResourceType: "pods", Name: "p", NameSpace: "ns", FieldSelector: "a=b", ServerPrint: true, LabelSelector: newRaw(`{"a":"b"}`)}, want: newViewRequest(wire.View{Target: wire.Target{Resource: "pods", Namespace: "ns", Name: "p"}})},
		"a bare map":              {reason: "the document's own example", scope: v1alpha1.ResourceFilter{ResourceType: "pods", LabelSelector: newRaw(`{"app":"nginx"}`)}, want: newViewRequest(wire.View{Target: pods, LabelSelector: "app=nginx"})},
		"expressions":             {reason: "a LabelSelector", scope: v1alpha1.ResourceFilter{ResourceType: "pods", LabelSelector: newRaw(`{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"c","operator":"NotIn","values":["d","e"]}]}`)}, want: newViewRequest(wire.View{Target: pods, LabelSelector: "a=b,c notin (d,e)"})},
		"a selector of nothing":   {reason: "it selects all", scope: v1alpha1.ResourceFilter{ResourceType: "pods", LabelSelector: newRaw(`{"matchLabels":{}}`)}, want: newViewRequest(wire.View{Target: pods})},
		"an empty map":            {reason: "it selects all", scope: v1alpha1.ResourceFilter{ResourceType: "pods", LabelSelector: newRaw(`{}`)}, want: newViewRequest(wire.View{Target: pods})},
		"null":                    {reason: "it is none", scope: v1alpha1.ResourceFilter{ResourceType: "pods", LabelSelector: newRaw(`null`)}, want: newViewRequest(wire.View{Target: pods})},
		"half a selector":         {reason: "what is beside it would be dropped, and more be shown than asked for", scope: v1alpha1.ResourceFilter{ResourceType: "pods", LabelSelector: newRaw(`{"matchLabels":{"a":"b"},"c":"d"}`)}, want: newFailure("", "spec.scope.labelSelector: it is neither a label selector nor a map of labels")},
		"a map of numbers":        {reason: "labels are text", scope: v1alpha1.ResourceFilter{ResourceType: "pods", LabelSelector: newRaw(`{"a":1}`)}, want: newFailure("", "spec.scope.labelSelector: it is neither a label selector nor a map of labels")},
		"a list":                  {reason: "it is no selector", scope: v1alpha1.ResourceFilter{ResourceType: "pods", LabelSelector: newRaw(`["a"]`)}, want: newFailure("", "spec.scope.labelSelector: it is neither a label selector nor a map of labels")},
		"another mode":            {reason: "it is no mode", scope: v1alpha1.ResourceFilter{ResourceType: "pods", Mode: "Once"}, want: newFailure("", `spec.scope.mode "Once" is not Periodic`)},
		"no type":                 {reason: "an unknown type is never silent", kind: "-", scope: v1alpha1.ResourceFilter{ResourceType: "pods"}, want: newFailure("", `spec.type "-" is neither Resource nor Action`)},
		"a type with white space": {reason: "an unknown type is never silent", kind: "Resource ", scope: v1alpha1.ResourceFilter{ResourceType: "pods"}, want: newFailure("", `spec.type "Resource " is neither Resource nor Action`)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := resourceWork("w")
			w.Spec.Scope = tc.scope
			if tc.kind != "" {
				w.Spec.Type = v1alpha1.WorkType(tc.kind)
			}
			tc.options.maxBytes = testBytes
			compareRequests(t, tc.reason, mcmWorks().parse(w, tc.options), tc.want)
		})
	}
}

func TestParseActionWork(t *testing.T) {
	template := json.RawMessage(configMap)
	create := wire.Action{Verb: wire.VerbCreate, Template: template}
	deletion := func(target wire.Target) request {
		return newActionRequest(wire.Action{Verb: wire.VerbDelete, Target: target})
	}
	kube := func(k v1alpha1.KubeWorkSpec) *v1alpha1.KubeWorkSpec { return &k }
	tests := map[string]struct {
		reason, kind, verb string
		kube               *v1alpha1.KubeWorkSpec
		options            options
		want               request
	}{
		"creates":                    {reason: "the template", verb: "Create", kube: kube(v1alpha1.KubeWorkSpec{ObjectTemplate: *newRaw(configMap)}), want: newActionRequest(create)},
		"creates, in small letters":  {reason: "the original said Completed and did nothing", kind: "action", verb: "create", kube: kube(v1alpha1.KubeWorkSpec{ObjectTemplate: *newRaw(configMap)}), want: newActionRequest(create)},
		"creates in another":         {reason: "its own namespace goes before the template's", verb: "Create", kube: kube(v1alpha1.KubeWorkSpec{Namespace: "other", ObjectTemplate: *newRaw(configMap)}), want: newActionRequest(wire.Action{Verb: wire.VerbCreate, Template: template, Target: wire.Target{Namespace: "other"}})},
		"creates by another name":    {reason: "the template says what is made", verb: "Create", kube: kube(v1alpha1.KubeWorkSpec{Resource: "pods", Name: "x", ObjectTemplate: *newRaw(configMap)}), want: newActionRequest(create)},
		"updates":                    {reason: "the template", verb: "UPDATE", kube: kube(v1alpha1.KubeWorkSpec{ObjectTemplate: *newRaw(configMap)}), want: newActionRequest(wire.Action{Verb: wire.VerbUpdate, Template: template})},
		"creates, and shows secrets": {reason: "the hub's option allows it", verb: "Create", options: options{showSecrets: true}, kube: kube(v1alpha1.KubeWorkSpec{ObjectTemplate: *newRaw(configMap)}), want: newActionRequest(wire.Action{Verb: wire.VerbCreate, Template: template, Secrets: wire.SecretsShown})},
		"creates nothing":            {reason: "there is no template", verb: "Create", kube: kube(v1alpha1.KubeWorkSpec{Resource: "pods", Name: "x"}), want: newFailure("", "spec.kube.template is missing")},
		"creates null":               {reason: "there is no template", verb: "Create", kube: kube(v1alpha1.KubeWorkSpec{ObjectTemplate: *newRaw("null")}), want: newFailure("", "spec.kube.template is missing")},

		"deletes":                           {reason: "as it is named", verb: "Delete", kube: kube(v1alpha1.KubeWorkSpec{Resource: "configmaps", Name: "a", Namespace: "ns"}), want: deletion(wire.Target{Resource: "configmaps", Name: "a", Namespace: "ns"})},
		"deletes what the template names":   {reason: "the original asked for the object named nothing", verb: "delete", kube: kube(v1alpha1.KubeWorkSpec{ObjectTemplate: *newRaw(configMap)}), want: deletion(wire.Target{Kind: "ConfigMap", Name: "a", Namespace: "ns"})},
		"deletes by both":                   {reason: "what is missing comes from the template", verb: "Delete", kube: kube(v1alpha1.KubeWorkSpec{Resource: "cm", Name: "b", ObjectTemplate: *newRaw(configMap)}), want: deletion(wire.Target{Resource: "cm", Name: "b", Namespace: "ns"})},
		"deletes in another":                {reason: "its own namespace goes before the template's", verb: "Delete", kube: kube(v1alpha1.KubeWorkSpec{Namespace: "other", ObjectTemplate: *newRaw(configMap)}), want: deletion(wire.Target{Kind: "ConfigMap", Name: "a", Namespace: "other"})},
		"deletes in the template's group":   {reason: "a kind alone is ambiguous", verb: "Delete", kube: kube(v1alpha1.KubeWorkSpec{ObjectTemplate: *newRaw(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"}}`)}), want: deletion(wire.Target{Kind: "Deployment", Group: "apps", Name: "d"})},
		"deletes all":                       {reason: "a deletion needs a name", verb: "Delete", kube: kube(v1alpha1.KubeWorkSpec{Resource: "configmaps", Namespace: "ns"}), want: newFailure("", "neither spec.kube.name nor the template names an object")},
		"deletes a name":                    {reason: "a name needs a resource", verb: "Delete", kube: kube(v1alpha1.KubeWorkSpec{Name: "a"}), want: newFailure("", "neither spec.kube.resource nor the template names a resource")},
		"deletes by what is no object":      {reason: "nothing is named", verb: "Delete", kube: kube(v1alpha1.KubeWorkSpec{ObjectTemplate: *newRaw(`{"metadata":1}`)}), want: newFailure("", "spec.kube.template is no object")},
		"patches":                           {reason: "an unknown action is never silently done", verb: "Patch", kube: kube(v1alpha1.KubeWorkSpec{ObjectTemplate: *newRaw(configMap)}), want: newFailure("", `spec.actionType "Patch" is none of Create, Update and Delete`)},
		"says nothing":                      {reason: "an unknown action is never silently done", kube: kube(v1alpha1.KubeWorkSpec{ObjectTemplate: *newRaw(configMap)}), want: newFailure("", `spec.actionType "" is none of Create, Update and Delete`)},
		"has neither":                       {reason: "there is nothing to do", verb: "Create", want: newFailure("", "spec.kube is missing")},
		"is of a type that is another word": {reason: "an unknown type is never silent", kind: "Act", verb: "Create", kube: kube(v1alpha1.KubeWorkSpec{ObjectTemplate: *newRaw(configMap)}), want: newFailure("", `spec.type "Act" is neither Resource nor Action`)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := actionWork("w")
			w.Spec.ActionType, w.Spec.KubeWork = v1alpha1.ActionType(tc.verb), tc.kube
			if tc.kind != "" {
				w.Spec.Type = v1alpha1.WorkType(tc.kind)
			}
			tc.options.maxBytes = testBytes
			compareRequests(t, tc.reason, mcmWorks().parse(w, tc.options), tc.want)
		})
	}
}

func TestParseManagedClusterView(t *testing.T) {
	tests := map[string]struct {
		reason  string
		scope   viewv1beta1.ViewScope
		options options
		want    request
	}{
		"a kind":      {reason: "as most write it", scope: viewv1beta1.ViewScope{Group: "apps", Version: "v1", Kind: "Deployment", Name: "d", Namespace: "ns", UpdateIntervalSeconds: 30}, want: newViewRequest(wire.View{Target: wire.Target{Group: "apps", Version: "v1", Kind: "Deployment", Name: "d", Namespace: "ns"}, Secrets: wire.SecretsRefused})},
		"a resource":  {reason: "as kubectl takes it", scope: viewv1beta1.ViewScope{Resource: "deploy", Name: "d", Namespace: "ns"}, want: newViewRequest(wire.View{Target: wire.Target{Resource: "deploy", Name: "d", Namespace: "ns"}, Secrets: wire.SecretsRefused})},
		"both":        {reason: "the kind goes before", scope: viewv1beta1.ViewScope{Resource: "pods", Kind: "Deployment", Name: "d"}, want: newViewRequest(wire.View{Target: wire.Target{Kind: "Deployment", Name: "d"}, Secrets: wire.SecretsRefused})},
		"a secret":    {reason: "the hub's option allows it", scope: viewv1beta1.ViewScope{Resource: "secret", Name: "s"}, options: options{showSecrets: true}, want: newViewRequest(wire.View{Target: wire.Target{Resource: "secret", Name: "s"}, Secrets: wire.SecretsShown})},
		"no name":     {reason: "it shows one object", scope: viewv1beta1.ViewScope{Kind: "Deployment"}, want: newFailure("ResourceNameInvalid", "resource name is empty")},
		"no resource": {reason: "nothing is named", scope: viewv1beta1.ViewScope{Name: "d"}, want: newFailure("ResourceTypeInvalid", "resource type is empty")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			v := clusterView("v", func(v *viewv1beta1.ManagedClusterView) { v.Spec.Scope = tc.scope })
			tc.options.maxBytes = testBytes
			compareRequests(t, tc.reason, clusterViews().parse(v, tc.options), tc.want)
		})
	}
}

func TestParseManagedClusterAction(t *testing.T) {
	tests := map[string]struct {
		reason, verb string
		kube         *actionv1beta1.KubeWorkSpec
		want         request
	}{
		"creates":         {reason: "the template", verb: "Create", kube: &actionv1beta1.KubeWorkSpec{ObjectTemplate: *newRaw(configMap)}, want: newActionRequest(wire.Action{Verb: wire.VerbCreate, Template: json.RawMessage(configMap)})},
		"updates":         {reason: "in its own namespace", verb: "Update", kube: &actionv1beta1.KubeWorkSpec{Namespace: "other", ObjectTemplate: *newRaw(configMap)}, want: newActionRequest(wire.Action{Verb: wire.VerbUpdate, Template: json.RawMessage(configMap), Target: wire.Target{Namespace: "other"}})},
		"deletes":         {reason: "as it is named", verb: "Delete", kube: &actionv1beta1.KubeWorkSpec{Resource: "cm", Name: "a", Namespace: "ns"}, want: newActionRequest(wire.Action{Verb: wire.VerbDelete, Target: wire.Target{Resource: "cm", Name: "a", Namespace: "ns"}})},
		"patches":         {reason: "the one verb that is not known", verb: "Patch", kube: &actionv1beta1.KubeWorkSpec{ObjectTemplate: *newRaw(configMap)}, want: newFailure("ActionTypeInvalid", "action type is invalid")},
		"does nothing":    {reason: "there is nothing to do it to", verb: "Create", want: newFailure("ActionTypeInvalid", "spec.kube is missing")},
		"creates nothing": {reason: "there is no template", verb: "Create", kube: &actionv1beta1.KubeWorkSpec{Name: "a"}, want: newFailure("CreateResourceFailed", "spec.kube.template is missing")},
		"deletes all":     {reason: "a deletion needs a name", verb: "Delete", kube: &actionv1beta1.KubeWorkSpec{Resource: "cm"}, want: newFailure("DeleteResourceFailed", "neither spec.kube.name nor the template names an object")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a := clusterAction("a", func(a *actionv1beta1.ManagedClusterAction) { a.Spec.ActionType, a.Spec.KubeWork = tc.verb, tc.kube })
			compareRequests(t, tc.reason, clusterActions().parse(a, options{maxBytes: testBytes}), tc.want)
		})
	}
}

// An agent accepts what the hub sends: a request is never refused on the wire.
func TestRequestsAreAcceptedByAgent(t *testing.T) {
	for _, obj := range []client.Object{
		resourceWork("w"), actionWork("a"), clusterView("v"), clusterAction("b"), releaseWork("r"),
		resourceWork("l", func(w *v1alpha1.Work) {
			w.Spec.Scope = v1alpha1.ResourceFilter{ResourceType: releases, Name: "r", NameSpace: "ns"}
		}),
	} {
		for _, d := range dialects() {
			if d.name != objectKeyOf(obj).Dialect {
				continue
			}
			in := d.parse(obj, options{maxBytes: testBytes})
			requester := wire.Requester{User: "u"}
			var err error
			if in.view != nil {
				in.view.Requester = requester
				_, err = wire.DecodeView(mustEncode(t, in.view))
			} else {
				in.action.Requester = requester
				_, err = wire.DecodeAction(mustEncode(t, in.action))
			}
			if err != nil {
				t.Errorf("%s: %v", d.name, err)
			}
		}
	}
}

func FuzzSelector(f *testing.F) {
	f.Add([]byte(`{"app":"nginx"}`))
	f.Add([]byte(`{"matchExpressions":[{"key":"c","operator":"In","values":["d"]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		w := resourceWork("w", func(w *v1alpha1.Work) { w.Spec.Scope.LabelSelector = &runtime.RawExtension{Raw: body} })
		in := mcmWorks().parse(w, options{maxBytes: testBytes})
		if (in.view == nil) == (in.failure == nil) {
			t.Fatalf("%s: view %v, failure %v: want one", body, in.view, in.failure)
		}
		if in.view == nil {
			return
		}
		selector, err := labels.Parse(in.view.LabelSelector)
		if err != nil {
			t.Fatalf("%s became the selector %q: %v", body, in.view.LabelSelector, err)
		}
		// Nothing that was said may be dropped: more would be shown than was asked for.
		if text := strings.TrimSpace(string(body)); selector.Empty() && strings.Contains(text, `:"`) && !strings.Contains(text, "match") {
			t.Errorf("%s selects everything", body)
		}
	})
}

func FuzzDeletion(f *testing.F) {
	f.Add([]byte(configMap), "", "")
	f.Add([]byte(`{"kind":"Pod"}`), "pods", "p")
	f.Fuzz(func(t *testing.T, template []byte, kind, name string) {
		w := actionWork("w", func(w *v1alpha1.Work) {
			w.Spec.ActionType = v1alpha1.DeleteActionType
			w.Spec.KubeWork = &v1alpha1.KubeWorkSpec{Resource: kind, Name: name, ObjectTemplate: runtime.RawExtension{Raw: template}}
		})
		in := mcmWorks().parse(w, options{maxBytes: testBytes})
		if (in.action == nil) == (in.failure == nil) {
			t.Fatalf("action %v, failure %v: want one", in.action, in.failure)
		}
		if a := in.action; a != nil && (a.Target.Name == "" || a.Target.Resource == "" && a.Target.Kind == "" || len(a.Template) > 0) {
			t.Errorf("deletes %+v", a.Target)
		}
	})
}
