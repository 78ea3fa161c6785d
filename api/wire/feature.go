// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"regexp"
)

const (
	// NodeSummaryMaxFeatures bounds the features that nodes declare.
	NodeSummaryMaxFeatures = 64

	maxFeature = 128
)

// feature is what the API server takes as one.
var feature = regexp.MustCompile(`^[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*$`)

// IsNodeFeature reports whether name can be one of the DeclaredFeatures.
func IsNodeFeature(name string) bool { return len(name) <= maxFeature && feature.MatchString(name) }

func validFeatures(names []string) error {
	if len(names) > NodeSummaryMaxFeatures {
		return fmt.Errorf("%d features are more than %d", len(names), NodeSummaryMaxFeatures)
	}
	last := ""
	for _, name := range names {
		if !IsNodeFeature(name) || name <= last {
			return fmt.Errorf("feature %q is not the next feature", clip(name))
		}
		last = name
	}
	return nil
}
