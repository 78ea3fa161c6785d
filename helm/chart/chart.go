// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/Masterminds/semver/v3"
	"helm.sh/helm/v4/pkg/action"
	basechart "helm.sh/helm/v4/pkg/chart"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	v2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"sigs.k8s.io/yaml"
)

// maxUnpacked bounds the files of a chart together.
const maxUnpacked = 32 << 20

var (
	// ErrChart is returned for a chart that is invalid or cannot be installed.
	ErrChart = errors.New("no chart that can be installed")
	// ErrValues is returned for invalid values. It does not quote them.
	ErrValues = errors.New("values cannot be used")
)

// Chart is a chart that can be installed.
type Chart = v2.Chart

// loadArchive reads an archive.
func loadArchive(raw []byte) (*Chart, error) {
	archive.MaxDecompressedChartSize = maxUnpacked
	loaded, err := loader.LoadArchive(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrChart, err)
	}
	if err := loaded.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrChart, err)
	}
	if kind := loaded.Metadata.Type; kind != "" && kind != "application" {
		return nil, fmt.Errorf("%w: it is of type %.32q", ErrChart, kind)
	}
	var needed []basechart.Dependency
	for _, d := range loaded.Metadata.Dependencies {
		needed = append(needed, d)
	}
	if err := action.CheckDependencies(loaded, needed); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrChart, err)
	}
	return loaded, nil
}

// checkVersion compares the version of a chart with what was asked for: a version, a range
// or nothing.
func checkVersion(c *Chart, want string) error {
	if want == "" || want == c.Metadata.Version {
		return nil
	}
	wanted, err := semver.NewConstraint(want)
	if err != nil {
		return fmt.Errorf("%w: version %.64q is none", ErrChart, want)
	}
	version, err := semver.NewVersion(c.Metadata.Version)
	if err != nil || !wanted.Check(version) {
		return fmt.Errorf("%w: it has version %.64s, not %.64s", ErrChart, c.Metadata.Version, want)
	}
	return nil
}

// ParseValues parses YAML of a map. Empty input is an empty map.
func ParseValues(raw []byte) (map[string]any, error) {
	var values any
	if err := yaml.Unmarshal(raw, &values); err != nil {
		return nil, fmt.Errorf("%w: they are no YAML", ErrValues)
	}
	switch values := values.(type) {
	case nil:
		return map[string]any{}, nil
	case map[string]any:
		return values, nil
	default:
		return nil, fmt.Errorf("%w: they are YAML, but no map", ErrValues)
	}
}
