// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

// maxSelector bounds the selector of objects as text, in bytes.
const maxSelector = 16 << 10

// These name what to use in place of sharing.
const (
	insteadOfBuiltIn = "built-in resources are not shared: a ManifestWork brings objects to clusters, and a view shows what they have"
	insteadOfOurs    = "it is what clusters are managed by: create its objects in the namespace of a cluster on the hub"
	insteadOfPolicy  = "it decides what clusters admit: a ManifestWork brings its objects to clusters"
)

// unshareableGroup is a group whose resources are not shared.
type unshareableGroup struct {
	name string
	// subdomains: groups below it are not shared, either.
	subdomains bool
	instead    string
}

func (d unshareableGroup) matches(group string) bool {
	return group == d.name || d.subdomains && strings.HasSuffix(group, "."+d.name)
}

// unshareableGroups returns the groups that are not shared. Reports of policy engines have
// groups of their own, which are.
func unshareableGroups() []unshareableGroup {
	return []unshareableGroup{
		{name: "k8s.io", subdomains: true, instead: insteadOfBuiltIn},
		{name: "kubernetes.io", subdomains: true, instead: insteadOfBuiltIn},
		{name: "spokelet.io", subdomains: true, instead: insteadOfOurs},
		{name: "policy.open-cluster-management.io", subdomains: true, instead: insteadOfPolicy},
		{name: "open-cluster-management.io", subdomains: true, instead: insteadOfOurs},
		{name: "multicluster.x-k8s.io", instead: insteadOfOurs},
		{name: "mcm.ibm.com", instead: insteadOfOurs},
		{name: "kyverno.io", instead: insteadOfPolicy},
		{name: "policies.kyverno.io", instead: insteadOfPolicy},
		{name: "gatekeeper.sh", subdomains: true, instead: insteadOfPolicy},
		{name: "kubewarden.io", instead: insteadOfPolicy},
		{name: "policies.kubewarden.io", instead: insteadOfPolicy},
	}
}

// validate returns why a spec is invalid; nil if it is not.
func validate(spec *v1alpha1.SharedResourceSpec) *wire.ShareProblem {
	if problem := validateGroup(spec.Group, spec.Resource); problem != nil {
		return problem
	}
	if spec.Version != "" && len(validation.IsDNS1035Label(spec.Version)) > 0 {
		return invalidProblem("version %q is none of a resource", spec.Version)
	}
	if directionOf(spec) != v1alpha1.DirectionToCluster && !strings.Contains(hubTemplate(spec), v1alpha1.ClusterVariable) {
		return invalidProblem("hubNamespace %q: without %s all clusters share one namespace of the hub, which needs direction %s",
			spec.HubNamespace, v1alpha1.ClusterVariable, v1alpha1.DirectionToCluster)
	}
	if q := spec.Quota; q != nil && (q.Objects < 0 || q.Bytes != nil && q.Bytes.Sign() <= 0) {
		return invalidProblem("quota: objects and bytes must be more than 0")
	}
	if _, err := metav1.LabelSelectorAsSelector(&spec.ClusterSelector); err != nil {
		return invalidProblem("clusterSelector: %v", err)
	}
	selector, err := objectSelector(spec)
	if err != nil {
		return invalidProblem("selector: %v", err)
	}
	if n := len(selector.String()); n > maxSelector {
		return invalidProblem("selector: it has %d bytes, limit is %d", n, maxSelector)
	}
	return nil
}

func validateGroup(group, resource string) *wire.ShareProblem {
	if !strings.Contains(group, ".") {
		return notShareableProblem(group, resource, insteadOfBuiltIn)
	}
	for _, d := range unshareableGroups() {
		if d.matches(group) {
			return notShareableProblem(group, resource, d.instead)
		}
	}
	if len(validation.IsDNS1123Subdomain(group)) > 0 || len(validation.IsDNS1035Label(resource)) > 0 {
		return invalidProblem("%q is no name of a custom resource", resource+"."+group)
	}
	return nil
}

func notShareableProblem(group, resource, instead string) *wire.ShareProblem {
	return wire.NewShareProblem(v1alpha1.ReasonNotShareable, fmt.Sprintf("%s of group %q: %s", resource, group, instead))
}

func invalidProblem(format string, args ...any) *wire.ShareProblem {
	return wire.NewShareProblem(v1alpha1.ReasonInvalid, fmt.Sprintf(format, args...))
}

func directionOf(spec *v1alpha1.SharedResourceSpec) v1alpha1.Direction {
	if spec.Direction == "" {
		return v1alpha1.DirectionBoth
	}
	return spec.Direction
}

func hubTemplate(spec *v1alpha1.SharedResourceSpec) string {
	if spec.HubNamespace == "" {
		return v1alpha1.ClusterVariable
	}
	return spec.HubNamespace
}

// objectSelector returns the selector of objects; without one it selects all.
func objectSelector(spec *v1alpha1.SharedResourceSpec) (labels.Selector, error) {
	if spec.Selector == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(spec.Selector)
}

// expandNamespaces returns the namespaces of a cluster's objects on the hub and in the
// cluster.
func expandNamespaces(spec *v1alpha1.SharedResourceSpec, cluster string) (hub, spoke string, problem *wire.ShareProblem) {
	hub = strings.ReplaceAll(hubTemplate(spec), v1alpha1.ClusterVariable, cluster)
	spoke = hub
	if spec.SpokeNamespace != "" {
		spoke = strings.ReplaceAll(spec.SpokeNamespace, v1alpha1.ClusterVariable, cluster)
	}
	if len(validation.IsDNS1123Label(hub)) > 0 {
		return "", "", invalidProblem("hubNamespace %.128q is no name of a namespace", hub)
	}
	if len(validation.IsDNS1123Label(spoke)) > 0 {
		return "", "", invalidProblem("spokeNamespace %.128q is no name of a namespace", spoke)
	}
	return hub, spoke, nil
}
