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
	// ErrInvalidReference: a reference begins with "cluster." and has none of the three forms.
	ErrInvalidReference = errors.New("not one of $(cluster.name), $(cluster.labels.<key>) and $(cluster.claims.<name>)")
	// ErrForbiddenField: a reference stands where the hub's policies look.
	ErrForbiddenField = errors.New("must not depend on the cluster")
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

// References are the references of manifests, such as "cluster.labels.region", with the values
// that they had.
type References map[string]Value

// FromManagedCluster returns what the record of a cluster says of it. The result shares memory with it.
func FromManagedCluster(record *clusterv1.ManagedCluster) Cluster {
	c := Cluster{Name: record.Name, Labels: record.Labels}
	if len(record.Status.ClusterClaims) > 0 {
		c.Claims = make(map[string]string, len(record.Status.ClusterClaims))
	}
	for _, claim := range record.Status.ClusterClaims {
		c.Claims[claim.Name] = claim.Value
	}
	return c
}

// Matches tells whether all references that were used have the same values as before.
func (c Cluster) Matches(used References) bool {
	for reference, before := range used {
		if now, err := c.resolve(reference); err != nil || now != before {
			return false
		}
	}
	return true
}

// resolve returns that of a reference, or ErrInvalidReference.
func (c Cluster) resolve(reference string) (v Value, err error) {
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
	return Value{}, fmt.Errorf("%s: %w", quoteReference(reference), ErrInvalidReference)
}

// maxQuoted is how much of a reference an error repeats, in bytes: more than the longest
// label key has.
const maxQuoted = 400

// quoteReference shows a reference in an error. What is not printable is escaped.
func quoteReference(reference string) string {
	if len(reference) > maxQuoted {
		reference = reference[:maxQuoted] + "..."
	}
	quoted := fmt.Sprintf("%q", reference)
	return "$(" + quoted[1:len(quoted)-1] + ")"
}
