// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package manifestconfig

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	workv1 "open-cluster-management.io/api/work/v1"
)

func id(namespace, name string) workv1.ResourceIdentifier {
	return workv1.ResourceIdentifier{Group: "apps", Resource: "deployments", Namespace: namespace, Name: name}
}

func TestMatch(t *testing.T) {
	rules := func(name string) []workv1.FeedbackRule {
		return []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{{Name: name}}}}
	}
	conditions := []workv1.ConditionRule{{Condition: "Complete"}}
	readOnly := &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly}
	createOnly := &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeCreateOnly}
	cases := map[string]struct {
		reason  string
		configs []workv1.ManifestConfigOption
		want    Options
	}{
		"nothing matches": {
			reason: "group and resource are exact",
			configs: []workv1.ManifestConfigOption{
				{ResourceIdentifier: workv1.ResourceIdentifier{Group: "*", Resource: "deployments", Namespace: "ns", Name: "web"}, FeedbackRules: rules("a")},
				{ResourceIdentifier: workv1.ResourceIdentifier{Group: "apps", Resource: "*", Namespace: "ns", Name: "web"}, FeedbackRules: rules("a")},
				{ResourceIdentifier: id("ns", "other"), FeedbackRules: rules("a")},
				{ResourceIdentifier: id("", "web"), FeedbackRules: rules("a")},
			},
		},
		"the first that has a field wins, each field on its own": {
			reason: "OCM's rule",
			configs: []workv1.ManifestConfigOption{
				{ResourceIdentifier: id("*", "*"), FeedbackRules: []workv1.FeedbackRule{}, UpdateStrategy: readOnly},
				{ResourceIdentifier: id("ns", "w*"), FeedbackRules: rules("a"), UpdateStrategy: createOnly},
				{ResourceIdentifier: id("ns", "web"), FeedbackRules: rules("b"), ConditionRules: conditions},
			},
			want: Options{FeedbackRules: rules("a"), ConditionRules: conditions, UpdateStrategy: readOnly},
		},
		"the last match sets the scrape type": {
			reason: "a default that the API server filled in resets an earlier Watch",
			configs: []workv1.ManifestConfigOption{
				{ResourceIdentifier: id("ns", "web"), FeedbackRules: rules("a"), FeedbackScrapeType: workv1.FeedbackWatchType},
				{ResourceIdentifier: id("ns", "*"), FeedbackScrapeType: workv1.FeedbackPollType},
				{ResourceIdentifier: id("other", "*"), FeedbackScrapeType: workv1.FeedbackWatchType},
			},
			want: Options{FeedbackRules: rules("a"), ScrapeType: workv1.FeedbackPollType},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Match(tc.configs, id("ns", "web"))); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestGlob(t *testing.T) {
	cases := map[string]struct {
		reason, pattern, text string
		want                  bool
	}{
		"a literal":                       {"is exact", "web", "web", true},
		"another literal":                 {"is exact", "web", "web2", false},
		"a star":                          {"is any text", "*", "web", true},
		"a star and nothing":              {"is any text, none included", "*", "", true},
		"a prefix":                        {"ends anywhere", "web-*", "web-1", true},
		"a suffix":                        {"begins anywhere", "*-1", "web-1", true},
		"a middle":                        {"may be empty", "w*b", "wb", true},
		"parts that would overlap":        {"each letter counts once", "a*a", "a", false},
		"parts in order":                  {"leftmost first", "*a*b*", "xaxbx", true},
		"parts out of order":              {"order counts", "*a*b*", "xbxax", false},
		"a last part that comes twice":    {"the suffix is anchored", "*ab", "abab", true},
		"what is special elsewhere":       {"is literal", "w.b?[a]", "w.b?[a]", true},
		"what is special elsewhere again": {"is literal", "w.b", "wxb", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := matchesGlob(tc.pattern, tc.text); got != tc.want {
				t.Errorf("glob(%q, %q) = %v: %s", tc.pattern, tc.text, got, tc.reason)
			}
		})
	}
}

func FuzzGlob(f *testing.F) {
	f.Add("a*b*c", "aXbYc")
	f.Add("*", "")
	f.Add("a**a", "aa")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		quoted := strings.ReplaceAll(regexp.QuoteMeta(strings.ToValidUTF8(pattern, "?")), `\*`, `(?s:.*)`)
		want := regexp.MustCompile(`\A` + quoted + `\z`).MatchString(strings.ToValidUTF8(text, "?"))
		if got := matchesGlob(strings.ToValidUTF8(pattern, "?"), strings.ToValidUTF8(text, "?")); got != want {
			t.Errorf("glob(%q, %q) = %v", pattern, text, got)
		}
	})
}
