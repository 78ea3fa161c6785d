// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package values

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// roomy is a limit that nothing here meets.
const roomy = 1 << 20

var store1 = Cluster{
	Name: "store-1",
	Labels: map[string]string{
		"region": "eu", "empty": "", "topology.kubernetes.io/region": "eu-west-1",
		"reference": "$(cluster.name)", "quotes": `"},"x":{"`,
	},
	Claims: map[string]string{"version": "v1.36.0", "kubeversion.open-cluster-management.io": "v1.36.1"},
}

func TestExpandReplacesReferences(t *testing.T) {
	tests := map[string]struct {
		reason, text, want string
		err                error
		message            string
	}{
		"no reference":      {reason: "nothing to do", text: "a $ b", want: "a $ b"},
		"the name":          {reason: "first form", text: "x-$(cluster.name)-y", want: "x-store-1-y"},
		"a label":           {reason: "second form", text: "$(cluster.labels.region)", want: "eu"},
		"a claim":           {reason: "third form", text: "$(cluster.claims.version)", want: "v1.36.0"},
		"a qualified label": {reason: "keys have slashes and dots", text: "$(cluster.labels.topology.kubernetes.io/region)", want: "eu-west-1"},
		"a qualified claim": {reason: "names have dots", text: "$(cluster.claims.kubeversion.open-cluster-management.io)", want: "v1.36.1"},
		"an empty label":    {reason: "it is set", text: "[$(cluster.labels.empty)]", want: "[]"},
		"several":           {reason: "each is replaced", text: "$(cluster.name)$(cluster.labels.region)/$(cluster.name)", want: "store-1eu/store-1"},
		"another's":         {reason: "a container expands it", text: "$(HOME) $(POD_NAME) $(clusters.x) $()", want: "$(HOME) $(POD_NAME) $(clusters.x) $()"},
		"another's escape":  {reason: "a container reads that, too", text: "$$(HOME) a$$b $$", want: "$$(HOME) a$$b $$"},
		"an escape":         {reason: "the text is wanted", text: "$$(cluster.name)", want: "$(cluster.name)"},
		"an escaped dollar": {reason: "a pair stands for one, as in Kubernetes", text: "$$$(cluster.name)", want: "$store-1"},
		"two pairs":         {reason: "the escape of an escape", text: "$$$$(cluster.name)", want: "$$(cluster.name)"},
		"in an escape":      {reason: "what is escaped is a text like any other", text: "$$(cluster.$(cluster.name))", want: "$(cluster.store-1)"},
		"an escaped mess":   {reason: "only references have a form", text: "$$(cluster.", want: "$(cluster."},
		"a value like one":  {reason: "values are not looked at again", text: "$(cluster.labels.reference)", want: "$(cluster.name)"},
		"a dollar before":   {reason: "it is in the value, not in front of it", text: "$(cluster.labels.empty)$(cluster.name)", want: "store-1"},
		"a label that is missing": {
			reason: "there are no defaults", text: "$(cluster.labels.zone)", err: ErrNoValue,
			message: "$(cluster.labels.zone): the cluster has no such value",
		},
		"a claim that is missing": {reason: "a label is no claim", text: "$(cluster.claims.region)", err: ErrNoValue,
			message: "$(cluster.claims.region): the cluster has no such value"},
		"another field": {
			reason: "a mistake is told", text: "$(cluster.region)", err: ErrInvalidReference,
			message: "$(cluster.region): not one of $(cluster.name), $(cluster.labels.<key>) and $(cluster.claims.<name>)",
		},
		"a name with more":   {reason: "there are no functions", text: "$(cluster.name | upper)", err: ErrInvalidReference},
		"no key":             {reason: "no label has that name", text: "$(cluster.labels.)", err: ErrInvalidReference},
		"one in another":     {reason: "a reference ends at the first parenthesis", text: "$(cluster.labels.$(cluster.name))", err: ErrNoValue},
		"no end":             {reason: "somebody forgot it", text: "a$(cluster.name", message: `"$(cluster.name" has no end`},
		"a long reference":   {reason: "conditions are short", text: "$(cluster." + strings.Repeat("x", 1000) + ")", err: ErrInvalidReference, message: "$(cluster." + strings.Repeat("x", maxQuoted-len("cluster.")) + "...): " + ErrInvalidReference.Error()},
		"control characters": {reason: "they are shown", text: "$(cluster.a\nb)", err: ErrInvalidReference, message: `$(cluster.a\nb): ` + ErrInvalidReference.Error()},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := NewExpander(store1, roomy).expandString(tc.text)
			if fails := tc.err != nil || tc.message != ""; (err != nil) != fails || tc.err != nil && !errors.Is(err, tc.err) {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if tc.message != "" && err.Error() != tc.message {
				t.Errorf("%s: message %q, want %q", tc.reason, err, tc.message)
			}
			if got != tc.want {
				t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestExpandChangesOnlyStringValues(t *testing.T) {
	tests := map[string]struct {
		reason, manifest, want string
		err                    error
	}{
		"no reference":      {reason: "the bytes stay", manifest: `{ "b":1e2, "a":"<$(HOME)>" }`, want: `{ "b":1e2, "a":"<$(HOME)>" }`},
		"everywhere":        {reason: "lists and maps are walked", manifest: `{"a":["$(cluster.name)",{"b":"$(cluster.name)"}],"metadata":{"labels":{"c":"$(cluster.labels.region)"}}}`, want: `{"a":["store-1",{"b":"store-1"}],"metadata":{"labels":{"c":"eu"}}}`},
		"keys":              {reason: "a value must not name a field", manifest: `{"$(cluster.name)":"$(cluster.name)"}`, want: `{"$(cluster.name)":"store-1"}`},
		"numbers":           {reason: "no float holds them", manifest: `{"a":"$(cluster.name)","b":9007199254740993,"c":1.50,"d":1e400}`, want: `{"a":"store-1","b":9007199254740993,"c":1.50,"d":1e400}`},
		"other values":      {reason: "they are no strings", manifest: `{"a":"$(cluster.name)","b":null,"c":true,"d":{},"e":[]}`, want: `{"a":"store-1","b":null,"c":true,"d":{},"e":[]}`},
		"a hostile value":   {reason: "a value cannot end its string", manifest: `{"a":{"b":"$(cluster.labels.quotes)"}}`, want: `{"a":{"b":"\"},\"x\":{\""}}`},
		"markup":            {reason: "it is not made longer", manifest: `{"a":"<$(cluster.name)&>"}`, want: `{"a":"<store-1&>"}`},
		"an escaped dollar": {reason: "JSON may be written so", manifest: `{"a":"\u0024(cluster.name)"}`, want: `{"a":"store-1"}`},
		"a text":            {reason: "whoever applies it says what is wrong", manifest: `"$(cluster.name)"`, want: `"store-1"`},
		"the namespace":     {reason: "policies judge by it", manifest: `{"metadata":{"namespace":"$(cluster.labels.region)"}}`, err: ErrForbiddenField},
		"the name":          {reason: "policies judge by it", manifest: `{"metadata":{"name":"x-$(cluster.name)"}}`, err: ErrForbiddenField},
		"generateName":      {reason: "it is none of the cluster's", manifest: `{"metadata":{"generateName":"$(cluster.name)"}}`, err: ErrForbiddenField},
		"the kind":          {reason: "policies judge by it", manifest: `{"kind":"$(cluster.name)"}`, err: ErrForbiddenField},
		"the version":       {reason: "policies judge by it", manifest: `{"apiVersion":"$(cluster.name)/v1"}`, err: ErrForbiddenField},
		"an escaped name":   {reason: "no name has a parenthesis", manifest: `{"metadata":{"name":"$$(cluster.name)"}}`, err: ErrForbiddenField},
		"a name below":      {reason: "it is not the manifest's", manifest: `{"roleRef":{"name":"$(cluster.name)"}}`, want: `{"roleRef":{"name":"store-1"}}`},
		"a missing value":   {reason: "nothing is replaced", manifest: `{"a":"$(cluster.name)","b":"$(cluster.labels.x)"}`, err: ErrNoValue},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := NewExpander(store1, roomy).ExpandManifest([]byte(tc.manifest))
			if !errors.Is(err, tc.err) {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	for _, broken := range []string{`{"a":"$(cluster.name)"`, `{"a":"$(cluster.name)"} {}`} {
		if _, err := NewExpander(store1, roomy).ExpandManifest([]byte(broken)); err == nil {
			t.Errorf("%s is replaced", broken)
		}
	}
}

func TestExpandErrorIsDeterministic(t *testing.T) {
	const manifest = `{"z":"$(cluster.labels.z)","b":{"y":"$(cluster.labels.y)","x":"$(cluster.labels.x)"}}`
	for range 50 {
		if _, err := NewExpander(store1, roomy).ExpandManifest([]byte(manifest)); err == nil || !strings.HasPrefix(err.Error(), "$(cluster.labels.x):") {
			t.Fatalf("of several errors %v is told", err)
		}
	}
}

func TestExpandLimitsTotalSize(t *testing.T) {
	long := Cluster{Name: strings.Repeat("n", 100)}
	tests := map[string]struct {
		reason    string
		limit     int
		manifests []string
		err       error
	}{
		"as large as may be": {reason: "the limit is inclusive", limit: 210, manifests: []string{`{"a":"$(cluster.name)"}`, `"$(cluster.name)"`}},
		"one byte more":      {reason: "the second has no room", limit: 209, manifests: []string{`{"a":"$(cluster.name)"}`, `"$(cluster.name)"`}, err: ErrTooLarge},
		"large without":      {reason: "what has no reference counts", limit: 9, manifests: []string{`"12345678"`}, err: ErrTooLarge},
		"many long values":   {reason: "that is noticed before they are held", limit: 1000, manifests: []string{`["` + strings.Repeat("$(cluster.name)", 50) + `"]`}, err: ErrTooLarge},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			e := NewExpander(long, tc.limit)
			var err error
			for _, manifest := range tc.manifests {
				if _, err = e.ExpandManifest([]byte(manifest)); err != nil {
					break
				}
			}
			if !errors.Is(err, tc.err) {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}

func TestMatchesComparesUsedReferences(t *testing.T) {
	with := func(change func(*clusterv1.ManagedCluster)) Cluster {
		record := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "store-1", Labels: map[string]string{"region": "eu", "other": "a"}}}
		record.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: "version", Value: "1"}}
		if change != nil {
			change(record)
		}
		return FromManagedCluster(record)
	}
	e := NewExpander(with(nil), roomy)
	const manifest = `["$(cluster.name) $(cluster.labels.region) $(cluster.claims.version)","$(cluster.labels.zone)"]`
	if _, err := e.ExpandManifest([]byte(manifest)); !errors.Is(err, ErrNoValue) {
		t.Fatal(err)
	}
	want := References{"cluster.name": {Text: "store-1", Set: true}, "cluster.labels.region": {Text: "eu", Set: true}, "cluster.claims.version": {Text: "1", Set: true}, "cluster.labels.zone": {}}
	if diff := cmp.Diff(want, e.References()); diff != "" {
		t.Errorf("used (-want +got):\n%s", diff)
	}
	tests := map[string]struct {
		reason string
		change func(*clusterv1.ManagedCluster)
		agrees bool
	}{
		"nothing":              {reason: "as it was", change: nil, agrees: true},
		"another label":        {reason: "nobody refers to it", change: func(r *clusterv1.ManagedCluster) { r.Labels["other"] = "b" }, agrees: true},
		"a label":              {reason: "it is another", change: func(r *clusterv1.ManagedCluster) { r.Labels["region"] = "us" }},
		"a label that goes":    {reason: "it has no value", change: func(r *clusterv1.ManagedCluster) { delete(r.Labels, "region") }},
		"an empty label":       {reason: "it is set, and empty", change: func(r *clusterv1.ManagedCluster) { r.Labels["zone"] = "" }},
		"the missing label":    {reason: "it has a value now", change: func(r *clusterv1.ManagedCluster) { r.Labels["zone"] = "a" }},
		"a claim":              {reason: "it is another", change: func(r *clusterv1.ManagedCluster) { r.Status.ClusterClaims[0].Value = "2" }},
		"claims that all went": {reason: "it has no value", change: func(r *clusterv1.ManagedCluster) { r.Status.ClusterClaims = nil }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := with(tc.change).Matches(e.References()); got != tc.agrees {
				t.Errorf("%s: agrees %t", tc.reason, got)
			}
		})
	}
}

// escapeCharacters returns what a text has to be written as, to be that text in the cluster.
func escapeCharacters(text string) string {
	var out strings.Builder
	for {
		at := strings.Index(text, referencePrefix)
		if at < 0 {
			return out.String() + text
		}
		dollars := at - len(strings.TrimRight(text[:at], "$")) + 1
		out.WriteString(text[:at+1] + strings.Repeat("$", dollars) + "(cluster.")
		text = text[at+len(referencePrefix):]
	}
}

// Whatever a string is: escaped it stays what it is, and as a value of the cluster, too.
func FuzzReferences(f *testing.F) {
	for _, text := range []string{"$(cluster.name)", "$$$(cluster.labels.a/b.c)$$(HOME)", "$(cluster.", "$$(cluster.$(cluster.x))", "\xff$(cluster.claims.\x00)"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e := NewExpander(Cluster{Name: text}, len(text))
		if got, err := e.expandString(escapeCharacters(text)); err != nil || got != text {
			t.Errorf("%q, escaped, becomes %q, %v", text, got, err)
		}
		if got, err := e.expandString("$(cluster.name)"); err != nil || got != text {
			t.Errorf("%q, as a value, becomes %q, %v", text, got, err)
		}
		if got, err := e.expandString(text); err == nil && !strings.Contains(text, referencePrefix) && got != text {
			t.Errorf("%q without a reference becomes %q", text, got)
		}
	})
}

// Whatever a manifest and a value are: what comes out is JSON of the same shape, with the
// same keys, numbers, kind and names.
func FuzzSubstitution(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"$(cluster.name)":"$(cluster.name)"}}`), "store-1")
	f.Add([]byte(`{"a":[1e400,9007199254740993,"\ud800$(cluster.labels.x)",null]}`), `","b":"`)
	f.Add([]byte(`{"metadata":{"name":"\u0024(cluster.name)"},"metadata":{}}`), "\xff")
	f.Fuzz(func(t *testing.T, raw []byte, value string) {
		out, err := NewExpander(Cluster{Name: value, Labels: map[string]string{"x": value}}, roomy).ExpandManifest(raw)
		if err != nil || !json.Valid(raw) {
			return
		}
		before, failed := decode(raw)
		after, broken := decode(out)
		if failed != nil || broken != nil {
			t.Fatalf("%q becomes %q: %v, %v", raw, out, failed, broken)
		}
		if diff := cmp.Diff(skeletonOf(before), skeletonOf(after)); diff != "" {
			t.Errorf("shape (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff(policyFields(before), policyFields(after)); diff != "" {
			t.Errorf("names (-before +after):\n%s", diff)
		}
	})
}

// skeletonOf is a value without the contents of its strings.
func skeletonOf(value any) any {
	switch v := value.(type) {
	case string:
		return ""
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = skeletonOf(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for key := range v {
			out[key] = skeletonOf(v[key])
		}
		return out
	}
	return value
}

// policyFields is what the hub's policies judge a manifest by.
func policyFields(value any) []any {
	root, _ := value.(map[string]any)
	metadata, _ := root["metadata"].(map[string]any)
	var out []any
	for _, field := range []any{root["apiVersion"], root["kind"], metadata["namespace"], metadata["name"], metadata["generateName"]} {
		if text, ok := field.(string); ok {
			out = append(out, text)
		}
	}
	return out
}
