// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crds holds the CustomResourceDefinitions that Spokelet needs: its own,
// generated into multicluster/, mcm/, view/, action/ and sync/, and OCM's: ManagedCluster in cluster/,
// ManifestWork and AppliedManifestWork in work/, copies of the files in the
// open-cluster-management.io/api module that go.mod names (a test keeps them
// that). Hub and agent install their set at start, so that an upgrade of the
// program upgrades its definitions.
package crds

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

//go:embed multicluster/*.yaml cluster/*.yaml work/*.yaml mcm/*.yaml view/*.yaml action/*.yaml sync/*.yaml
var files embed.FS

// Set is a list of files of this package.
type Set []string

// manifestWorks is the file that Objects adds columns to.
const manifestWorks = "work/0000_00_work.open-cluster-management.io_manifestworks.crd.yaml"

// mcmFolder has the definitions that are served in two versions.
const mcmFolder = "mcm/"

// Hub is what the hub serves: ManagedCluster, the works, what looks and acts in clusters,
// and what shares objects with them.
func Hub() Set {
	return Set{
		"cluster/0000_00_clusters.open-cluster-management.io_managedclusters.crd.yaml",
		manifestWorks,
		"multicluster/multicluster.x-k8s.io_works.yaml",
		"mcm/mcm.ibm.com_works.yaml",
		"mcm/mcm.ibm.com_worksets.yaml",
		"mcm/mcm.ibm.com_resourceviews.yaml",
		"view/view.open-cluster-management.io_managedclusterviews.yaml",
		"action/action.open-cluster-management.io_managedclusteractions.yaml",
		"sync/sync.spokelet.io_sharedresources.yaml",
	}
}

// Agent is what the spoke serves: AppliedManifestWork and AppliedWork.
func Agent() Set {
	return Set{
		"work/0000_01_work.open-cluster-management.io_appliedmanifestworks.crd.yaml",
		"multicluster/multicluster.x-k8s.io_appliedworks.yaml",
	}
}

// Decode reads a definition from a file.
func Decode(from fs.FS, name string) (*unstructured.Unstructured, error) {
	raw, err := fs.ReadFile(from, name)
	if err != nil {
		return nil, fmt.Errorf("read definition: %w", err)
	}
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(raw, &obj.Object); err != nil {
		return nil, fmt.Errorf("decode definition %s: %w", name, err)
	}
	return obj, nil
}

// Objects decodes the definitions of the set, in order.
func (s Set) Objects() ([]*unstructured.Unstructured, error) {
	out := make([]*unstructured.Unstructured, 0, len(s))
	for _, name := range s {
		obj, err := Decode(files, name)
		if err != nil {
			return nil, err
		}
		if name == manifestWorks {
			if err := addColumns(obj); err != nil {
				return nil, fmt.Errorf("columns of definition %s: %w", name, err)
			}
		}
		if strings.HasPrefix(name, mcmFolder) {
			if err := addBeta(obj); err != nil {
				return nil, fmt.Errorf("versions of definition %s: %w", name, err)
			}
		}
		out = append(out, obj)
	}
	return out, nil
}
