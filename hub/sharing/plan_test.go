// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

func TestValidateSpec(t *testing.T) {
	tests := map[string]struct {
		reason string
		change func(*v1alpha1.SharedResourceSpec)
		want   string
	}{
		"a custom resource":      {reason: "that is what is shared"},
		"a core resource":        {reason: "works bring them", want: v1alpha1.ReasonNotShareable, change: func(s *v1alpha1.SharedResourceSpec) { s.Group = "" }},
		"apps":                   {reason: "it has no dot", want: v1alpha1.ReasonNotShareable, change: func(s *v1alpha1.SharedResourceSpec) { s.Group = "apps" }},
		"rights":                 {reason: "built in", want: v1alpha1.ReasonNotShareable, change: func(s *v1alpha1.SharedResourceSpec) { s.Group = "rbac.authorization.k8s.io" }},
		"ours":                   {reason: "clusters are managed by it", want: v1alpha1.ReasonNotShareable, change: func(s *v1alpha1.SharedResourceSpec) { s.Group = "sync.spokelet.io" }},
		"Open Cluster Manager's": {reason: "clusters are managed by it", want: v1alpha1.ReasonNotShareable, change: func(s *v1alpha1.SharedResourceSpec) { s.Group = "work.open-cluster-management.io" }},
		"works":                  {reason: "clusters are managed by it", want: v1alpha1.ReasonNotShareable, change: func(s *v1alpha1.SharedResourceSpec) { s.Group = "multicluster.x-k8s.io" }},
		"policies":               {reason: "they decide what is admitted", want: v1alpha1.ReasonNotShareable, change: func(s *v1alpha1.SharedResourceSpec) { s.Group = "constraints.gatekeeper.sh" }},
		"reports of policies":    {reason: "they decide nothing", change: func(s *v1alpha1.SharedResourceSpec) { s.Group = "reports.kyverno.io" }},
		"other projects":         {reason: "their resources are custom", change: func(s *v1alpha1.SharedResourceSpec) { s.Group = "cluster.x-k8s.io" }},
		"a path":                 {reason: "it is no name", want: v1alpha1.ReasonInvalid, change: func(s *v1alpha1.SharedResourceSpec) { s.Resource = "widgets/status" }},
		"every resource":         {reason: "it is no name", want: v1alpha1.ReasonInvalid, change: func(s *v1alpha1.SharedResourceSpec) { s.Resource = "*" }},
		"a bad version":          {reason: "it is no name", want: v1alpha1.ReasonInvalid, change: func(s *v1alpha1.SharedResourceSpec) { s.Version = "1/2" }},
		"one namespace for all": {
			reason: "clusters would write into each other's objects", want: v1alpha1.ReasonInvalid,
			change: func(s *v1alpha1.SharedResourceSpec) { s.HubNamespace = "all" },
		},
		"one namespace for all, to clusters": {
			reason: "they only read it",
			change: func(s *v1alpha1.SharedResourceSpec) { s.HubNamespace, s.Direction = "all", v1alpha1.DirectionToCluster },
		},
		"a bad selector of clusters": {
			reason: "it selects nothing", want: v1alpha1.ReasonInvalid,
			change: func(s *v1alpha1.SharedResourceSpec) { s.ClusterSelector = badSelector() },
		},
		"a bad selector of objects": {
			reason: "it selects nothing", want: v1alpha1.ReasonInvalid,
			change: func(s *v1alpha1.SharedResourceSpec) { s.Selector = new(badSelector()) },
		},
		"a long selector": {
			reason: "it travels", want: v1alpha1.ReasonInvalid,
			change: func(s *v1alpha1.SharedResourceSpec) {
				many := make([]string, 400)
				for i := range many {
					many[i] = strings.Repeat("v", 60)
				}
				s.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: metav1.LabelSelectorOpIn, Values: many}}}
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			spec := sharedResource("s").Spec
			if tc.change != nil {
				tc.change(&spec)
			}
			got := ""
			if problem := validate(&spec); problem != nil {
				got = problem.Reason
			}
			if got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func badSelector() metav1.LabelSelector {
	return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: "Near"}}}
}

// known is a planner that knows two clusters and their namespaces.
func known(change ...func(*planner)) *planner {
	p := &planner{state: &hubState{
		hubUID:      hubUID,
		clusters:    map[string]cluster{"c1": {labels: map[string]string{"name": "c1"}}, "c2": {labels: map[string]string{"name": "c2"}}},
		namespaces:  map[string]namespace{"c1": {uid: "1"}, "c2": {uid: "2"}, "all": {uid: "3"}, "going": {uid: "4", terminating: true}},
		definitions: map[string]definition{widgets: parseDefinition(definitionOf(true))},
	}}
	for _, f := range change {
		f(p)
	}
	return p
}

func TestPlanProblems(t *testing.T) {
	define := func(change func(map[string]any)) func(*planner) {
		return func(p *planner) { p.state.definitions[widgets] = parseDefinition(definitionOf(true, change)) }
	}
	tests := map[string]struct {
		reason string
		facts  func(*planner)
		spec   func(*v1alpha1.SharedResourceSpec)
		want   string
	}{
		"nothing":       {reason: "all is there"},
		"no definition": {reason: "there is nothing to share", want: v1alpha1.ReasonDefinitionMissing, facts: func(p *planner) { clear(p.state.definitions) }},
		"no right to see definitions": {
			reason: "nobody knows what there is", want: v1alpha1.ReasonRightsMissing,
			facts: func(p *planner) {
				p.state.definitionsRefused = wire.NewShareProblem(v1alpha1.ReasonRightsMissing, "no")
			},
		},
		"of the cluster": {reason: "it has no namespace", want: v1alpha1.ReasonDefinitionIncompatible, facts: define(func(s map[string]any) { s["scope"] = "Cluster" })},
		"another version": {
			reason: "it is not served", want: v1alpha1.ReasonDefinitionIncompatible, spec: func(s *v1alpha1.SharedResourceSpec) { s.Version = "v2" },
		},
		"a version that is not served": {
			reason: "it is not served", want: v1alpha1.ReasonDefinitionIncompatible,
			facts: define(func(s map[string]any) { s["versions"].([]any)[0].(map[string]any)["served"] = false }),
		},
		"being deleted": {
			reason: "so are its objects", want: v1alpha1.ReasonDefinitionNotReady,
			facts: func(p *planner) {
				d := definitionOf(true)
				deleting(d)
				p.state.definitions[widgets] = parseDefinition(d)
			},
		},
		"not established": {
			reason: "it is not served yet", want: v1alpha1.ReasonDefinitionNotReady,
			facts: func(p *planner) {
				d := definitionOf(true)
				delete(d.Object, "status")
				p.state.definitions[widgets] = parseDefinition(d)
			},
		},
		"a webhook": {reason: "the hub converts", facts: define(webhook)},
		"a webhook that is brought": {
			reason: "it is not there", want: v1alpha1.ReasonDefinitionIncompatible, facts: define(webhook),
			spec: func(s *v1alpha1.SharedResourceSpec) { s.Definition = v1alpha1.DefinitionBrought },
		},
		"no namespace": {reason: "it is not made", want: v1alpha1.ReasonNamespaceMissing, spec: func(s *v1alpha1.SharedResourceSpec) { s.HubNamespace = "x-$(cluster)" }},
		"a namespace that goes": {
			reason: "so do its objects", want: v1alpha1.ReasonNamespaceTerminating,
			spec: func(s *v1alpha1.SharedResourceSpec) {
				s.HubNamespace, s.Direction = "going", v1alpha1.DirectionToCluster
			},
		},
		"no name of a namespace": {
			reason: "the template does not fit the cluster", want: v1alpha1.ReasonInvalid,
			spec: func(s *v1alpha1.SharedResourceSpec) { s.HubNamespace = strings.Repeat("x", 62) + "$(cluster)" },
		},
		"no name of a namespace in the cluster": {
			reason: "the template does not fit the cluster", want: v1alpha1.ReasonInvalid,
			spec: func(s *v1alpha1.SharedResourceSpec) { s.SpokeNamespace = "-$(cluster)" },
		},
		"not accepted": {reason: "the spec contradicts itself", want: v1alpha1.ReasonInvalid, spec: func(s *v1alpha1.SharedResourceSpec) { s.HubNamespace = "all" }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := sharedResource("s")
			if tc.spec != nil {
				tc.spec(&r.Spec)
			}
			p := known()
			if tc.facts != nil {
				tc.facts(p)
			}
			plan := p.plan([]v1alpha1.SharedResource{*r})["s"]
			target, ok := plan.targets["c1"]
			got := ""
			if target.body.Problem != nil {
				got = target.body.Problem.Reason
			}
			if got != tc.want || !ok || len(plan.targets) != 1 {
				t.Errorf("%s: got %q, want %q, of %d clusters", tc.reason, got, tc.want, len(plan.targets))
			}
			if (target.place == place{}) != (tc.want != "") {
				t.Errorf("%s: place %+v", tc.reason, target.place)
			}
			raw, err := json.Marshal(target.body)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := wire.DecodeShare(raw); err != nil {
				t.Errorf("%s: an agent reads %v", tc.reason, err)
			}
		})
	}
}

func webhook(s map[string]any) { s["conversion"] = map[string]any{"strategy": "Webhook"} }

func TestPlanServesOlderOfOverlapping(t *testing.T) {
	at := func(name string, age int, change ...func(*v1alpha1.SharedResourceSpec)) v1alpha1.SharedResource {
		r := sharedResource(name)
		r.CreationTimestamp = metav1.NewTime(time.Unix(int64(1000-age), 0))
		for _, f := range change {
			f(&r.Spec)
		}
		return *r
	}
	namespaces := func(hub, spoke string) func(*v1alpha1.SharedResourceSpec) {
		return func(s *v1alpha1.SharedResourceSpec) {
			s.HubNamespace, s.SpokeNamespace, s.Direction = hub, spoke, v1alpha1.DirectionToCluster
		}
	}
	cluster := func(name string) func(*v1alpha1.SharedResourceSpec) {
		return func(s *v1alpha1.SharedResourceSpec) { s.ClusterSelector.MatchLabels = map[string]string{"name": name} }
	}
	tests := map[string]struct {
		reason string
		all    []v1alpha1.SharedResource
		want   map[string]string
	}{
		"the same":               {reason: "the older is served", all: []v1alpha1.SharedResource{at("a", 1), at("b", 2)}, want: map[string]string{"a": "b"}},
		"the same, of one age":   {reason: "the first by name is served", all: []v1alpha1.SharedResource{at("b", 1), at("a", 1)}, want: map[string]string{"b": "a"}},
		"other clusters":         {reason: "they share no objects", all: []v1alpha1.SharedResource{at("a", 1), at("b", 2, cluster("c2"))}},
		"the hub's namespace":    {reason: "the objects are the same on the hub", all: []v1alpha1.SharedResource{at("a", 1, namespaces("all", "x")), at("b", 2, namespaces("all", "y"))}, want: map[string]string{"a": "b"}},
		"the spoke's namespace":  {reason: "the objects are the same in the cluster", all: []v1alpha1.SharedResource{at("a", 1, namespaces("all", "x")), at("b", 2, namespaces("c1", "x"))}, want: map[string]string{"a": "b"}},
		"other namespaces":       {reason: "they share no objects", all: []v1alpha1.SharedResource{at("a", 1, namespaces("all", "x")), at("b", 2, namespaces("c1", "y"))}},
		"one that is not served": {reason: "it shares nothing", all: []v1alpha1.SharedResource{at("a", 1), at("b", 3), at("c", 2)}, want: map[string]string{"a": "b", "c": "b"}},
		"one that is invalid": {
			reason: "it shares nothing",
			all:    []v1alpha1.SharedResource{at("a", 1), at("b", 2, func(s *v1alpha1.SharedResourceSpec) { s.Selector = new(badSelector()) })},
			want:   map[string]string{"b": ""},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for name, plan := range known().plan(tc.all) {
				if plan.refused == nil {
					continue
				}
				got[name] = ""
				if plan.refused.Reason == v1alpha1.ReasonOverlap {
					got[name] = strings.Split(plan.refused.Message, `"`)[1]
				}
			}
			want := tc.want
			if want == nil {
				want = map[string]string{}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// A mistake in a selector is not to have clusters forget what they share.
func TestInvalidClusterSelectorStopsPublishedShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := sharing(t)
		edit(t, r, sharedResource("s"), func(s *v1alpha1.SharedResource) { s.Spec.ClusterSelector = badSelector() })
		if s, ok := a.getShare("s"); !ok || s.Problem == nil || s.Problem.Reason != v1alpha1.ReasonInvalid {
			t.Errorf("share %+v, told %t", s, ok)
		}
		s := stored(t, r, sharedResource("s"))
		got := short(s.Status.Conditions, v1alpha1.ConditionAccepted)
		if !strings.HasPrefix(got, "False Invalid hub: clusterSelector: ") {
			t.Errorf("accepted %q", got)
		}
		if _, ok := a.getObject("s/a"); !ok {
			t.Error("the objects were withdrawn")
		}
	})
}

func TestSentDefinitionHasNoConversion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, sharedResource("s", func(s *v1alpha1.SharedResource) { s.Spec.Definition = v1alpha1.DefinitionBrought }))
		r.api.set(definitionResource, definitionOf(true, func(s map[string]any) { s["conversion"] = map[string]any{"strategy": "None"} }))
		r.start(t)
		a := r.connect(t, "c1")
		s, _ := a.getShare("s")
		var got map[string]any
		if err := json.Unmarshal(s.Definition, &got); err != nil {
			t.Fatal(err)
		}
		want := map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": widgets},
			"spec": definitionOf(true).Object["spec"],
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("definition (-want +got):\n%s", diff)
		}
	})
}

// A controller that was not told everything tells nobody that something is absent.
func TestSourceIsCompleteOnlyAfterAllIsListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, sharedResource("s"))
		r.api.set(widgets, widget("c1", "a", 1))
		r.api.refuse = func(request string) error {
			if strings.Contains(request, widgets+" ") && !strings.Contains(request, definitionResource) {
				return errOutage
			}
			return nil
		}
		r.start(t)
		a := r.connect(t, "c1")
		a.requestWrite("s/b", wire.PartObject, `{"spec":{"size":2}}`)
		r.settle()
		if _, ok := a.getShare("s"); ok || len(r.api.writes()) > 0 || r.isComplete {
			t.Error("it is told, or executed")
		}
		r.api.mu.Lock()
		r.api.refuse = nil
		r.api.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, ok := a.getShare("s"); !ok || !a.hasFence("s") || r.sizeOf("c1", "b") != 2 {
			t.Errorf("shares %v, b has size %d", a.shares, r.sizeOf("c1", "b"))
		}
	})
}
