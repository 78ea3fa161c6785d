// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// BudgetConfiguration bounds what clusters may cost the hub, whatever their agents
// send. A cluster that meets a bound waits, or is refused; the others do not notice.
type BudgetConfiguration struct {
	// ClusterMemory is how many bytes the hub holds for one cluster at a time: what it
	// sends and answers, at its decoded size. Between 16Mi and Memory, default 32Mi.
	ClusterMemory resource.Quantity `json:"clusterMemory,omitempty"`
	// Memory is the same for all clusters together. Default 128Mi; the hub needs about
	// four times as much beside what it holds for clusters at rest.
	Memory resource.Quantity `json:"memory,omitempty"`
	// ClusterSharedMemory is how many bytes the hub keeps of the objects that one cluster
	// shares with it, of all SharedResources by which it may make some. Between 1Mi and
	// SharedMemory, default 64Mi.
	ClusterSharedMemory resource.Quantity `json:"clusterSharedMemory,omitempty"`
	// SharedMemory is the same for all clusters together. Default 128Mi.
	SharedMemory resource.Quantity `json:"sharedMemory,omitempty"`
	// ClusterWrites is how many bytes a second are written to the hub's store because
	// one cluster reports changes without end. Between 16Ki and Writes, default 256Ki.
	// Before that a cluster may write the amount of 256 seconds at once.
	ClusterWrites resource.Quantity `json:"clusterWrites,omitempty"`
	// Writes is the same for all clusters together, with the amount of 128 seconds at
	// once. Default 2Mi: an API server compacts etcd every five minutes, and what is
	// written in between counts against etcd's quota, which is 2Gi unless it is set.
	Writes resource.Quantity `json:"writes,omitempty"`
}

func (c *BudgetConfiguration) setDefaults() {
	for field, value := range map[*resource.Quantity]string{
		&c.ClusterMemory: "32Mi", &c.Memory: "128Mi", &c.ClusterSharedMemory: "64Mi", &c.SharedMemory: "128Mi",
		&c.ClusterWrites: "256Ki", &c.Writes: "2Mi",
	} {
		if field.IsZero() {
			*field = resource.MustParse(value)
		}
	}
}

func (c *BudgetConfiguration) validate() []error {
	return []error{
		checkQuantity("budget.clusterMemory", c.ClusterMemory, resource.MustParse("16Mi"), c.Memory),
		checkQuantity("budget.memory", c.Memory, resource.MustParse("16Mi"), resource.MustParse("64Gi")),
		checkQuantity("budget.clusterSharedMemory", c.ClusterSharedMemory, resource.MustParse("1Mi"), c.SharedMemory),
		checkQuantity("budget.sharedMemory", c.SharedMemory, resource.MustParse("1Mi"), resource.MustParse("64Gi")),
		checkQuantity("budget.clusterWrites", c.ClusterWrites, resource.MustParse("16Ki"), c.Writes),
		checkQuantity("budget.writes", c.Writes, resource.MustParse("16Ki"), resource.MustParse("1Gi")),
	}
}

func checkQuantity(field string, value, low, high resource.Quantity) error {
	if value.Cmp(low) < 0 || value.Cmp(high) > 0 {
		return fmt.Errorf("%s: %s is not between %s and %s", field, value.String(), low.String(), high.String())
	}
	return nil
}
