// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crds holds the CustomResourceDefinitions of worker bundles, generated from the
// types. The operator installs them at start, so that an upgrade of the program upgrades
// its definitions.
package crds

import (
	"embed"
	"fmt"
	"io/fs"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/api/crds"
)

//go:embed *.yaml
var files embed.FS

// Objects decodes the definitions, in the order of their files.
func Objects() ([]*unstructured.Unstructured, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list definitions: %w", err)
	}
	out := make([]*unstructured.Unstructured, 0, len(names))
	for _, name := range names {
		obj, err := crds.Decode(files, name)
		if err != nil {
			return nil, err
		}
		out = append(out, obj)
	}
	return out, nil
}
