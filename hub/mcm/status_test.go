// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	actionv1beta1 "github.com/spokelet/spokelet/api/action/v1beta1"
	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	viewv1beta1 "github.com/spokelet/spokelet/api/view/v1beta1"
	"github.com/spokelet/spokelet/api/wire"
)

func newViewOutcome(r wire.ViewResult) outcome     { return outcome{generation: 1, view: &r} }
func newActionOutcome(r wire.ActionResult) outcome { return outcome{generation: 1, action: &r} }
func newFailureOutcome(reason, m string) outcome {
	return outcome{failure: &failure{reason: reason, message: m}}
}

const pod = `{"kind":"Pod"}`

func TestNextWorkState(t *testing.T) {
	tests := map[string]struct {
		reason  string
		mode    string
		outcome outcome
		want    state
	}{
		"an answer":          {reason: "it is complete", outcome: newViewOutcome(wire.ViewResult{Result: json.RawMessage(pod)}), want: state{kind: "Completed", observed: 1}},
		"an answer, Period":  {reason: "so the original showed it", mode: "PERIODIC", outcome: newViewOutcome(wire.ViewResult{Result: json.RawMessage(pod)}), want: state{kind: "Processing", observed: 1}},
		"a refusal":          {reason: "the cluster has said so", outcome: newViewOutcome(wire.ViewResult{Refusal: wire.Refuse(wire.CauseRequest, metav1.StatusReasonForbidden, "pods is forbidden")}), want: state{kind: "Failed", reason: "pods is forbidden", observed: 1}},
		"a refusal, Period":  {reason: "a failure is one in any mode", mode: "Periodic", outcome: newViewOutcome(wire.ViewResult{Refusal: wire.Refuse(wire.CauseTarget, "", "no")}), want: state{kind: "Failed", reason: "no", observed: 1}},
		"done":               {reason: "it is complete", outcome: newActionOutcome(wire.ActionResult{Result: json.RawMessage(configMap)}), want: state{kind: "Completed", observed: 1}},
		"done, and large":    {reason: "the reader should know", outcome: newActionOutcome(wire.ActionResult{Omitted: true}), want: state{kind: "Completed", reason: "the object is left out: there is no room for it in a result", observed: 1}},
		"not done":           {reason: "the cluster has said so", outcome: newActionOutcome(wire.ActionResult{Refusal: wire.Refuse(wire.CauseUnknown, "", "outcome unknown")}), want: state{kind: "Failed", reason: "outcome unknown", observed: 1}},
		"the hub's own word": {reason: "no cluster has answered that", outcome: newFailureOutcome("", "spec.kube is missing"), want: state{kind: "Failed", reason: "spec.kube is missing"}},
		"a cluster away":     {reason: "it waits", outcome: outcome{waiting: `cluster "c1" is not connected`}, want: state{kind: "Processing", reason: `cluster "c1" is not connected`}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := resourceWork("w", func(w *v1alpha1.Work) { w.Spec.Scope.Mode = v1alpha1.ResourceFilterMode(tc.mode) })
			if diff := cmp.Diff(tc.want, mcmWorks().nextState(w, state{digest: "d"}, tc.outcome), cmp.AllowUnexported(state{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestTruncatedListNamesViewWork(t *testing.T) {
	tests := map[string]struct {
		reason        string
		scope         v1alpha1.ResourceFilter
		clusterScoped bool
		want          livev1alpha1.ViewWorkSpec
	}{
		"all namespaces": {
			reason: "an empty namespace is all", scope: v1alpha1.ResourceFilter{ResourceType: "pods"},
			want: livev1alpha1.ViewWorkSpec{Scope: livev1alpha1.ViewWorkScope{Resource: "pods", AllNamespaces: true}},
		},
		"nodes": {
			reason: "they are in none", scope: v1alpha1.ResourceFilter{ResourceType: "nodes"}, clusterScoped: true,
			want: livev1alpha1.ViewWorkSpec{Scope: livev1alpha1.ViewWorkScope{Resource: "nodes"}},
		},
		"one namespace, a bare map": {
			reason: "the question is the same", scope: v1alpha1.ResourceFilter{ResourceType: "pods", NameSpace: "ns", LabelSelector: newRaw(`{"app":"nginx"}`), FieldSelector: "a=b"},
			want: livev1alpha1.ViewWorkSpec{Scope: livev1alpha1.ViewWorkScope{
				Resource: "pods", Namespace: "ns", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "nginx"}}, FieldSelector: "a=b",
			}},
		},
		"a group": {
			reason: "a ViewWork has it in the name", scope: v1alpha1.ResourceFilter{ResourceType: "deployments", APIGroup: "apps"},
			want: livev1alpha1.ViewWorkSpec{Scope: livev1alpha1.ViewWorkScope{Resource: "deployments.apps", AllNamespaces: true}},
		},
		"a version": {
			reason: "a ViewWork has it in the name", scope: v1alpha1.ResourceFilter{ResourceType: "deployments", APIGroup: "apps", Version: "v1"},
			want: livev1alpha1.ViewWorkSpec{Scope: livev1alpha1.ViewWorkScope{Resource: "deployments.v1.apps", AllNamespaces: true}},
		},
		"a group in the name already": {
			reason: "once is enough", scope: v1alpha1.ResourceFilter{ResourceType: "deployments.apps", APIGroup: "apps"},
			want: livev1alpha1.ViewWorkSpec{Scope: livev1alpha1.ViewWorkScope{Resource: "deployments.apps", AllNamespaces: true}},
		},
		"a table": {
			reason: "the form is the same", scope: v1alpha1.ResourceFilter{ResourceType: "pods", ServerPrint: true},
			want: livev1alpha1.ViewWorkSpec{Scope: livev1alpha1.ViewWorkScope{Resource: "pods", AllNamespaces: true}, Output: livev1alpha1.OutputTable},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := resourceWork("w", func(w *v1alpha1.Work) { w.Spec.Scope = tc.scope })
			got := mcmWorks().nextState(w, state{}, newViewOutcome(wire.ViewResult{Result: json.RawMessage(`{}`), Cut: 7, ClusterScoped: tc.clusterScoped}))
			text, named, _ := strings.Cut(got.reason, ": ")
			if got.kind != "Completed" || !strings.HasPrefix(text, "7 items are left out") || strings.Contains(got.reason, "\n") {
				t.Errorf("%s: %s, %s", tc.reason, got.kind, got.reason)
			}
			var view livev1alpha1.ViewWork
			if err := yaml.UnmarshalStrict([]byte(named), &view); err != nil {
				t.Fatalf("%s is no ViewWork: %v", named, err)
			}
			if view.Namespace != managed || view.Kind != "ViewWork" || view.APIVersion != "live.spokelet.io/v1alpha1" {
				t.Errorf("%s: %+v", tc.reason, view)
			}
			if diff := cmp.Diff(tc.want, view.Spec); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestNextManagedClusterViewState(t *testing.T) {
	refused := func(cause wire.Cause, message string) outcome {
		return newViewOutcome(wire.ViewResult{Refusal: wire.Refuse(cause, "", message)})
	}
	tests := map[string]struct {
		reason  string
		scope   viewv1beta1.ViewScope
		outcome outcome
		want    state
	}{
		"an answer":      {reason: "as documented", outcome: newViewOutcome(wire.ViewResult{Result: json.RawMessage(pod)}), want: state{kind: "True/GetResourceProcessing", reason: "Watching resources successfully", observed: 1, digest: "d"}},
		"no such kind":   {reason: "as documented", scope: viewv1beta1.ViewScope{Kind: "Foo"}, outcome: refused(wire.CauseTarget, "no kind"), want: state{kind: "False/ResourceGVKInvalid", reason: "no kind", observed: 1, digest: "d"}},
		"no such word":   {reason: "as documented", scope: viewv1beta1.ViewScope{Resource: "foos"}, outcome: refused(wire.CauseTarget, "no resource"), want: state{kind: "False/ResourceTypeInvalid", reason: "no resource", observed: 1, digest: "d"}},
		"not found":      {reason: "as documented", outcome: refused(wire.CauseRequest, "pods \"p\" not found"), want: state{kind: "False/GetResourceFailed", reason: "failed to get resource with err: pods \"p\" not found", observed: 1, digest: "d"}},
		"a secret":       {reason: "as documented", outcome: refused(wire.CauseRequest, "viewing secrets is not allowed"), want: state{kind: "False/GetResourceFailed", reason: "failed to get resource with err: viewing secrets is not allowed", observed: 1, digest: "d"}},
		"too large":      {reason: "it is no fault of the resource", outcome: refused(wire.CauseLimit, "too large"), want: state{kind: "False/GetResourceFailed", reason: "failed to get resource with err: too large", observed: 1, digest: "d"}},
		"no name":        {reason: "as documented", outcome: newFailureOutcome("ResourceNameInvalid", "resource name is empty"), want: state{kind: "False/ResourceNameInvalid", reason: "resource name is empty", digest: "d"}},
		"forbidden":      {reason: "a condition has a reason", outcome: newFailureOutcome("", "forbidden: u"), want: state{kind: "False/GetResourceFailed", reason: "forbidden: u", digest: "d"}},
		"a cluster away": {reason: "the original said nothing", outcome: outcome{waiting: "away"}, want: state{kind: "False/ClusterNotConnected", reason: "away", digest: "d"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			v := clusterView("v", func(v *viewv1beta1.ManagedClusterView) { v.Spec.Scope = tc.scope })
			if diff := cmp.Diff(tc.want, clusterViews().nextState(v, state{digest: "d"}, tc.outcome), cmp.AllowUnexported(state{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestNextManagedClusterActionState(t *testing.T) {
	tests := map[string]struct {
		reason, verb string
		outcome      outcome
		want         state
	}{
		"done":           {reason: "as documented", verb: "Create", outcome: newActionOutcome(wire.ActionResult{}), want: state{kind: "True/ActionDone", reason: "Resource action is done.", observed: 1}},
		"not created":    {reason: "as documented", verb: "Create", outcome: newActionOutcome(wire.ActionResult{Refusal: wire.Refuse(wire.CauseRequest, "", "it exists")}), want: state{kind: "False/CreateResourceFailed", reason: "it exists", observed: 1}},
		"not updated":    {reason: "as documented", verb: "Update", outcome: newActionOutcome(wire.ActionResult{Refusal: wire.Refuse(wire.CauseRequest, "", "not found")}), want: state{kind: "False/UpdateResourceFailed", reason: "not found", observed: 1}},
		"not deleted":    {reason: "as documented", verb: "delete", outcome: newActionOutcome(wire.ActionResult{Refusal: wire.Refuse(wire.CauseTarget, "", "no such resource")}), want: state{kind: "False/DeleteResourceFailed", reason: "no such resource", observed: 1}},
		"an odd verb":    {reason: "as documented", verb: "Patch", outcome: newFailureOutcome("ActionTypeInvalid", "action type is invalid"), want: state{kind: "False/ActionTypeInvalid", reason: "action type is invalid", observed: 1}},
		"forbidden":      {reason: "a condition has a reason", verb: "Create", outcome: newFailureOutcome("", "forbidden: u"), want: state{kind: "False/CreateResourceFailed", reason: "forbidden: u", observed: 1}},
		"a cluster away": {reason: "it has not been done", verb: "Create", outcome: outcome{waiting: "away"}, want: state{kind: "False/ClusterNotConnected", reason: "away"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a := clusterAction("a", func(a *actionv1beta1.ManagedClusterAction) { a.Spec.ActionType = tc.verb })
			if diff := cmp.Diff(tc.want, clusterActions().nextState(a, state{}, tc.outcome), cmp.AllowUnexported(state{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// What is written is what is read: otherwise each answer would be written again.
func TestWrittenStateIsReadBack(t *testing.T) {
	now := time.Unix(100, 0)
	for _, next := range []state{
		{kind: "True/GetResourceProcessing", reason: "m", observed: 3}, {kind: "False/GetResourceFailed", reason: "m"},
	} {
		v := clusterView("v")
		v.Status.Conditions = conditionsWithState(nil, viewv1beta1.ConditionViewProcessing, state{}, next, now)
		if diff := cmp.Diff(next, clusterViews().storedState(v), cmp.AllowUnexported(state{})); diff != "" {
			t.Errorf("(-written +read):\n%s", diff)
		}
	}
	w := resourceWork("w")
	next := state{kind: "Failed", reason: "r", observed: 2}
	status, ok := newWorkStatus(w, state{}, next, nil, now).(v1alpha1.WorkStatus)
	if !ok || !status.LastUpdateTime.Time.Equal(now) {
		t.Fatalf("status %+v", status)
	}
	w.Status = status
	if diff := cmp.Diff(next, mcmWorks().storedState(w), cmp.AllowUnexported(state{})); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
}

func TestConditionTransitionTimeFollowsStatus(t *testing.T) {
	first, later := time.Unix(100, 0), time.Unix(200, 0)
	yes := state{kind: "True/R", observed: 1}
	foreign := metav1.Condition{Type: "Theirs", Status: metav1.ConditionTrue, Reason: "R", LastTransitionTime: metav1.Time{Time: first}}
	stored := conditionsWithState([]metav1.Condition{foreign}, "Processing", state{}, yes, first)
	tests := map[string]struct {
		reason     string
		last, next state
		want       time.Time
	}{
		"another message":         {reason: "it has not turned", last: yes, next: state{kind: "True/R", reason: "m", observed: 1}, want: first},
		"another reason":          {reason: "it has not turned", last: yes, next: state{kind: "True/S", observed: 1}, want: first},
		"another status":          {reason: "it has turned", last: yes, next: state{kind: "False/R"}, want: later},
		"a cache that lags twice": {reason: "the last one written was another", last: state{kind: "False/R"}, next: yes, want: later},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := conditionsWithState(stored, "Processing", tc.last, tc.next, later)
			if len(got) != 2 || got[0] != foreign || !got[1].LastTransitionTime.Time.Equal(tc.want) {
				t.Errorf("%s: %+v", tc.reason, got)
			}
			if diff := cmp.Diff(conditionsWithState([]metav1.Condition{foreign}, "Processing", state{}, yes, first), stored); diff != "" {
				t.Errorf("%s: what the cache has was changed:\n%s", tc.reason, diff)
			}
		})
	}
}
