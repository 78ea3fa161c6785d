// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifestconfig finds what a ManifestWork's manifestConfigs say about one of its
// resources.
//
// It is a pure function of the spec; the result shares the spec's slices and must
// not be changed.
package manifestconfig

import (
	"strings"

	workv1 "open-cluster-management.io/api/work/v1"
)

// Options are what applies to one resource.
type Options struct {
	FeedbackRules  []workv1.FeedbackRule
	ConditionRules []workv1.ConditionRule
	// UpdateStrategy is nil where none is set: Update.
	UpdateStrategy *workv1.UpdateStrategy
	// ScrapeType is empty where nothing matches: Poll.
	ScrapeType workv1.FeedbackScrapeType
}

// Match walks configs in order. Of feedback rules, condition rules and update
// strategy each is taken from the first option that matches and has it; the scrape
// type from the last one that matches, as in OCM, where the API server fills it in
// for every option.
func Match(configs []workv1.ManifestConfigOption, id workv1.ResourceIdentifier) Options {
	var o Options
	for i := range configs {
		c := &configs[i]
		if !matches(c.ResourceIdentifier, id) {
			continue
		}
		if len(o.FeedbackRules) == 0 {
			o.FeedbackRules = c.FeedbackRules
		}
		if len(o.ConditionRules) == 0 {
			o.ConditionRules = c.ConditionRules
		}
		if o.UpdateStrategy == nil {
			o.UpdateStrategy = c.UpdateStrategy
		}
		o.ScrapeType = c.FeedbackScrapeType
	}
	return o
}

// matches compares group and resource exactly, name and namespace as globs.
func matches(pattern, id workv1.ResourceIdentifier) bool {
	return pattern.Group == id.Group && pattern.Resource == id.Resource &&
		matchesGlob(pattern.Namespace, id.Namespace) && matchesGlob(pattern.Name, id.Name)
}

// matchesGlob tells whether text matches pattern, in which each * stands for any text,
// none included. The leftmost place for each literal part is always a right one,
// so it takes time linear in the product of both at worst, without backtracking.
func matchesGlob(pattern, text string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, first)
	if !ok {
		return false
	}
	for {
		part, next, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(text, rest)
		}
		_, text, ok = strings.Cut(text, part)
		if !ok {
			return false
		}
		rest = next
	}
}
