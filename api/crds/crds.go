// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crds holds the CustomResourceDefinitions that Spokelet needs: its own,
// generated into multicluster/, and OCM's ManagedCluster, in cluster/, a copy of
// the file in the open-cluster-management.io/api module that go.mod names (a test
// keeps it one). Hub and agent install their set at start, so that an upgrade of
// the program upgrades its definitions.
package crds

import (
	"embed"
	"fmt"
	"io/fs"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

//go:embed multicluster/*.yaml cluster/*.yaml
var files embed.FS

// Set is a list of files of this package.
type Set []string

// Hub is what the hub serves: Work and ManagedCluster.
func Hub() Set {
	return Set{
		"cluster/0000_00_clusters.open-cluster-management.io_managedclusters.crd.yaml",
		"multicluster/multicluster.x-k8s.io_works.yaml",
	}
}

// Agent is what the spoke serves: AppliedWork.
func Agent() Set {
	return Set{"multicluster/multicluster.x-k8s.io_appliedworks.yaml"}
}

// Objects decodes the definitions of the set, in order.
func (s Set) Objects() ([]*unstructured.Unstructured, error) {
	out := make([]*unstructured.Unstructured, 0, len(s))
	for _, name := range s {
		raw, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("read definition: %w", err)
		}
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(raw, &obj.Object); err != nil {
			return nil, fmt.Errorf("decode definition %s: %w", name, err)
		}
		out = append(out, obj)
	}
	return out, nil
}
