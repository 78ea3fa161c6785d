// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package values

import (
	"errors"
	"fmt"
	"strings"

	clusterv1 "open-cluster-management.io/api/cluster/v1"
)

var (
	// ErrNoValue: the cluster has no label or claim of that name.
	ErrNoValue = errors.New("the cluster has no such value")
	// ErrReference: a reference begins with "cluster." and has none of the three forms.
	ErrReference = errors.New("not one of $(cluster.name), $(cluster.labels.<key>) and $(cluster.claims.<name>)")
	// ErrPlace: a reference stands where the hub's policies look.
	ErrPlace = errors.New("must not depend on the cluster")
	// ErrTooLarge: the manifests are too large once their references are replaced.
	ErrTooLarge = errors.New("manifests are too large")
)

const (
	referenceName   = "cluster.name"
	referenceLabels = "cluster.labels."
	referenceClaims = "cluster.claims."
)

// Cluster is what manifests may refer to.
type Cluster struct {
	Name           string
	Labels, Claims map[string]string
}

// Value is that of a reference; the zero value is that of one without.
type Value struct {
	Text string
	Set  bool
}

// Used are the references of manifests, such as "cluster.labels.region", with the values
// that they had.
type Used map[string]Value

// Of returns what the record of a cluster says of it. The result shares memory with it.
func Of(record *clusterv1.ManagedCluster) Cluster {
	c := Cluster{Name: record.Name, Labels: record.Labels}
	if len(record.Status.ClusterClaims) > 0 {
		c.Claims = make(map[string]string, len(record.Status.ClusterClaims))
	}
	for _, claim := range record.Status.ClusterClaims {
		c.Claims[claim.Name] = claim.Value
	}
	return c
}

// Agrees tells whether all references that were used have the same values as before.
func (c Cluster) Agrees(used Used) bool {
	for reference, before := range used {
		if now, err := c.value(reference); err != nil || now != before {
			return false
		}
	}
	return true
}

// value returns that of a reference, or ErrReference.
func (c Cluster) value(reference string) (v Value, err error) {
	if reference == referenceName {
		return Value{Text: c.Name, Set: true}, nil
	}
	if key, ok := strings.CutPrefix(reference, referenceLabels); ok && key != "" {
		v.Text, v.Set = c.Labels[key]
		return v, nil
	}
	if name, ok := strings.CutPrefix(reference, referenceClaims); ok && name != "" {
		v.Text, v.Set = c.Claims[name]
		return v, nil
	}
	return Value{}, fmt.Errorf("%s: %w", quote(reference), ErrReference)
}

// maxQuoted is how much of a reference an error repeats, in bytes: more than the longest
// label key has.
const maxQuoted = 400

// quote shows a reference in an error. What is not printable is escaped.
func quote(reference string) string {
	if len(reference) > maxQuoted {
		reference = reference[:maxQuoted] + "..."
	}
	quoted := fmt.Sprintf("%q", reference)
	return "$(" + quoted[1:len(quoted)-1] + ")"
}
