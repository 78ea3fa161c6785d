// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	agent    = namespace + "/spokelet-agent"
	kubelets = namespace + "/spokelet-agent-kubelets"
	pods     = namespace + "/spokelet-node"
)

// TestNoAccountThatMayImpersonateIsShownToKubelets: who is shown to kubelets is
// every account with a right on a subresource of nodes, which kubelets ask for.
func TestNoAccountThatMayImpersonateIsShownToKubelets(t *testing.T) {
	impersonates, shown := map[string]bool{}, map[string]bool{}
	for _, g := range install(t, "spokelet-agent") {
		if slices.Contains(g.rule.Verbs, "impersonate") || slices.Contains(g.rule.Verbs, "*") {
			impersonates[g.account] = true
		}
		for _, resource := range g.rule.Resources {
			if strings.HasPrefix(resource, "nodes/") || resource == "*" || resource == "*/*" {
				shown[g.account] = true
			}
		}
	}
	if diff := cmp.Diff(map[string]bool{agent: true}, impersonates); diff != "" {
		t.Errorf("accounts that may impersonate (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{kubelets: true}, shown); diff != "" {
		t.Errorf("accounts that kubelets are shown (-want +got):\n%s", diff)
	}
}

func TestTheAccountOfTheKubeletsMayReadFiguresAndNoMore(t *testing.T) {
	var got []string
	for _, g := range install(t, "spokelet-agent") {
		if g.account == kubelets {
			got = append(got, strings.Join(g.rule.Verbs, ",")+" "+strings.Join(g.rule.Resources, ",")+" in "+g.namespace)
		}
	}
	if diff := cmp.Diff([]string{"get nodes/metrics,nodes/stats in "}, got); diff != "" {
		t.Errorf("rights of the account (-want +got):\n%s", diff)
	}
}

func TestTheAgentMayMakeTokensOfOneAccount(t *testing.T) {
	var got []string
	for _, g := range install(t, "spokelet-agent") {
		if g.gives("", "serviceaccounts/token", "create") {
			got = append(got, g.account+" in "+g.namespace+": "+strings.Join(g.rule.ResourceNames, ","))
		}
	}
	if diff := cmp.Diff([]string{agent + " in " + namespace + ": spokelet-agent-kubelets"}, got); diff != "" {
		t.Errorf("tokens that may be made (-want +got):\n%s", diff)
	}
}

func TestTheOwnersGroupsAreAllThatTheAgentMayImpersonate(t *testing.T) {
	cases := map[string]struct {
		reason string
		values []string
		want   []string
		rules  int
	}{
		"none":         {reason: "the owner named none, and an account that may impersonate any may be any administrator"},
		"any":          {reason: "the owner says so", values: []string{"kube.groups={*}"}, rules: 1},
		"two":          {reason: "the API server holds the agent to them", values: []string{"kube.groups={viewers,editors}"}, want: []string{"hub:viewers", "hub:editors"}, rules: 1},
		"other prefix": {reason: "the names are those in this cluster", values: []string{"kube.groups={viewers}", "kube.userPrefix=x:"}, want: []string{"x:viewers"}, rules: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			found := 0
			for _, g := range install(t, "spokelet-agent", tc.values...) {
				if !g.gives("", "groups", "impersonate") {
					continue
				}
				found++
				if diff := cmp.Diff(tc.want, g.rule.ResourceNames); diff != "" {
					t.Errorf("%s: groups (-want +got):\n%s", tc.reason, diff)
				}
			}
			if found != tc.rules {
				t.Errorf("%s: %d rules are about groups, want %d", tc.reason, found, tc.rules)
			}
		})
	}
}

func TestTheAccountOfThePodsMayDoWhatTheyNeedAndNoMore(t *testing.T) {
	everywhere := []string{
		"get,list,watch namespaces in ",
		"list configmaps,secrets in ", // of a hook: while the chart is being removed
		"list,watch pods in ",
	}
	// RBAC cannot express which namespaces: what it does there the policy says.
	made := []string{
		"bind clusterroles in ",
		"create,delete rolebindings in ",
		"create,patch,delete namespaces in ",
	}
	inside := []string{
		"get persistentvolumeclaims in ",
		"get pods/log,pods/status in ",
		"get,create pods/exec,pods/attach,pods/portforward in ",
		"get,create serviceaccounts in ",
		"get,create,update,patch,delete configmaps,secrets in ",
		"get,create,update,patch,delete pods in ",
		"get,update,patch pods/ephemeralcontainers,pods/resize in ",
		"list,watch events in ",
	}
	cases := map[string]struct {
		reason string
		values []string
		want   []string
		in     []string
	}{
		"by default":         {reason: "any namespace may be the hub's", want: append(slices.Clone(made), everywhere...), in: []string{""}},
		"in some namespaces": {reason: "the owner named them, and made them", values: []string{"pods.namespaces={shop,web}"}, want: everywhere, in: []string{"shop", "web"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, g := range install(t, "spokelet-agent", tc.values...) {
				if g.account == pods {
					got = append(got, strings.Join(g.rule.Verbs, ",")+" "+strings.Join(g.rule.Resources, ",")+" in "+g.namespace)
				}
			}
			want := slices.Clone(tc.want)
			for _, namespace := range tc.in {
				for _, right := range inside {
					want = append(want, right+namespace)
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

func TestNobodyRunsPodsUnlessTheOwnerLetsThem(t *testing.T) {
	for _, g := range install(t, "spokelet-agent", "pods.enabled=false", "work.enabled=false") {
		if g.account == pods || g.gives("", "serviceaccounts", "impersonate") || g.gives("coordination.k8s.io", "leases", "create") {
			t.Errorf("%s may %v %v", g.account, g.rule.Verbs, g.rule.Resources)
		}
	}
}

func TestPodsAloneNeedTheLease(t *testing.T) {
	elected := false
	for _, g := range install(t, "spokelet-agent", "work.enabled=false") {
		elected = elected || g.account == agent && g.gives("coordination.k8s.io", "leases", "create")
	}
	if !elected {
		t.Error("no process of the agent can be chosen to run pods")
	}
}

// TestTheAgentActsForListedExecutorsAlone: whom it may impersonate, it can be.
func TestTheAgentActsForListedExecutorsAlone(t *testing.T) {
	const (
		worker = "klusterlet-work-sa in open-cluster-management-agent"
		node   = "spokelet-node in " + namespace
	)
	cases := map[string]struct {
		reason string
		values []string
		want   []string
	}{
		"by default":       {reason: "applied objects are written as one account, pods as another", want: []string{worker, node}},
		"two of a kind":    {reason: "each namespace has its names", values: []string{"work.executors[0].namespace=team", "work.executors[0].name=bob", "work.executors[1].namespace=team", "work.executors[1].name=eve", "work.executors[2].namespace=ops", "work.executors[2].name=bob"}, want: []string{"bob in ops", "bob,eve in team", worker, node}},
		"without any work": {reason: "nobody executes anything", values: []string{"work.enabled=false", "work.executors[0].namespace=team", "work.executors[0].name=bob"}, want: []string{node}},
		"without any pods": {reason: "nobody writes pods", values: []string{"pods.enabled=false"}, want: []string{worker}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, g := range install(t, "spokelet-agent", tc.values...) {
				if g.gives("", "serviceaccounts", "impersonate") {
					got = append(got, strings.Join(g.rule.ResourceNames, ",")+" in "+g.namespace)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: accounts (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestOnlyACacheOfExecutorsLetsTheAgentReadRoles(t *testing.T) {
	for _, caches := range []bool{false, true} {
		reads := false
		for _, g := range install(t, "spokelet-agent", "work.executorValidatingCaches="+strconv.FormatBool(caches)) {
			reads = reads || g.account == agent && g.gives("rbac.authorization.k8s.io", "clusterroles", "list", "watch", "get")
		}
		if reads != caches {
			t.Errorf("with caches %t the agent reads roles: %t", caches, reads)
		}
	}
}

// An agent of before the option reads no file that has it.
func TestWhereTheHubsAPIServerIsIsForTokensOfTheHub(t *testing.T) {
	const server = "pods.hubAPIServer=https://hub.example.com:6443"
	cases := map[string]struct {
		reason string
		values []string
		want   bool
	}{
		"by default": {reason: "nobody asked for it"},
		"with them":  {reason: "pods look there", values: []string{"pods.tokens=hub", server}, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, object := range render(t, "spokelet-agent", tc.values...) {
				if object.GetKind() != "ConfigMap" {
					continue
				}
				file, _, _ := unstructured.NestedString(object.Object, "data", "config.yaml")
				if got := strings.Contains(file, "hubAPIServer"); got != tc.want {
					t.Errorf("%s: the file names it %t:\n%s", tc.reason, got, file)
				}
			}
		})
	}
	checkRefused(t, "the agent refuses it for tokens of the cluster", "pods/tokens", "spokelet-agent", "--set", server)
}

// What a policy refuses is tried against an API server; this is that it is there, and
// that nothing passes when it cannot be asked.
func TestThePoliciesAreThereForWhatIsEnabled(t *testing.T) {
	cases := map[string]struct {
		reason string
		values []string
		want   []string
	}{
		"by default":   {reason: "both accounts write", want: []string{"spokelet-agent-definitions", "spokelet-agent-pods"}},
		"without pods": {reason: "there is no such account", values: []string{"pods.enabled=false"}, want: []string{"spokelet-agent-definitions"}},
		"without work": {reason: "there are no anchors", values: []string{"work.enabled=false"}, want: []string{"spokelet-agent-pods"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := slices.Sorted(maps.Keys(policies(t, "spokelet-agent", tc.values...)))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: policies (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
