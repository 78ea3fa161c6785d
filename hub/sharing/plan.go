// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

// cluster is the part of an accepted ManagedCluster that plans depend on.
type cluster struct {
	labels labels.Set
}

// namespace is the part of a namespace of the hub that plans depend on.
type namespace struct {
	uid         types.UID
	terminating bool
}

// hubState is what plans depend on, as the hub's API server has it.
type hubState struct {
	hubUID     string
	clusters   map[string]cluster
	namespaces map[string]namespace
	// definitions are nil before they were listed.
	definitions        map[string]definition
	definitionsRefused *wire.ShareProblem
}

// isKnown reports whether definitions were listed, or cannot be.
func (f *hubState) isKnown() bool { return f.definitions != nil || f.definitionsRefused != nil }

// findDefinition returns the definition of a SharedResource, and the version that is shared.
func (f *hubState) findDefinition(spec *v1alpha1.SharedResourceSpec) (definition, definitionVersion, *wire.ShareProblem) {
	if f.definitionsRefused != nil {
		return definition{}, definitionVersion{}, f.definitionsRefused
	}
	d := f.definitions[definitionName(spec)]
	v, problem := d.selectVersion(spec.Version)
	if problem == nil && spec.Definition == v1alpha1.DefinitionBrought && d.webhook {
		problem = wire.NewShareProblem(v1alpha1.ReasonDefinitionIncompatible,
			"the CustomResourceDefinition is converted by a webhook of the hub, and cannot be sent to clusters")
	}
	return d, v, problem
}

func definitionName(spec *v1alpha1.SharedResourceSpec) string {
	return spec.Resource + "." + spec.Group
}

// checkNamespace returns why nothing can be shared in a namespace of the hub.
func (f *hubState) checkNamespace(name string) *wire.ShareProblem {
	switch ns, ok := f.namespaces[name]; {
	case !ok:
		return wire.NewShareProblem(v1alpha1.ReasonNamespaceMissing, fmt.Sprintf("namespace %q does not exist", name))
	case ns.terminating:
		return namespaceTermination(name)
	}
	return nil
}

func namespaceTermination(name string) *wire.ShareProblem {
	return wire.NewShareProblem(v1alpha1.ReasonNamespaceTerminating, fmt.Sprintf("namespace %q is being deleted", name))
}

// place is where the objects of a share are on the hub. With another UID they are other
// objects. The zero value is nowhere.
type place struct {
	resource   schema.GroupVersionResource
	definition types.UID
	namespace  string
	uid        types.UID
}

// target is the planned share of a cluster.
type target struct {
	uid        types.UID
	generation int64
	// body has the problem of the plan, and no fence.
	body     wire.Share
	selector labels.Selector
	place    place
}

// resourcePlan is the plan of one generation of a SharedResource.
type resourcePlan struct {
	uid        types.UID
	generation int64
	// refused is why the spec is invalid, problem why no cluster can have the share.
	refused, problem *wire.ShareProblem
	// targets are the shares of the selected clusters.
	targets map[string]target
}

// planner plans all SharedResources together.
type planner struct {
	state *hubState
	// published are the clusters that have a share, by SharedResource.
	published map[string][]string
	// sentDefinitions are the definitions that are sent to clusters, by name.
	sentDefinitions map[string]sentDefinition
}

// plan plans by age: of two SharedResources that overlap the older one is served.
func (p *planner) plan(all []v1alpha1.SharedResource) map[string]resourcePlan {
	all = slices.DeleteFunc(slices.Clone(all), func(r v1alpha1.SharedResource) bool { return r.DeletionTimestamp != nil })
	slices.SortFunc(all, compareAge)
	out := make(map[string]resourcePlan, len(all))
	taken := map[claim]string{}
	for i := range all {
		r := &all[i]
		one := p.planOne(r)
		if one.refused == nil {
			one.refused = claimNamespaces(taken, r, one.targets)
		}
		out[r.Name] = one.applyRefusal()
	}
	return out
}

func compareAge(a, b v1alpha1.SharedResource) int {
	if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

// planOne plans one SharedResource as if there were no other.
func (p *planner) planOne(r *v1alpha1.SharedResource) resourcePlan {
	out := resourcePlan{uid: r.UID, generation: r.Generation, refused: validate(&r.Spec), targets: map[string]target{}}
	d, v, problem := p.state.findDefinition(&r.Spec)
	out.problem = problem
	base := target{uid: r.UID, generation: r.Generation, body: p.newShareBody(r, d, v), selector: labels.Nothing()}
	if out.refused == nil {
		base.selector, _ = objectSelector(&r.Spec) // which is valid
		base.body.Selector = base.selector.String()
	}
	for _, name := range p.selectClusters(r) {
		t := base
		t.body.HubNamespace, t.body.SpokeNamespace, problem = expandNamespaces(&r.Spec, name)
		if problem == nil {
			problem = out.problem
		}
		if problem == nil {
			problem = p.state.checkNamespace(t.body.HubNamespace)
		}
		t.body.Problem = problem
		if problem == nil {
			t.place = place{
				resource:   schema.GroupVersionResource{Group: r.Spec.Group, Version: v.name, Resource: r.Spec.Resource},
				definition: d.uid, namespace: t.body.HubNamespace, uid: p.state.namespaces[t.body.HubNamespace].uid,
			}
		}
		out.targets[name] = t
	}
	return out
}

// selectClusters returns the selected clusters. With an invalid selector these are the
// clusters that have the share, so that they stop and keep their records.
func (p *planner) selectClusters(r *v1alpha1.SharedResource) []string {
	selector, err := metav1.LabelSelectorAsSelector(&r.Spec.ClusterSelector)
	if err != nil {
		return slices.DeleteFunc(slices.Clone(p.published[r.Name]), func(name string) bool {
			_, ok := p.state.clusters[name]
			return !ok
		})
	}
	var out []string
	for name, c := range p.state.clusters {
		if selector.Matches(c.labels) {
			out = append(out, name)
		}
	}
	return out
}

// newShareBody returns the body that all clusters have in common.
func (p *planner) newShareBody(r *v1alpha1.SharedResource, d definition, v definitionVersion) wire.Share {
	direction := directionOf(&r.Spec)
	s := wire.Share{
		Group: r.Spec.Group, Version: v.name, Resource: r.Spec.Resource, Kind: d.kind, StatusSubresource: v.hasStatus,
		ToSpoke: direction != v1alpha1.DirectionToHub, ToHub: direction != v1alpha1.DirectionToCluster,
		Winner: wire.SharedHub, AdoptAny: r.Spec.Adopt == v1alpha1.AdoptAny, HubUID: p.state.hubUID, Confirmed: confirmedTokens(r),
		Quota: quotaOf(&r.Spec),
	}
	if r.Spec.Winner == v1alpha1.SideCluster {
		s.Winner = wire.SharedSpoke
	}
	if r.Spec.Definition == v1alpha1.DefinitionBrought {
		s.Definition = p.sentDefinitions[definitionName(&r.Spec)].raw
	}
	return s
}

// maxConfirmed bounds the tokens of one SharedResource.
const maxConfirmed = 1024

// confirmedTokens returns the tokens that the annotation names.
func confirmedTokens(r *v1alpha1.SharedResource) (out []string) {
	for token := range strings.SplitSeq(r.Annotations[v1alpha1.AnnotationConfirm], ",") {
		if token = strings.TrimSpace(token); token != "" && len(out) < maxConfirmed {
			out = append(out, token)
		}
	}
	return out
}

// applyRefusal stops all shares of a spec that is invalid.
func (p resourcePlan) applyRefusal() resourcePlan {
	if p.refused == nil {
		return p
	}
	for name, t := range p.targets {
		t.body.Problem, t.place = p.refused, place{}
		p.targets[name] = t
	}
	return p
}

// claim is a namespace of one side with the objects of a resource.
type claim struct {
	resource, cluster, namespace string
	side                         v1alpha1.Side
}

// claimNamespaces claims the namespaces of a SharedResource, or none if another one has
// claimed one of them.
func claimNamespaces(taken map[claim]string, r *v1alpha1.SharedResource, targets map[string]target) *wire.ShareProblem {
	var claims []claim
	for _, name := range slices.Sorted(maps.Keys(targets)) {
		t := targets[name]
		if t.body.HubNamespace == "" {
			continue // it has no namespaces
		}
		for _, c := range []claim{
			{resource: definitionName(&r.Spec), cluster: name, namespace: t.body.HubNamespace, side: v1alpha1.SideHub},
			{resource: definitionName(&r.Spec), cluster: name, namespace: t.body.SpokeNamespace, side: v1alpha1.SideCluster},
		} {
			if other, ok := taken[c]; ok {
				return wire.NewShareProblem(v1alpha1.ReasonOverlap,
					fmt.Sprintf("SharedResource %q shares the same objects with cluster %q, and is older", other, name))
			}
			claims = append(claims, c)
		}
	}
	for _, c := range claims {
		taken[c] = r.Name
	}
	return nil
}

// definitionsToSend returns the definitions that SharedResources send to clusters, by name.
func (f *hubState) definitionsToSend(all []v1alpha1.SharedResource) map[string]definition {
	out := map[string]definition{}
	for i := range all {
		spec := &all[i].Spec
		if spec.Definition != v1alpha1.DefinitionBrought || all[i].DeletionTimestamp != nil {
			continue
		}
		if d, _, problem := f.findDefinition(spec); problem == nil {
			out[definitionName(spec)] = d
		}
	}
	return out
}
