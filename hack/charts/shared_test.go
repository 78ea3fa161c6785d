// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sharedAccount reads and writes shared objects.
const sharedAccount = namespace + "/spokelet-shared"

// shares are values with which a resource is shared in two namespaces.
func shares() []string {
	var values []string
	for i, in := range []string{"shop", "web"} {
		entry := "shared.allow[" + string(rune('0'+i)) + "]."
		values = append(values, entry+"group=example.com", entry+"resource=widgets", entry+"namespace="+in)
	}
	return values
}

func TestSharedObjectsAreThoseThatTheOwnerLists(t *testing.T) {
	inside := []string{
		"create,patch events in ",
		"get namespaces in ",
		"get,list,watch,create,update,patch,delete widgets in ",
		"get,update,patch widgets/status in ",
	}
	cases := map[string]struct {
		reason string
		values []string
		in     []string
		extra  []string
	}{
		"none":             {reason: "the owner listed none"},
		"two namespaces":   {reason: "each has rights of its own", values: shares(), in: []string{"shop", "web"}},
		"with definitions": {reason: "they are brought by name", values: append(shares(), "shared.definitions={widgets.example.com}"), in: []string{"shop", "web"}, extra: []string{"get,create,patch customresourcedefinitions in "}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, g := range install(t, "spokelet-agent", tc.values...) {
				if g.account != sharedAccount {
					continue
				}
				got = append(got, strings.Join(g.rule.Verbs, ",")+" "+strings.Join(g.rule.Resources, ",")+" in "+g.namespace)
				if slices.Contains(g.rule.Resources, "customresourcedefinitions") && !slices.Equal(g.rule.ResourceNames, []string{"widgets.example.com"}) {
					t.Errorf("definitions that may be brought: %q", g.rule.ResourceNames)
				}
			}
			want := slices.Clone(tc.extra)
			for _, in := range tc.in {
				for _, right := range inside {
					want = append(want, right+in)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: rights of the account (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestTheHubSharesWhatItsValuesList(t *testing.T) {
	asked := func(g grant) bool { return g.gives("example.com", "widgets", "get", "create", "delete") }
	if got := holders(install(t, "spokelet-hub"), asked); len(got) > 0 {
		t.Errorf("by default: %q", got)
	}
	values := []string{"shared.resources[0].group=example.com", "shared.resources[0].resource=widgets"}
	if got := holders(install(t, "spokelet-hub", values...), asked); len(got) != 1 {
		t.Errorf("who shares: %q", got)
	}
}

func TestWhatIsSharedHasNoWildcards(t *testing.T) {
	for chart, values := range map[string][]string{
		"spokelet-hub":   {"shared.resources[0].group=*", "shared.resources[0].resource=widgets"},
		"spokelet-agent": {"shared.allow[0].group=example.com", "shared.allow[0].resource=*", "shared.allow[0].namespace=shop"},
	} {
		var args []string
		for _, value := range values {
			args = append(args, "--set", value)
		}
		checkRefused(t, "a right on everything is none that was thought of", "shared", chart, args...)
	}
	checkRefused(t, "a quota of none is not a number of objects", "quota", "spokelet-agent", "--set", "shared.quota.objects=0")
	checkRefused(t, "a namespace has to be named", "namespace", "spokelet-agent", "--set", "shared.allow[0].group=example.com", "--set", "shared.allow[0].resource=widgets")
}
