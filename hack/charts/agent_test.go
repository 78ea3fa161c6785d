// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"maps"
	"slices"
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
			t.Parallel()
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
			t.Parallel()
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
		if g.account == pods || g.gives("", "serviceaccounts", "impersonate") {
			t.Errorf("%s may %v %v", g.account, g.rule.Verbs, g.rule.Resources)
		}
	}
}

// closed is a cluster whose owner lets the hub do nothing.
var closed = []string{"work.enabled=false", "pods.enabled=false", "kube.enabled=false"}

// TestOneProcessAnswersWhateverIsEnabled: what is not enabled is refused, which somebody
// has to say, once.
func TestOneProcessAnswersWhateverIsEnabled(t *testing.T) {
	cases := map[string][]string{
		"by default": nil, "views and actions alone": {"work.enabled=false", "pods.enabled=false"},
		"pods alone": {"work.enabled=false", "kube.enabled=false"}, "nothing": closed,
	}
	for name, values := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			grants := install(t, "spokelet-agent", values...)
			elected := holders(grants, func(g grant) bool { return g.gives("coordination.k8s.io", "leases", "create") })
			if diff := cmp.Diff([]string{agent + " in " + namespace}, elected); diff != "" {
				t.Errorf("who can be the one (-want +got):\n%s", diff)
			}
			var ledger []string
			for _, g := range grants {
				if g.account == agent && slices.Contains(g.rule.Resources, "configmaps") {
					ledger = append(ledger, strings.Join(g.rule.Verbs, ",")+" in "+g.namespace)
				}
			}
			if diff := cmp.Diff([]string{"get,list,create,update,delete,deletecollection in " + namespace}, ledger); diff != "" {
				t.Errorf("rights on the ledger of actions (-want +got):\n%s", diff)
			}
		})
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
			t.Parallel()
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

func TestTheAgentSeesWhatChangesAnswersAndNoMore(t *testing.T) {
	const (
		reviews = "create subjectaccessreviews.authorization.k8s.io"
		roles   = "list,watch roles,rolebindings,clusterroles,clusterrolebindings.rbac.authorization.k8s.io"
		defined = "list,watch customresourcedefinitions.apiextensions.k8s.io"
		anchors = "create,list,watch customresourcedefinitions.apiextensions.k8s.io"
	)
	cases := map[string]struct {
		reason string
		values []string
		want   []string
	}{
		"by default":                {reason: "views end when their right does, and begin when their resource is defined", want: []string{reviews, roles, anchors}},
		"views and actions alone":   {reason: "nobody makes anchors", values: []string{"work.enabled=false"}, want: []string{reviews, roles, defined}},
		"works alone":               {reason: "executors are asked for each time", values: []string{"kube.enabled=false"}, want: []string{reviews, anchors}},
		"works and a cache":         {reason: "roles end what is remembered of executors", values: []string{"kube.enabled=false", "work.executorValidatingCaches=true"}, want: []string{reviews, roles, anchors}},
		"a cache without any works": {reason: "there is nothing to remember", values: []string{"kube.enabled=false", "work.enabled=false", "work.executorValidatingCaches=true"}},
		"pods alone":                {reason: "pods need none of it", values: []string{"kube.enabled=false", "work.enabled=false"}},
		"a cluster that is closed":  {reason: "what is refused is not looked at", values: closed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, g := range install(t, "spokelet-agent", tc.values...) {
				group := g.rule.APIGroups[0]
				if g.account == agent && len(g.rule.ResourceNames) == 0 && slices.Contains([]string{"authorization.k8s.io", "rbac.authorization.k8s.io", "apiextensions.k8s.io"}, group) {
					got = append(got, strings.Join(g.rule.Verbs, ",")+" "+strings.Join(g.rule.Resources, ",")+"."+group)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
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
			t.Parallel()
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

// What the hub would refuse at the first join is refused before it is installed, in the
// hub's words.
func TestAClusterIsNotNamedLikeANamespaceWithAPurpose(t *testing.T) {
	for _, name := range []string{"default", "kube-system"} {
		refusal := fmt.Sprintf("cluster name %q: name is that of a namespace with a purpose of its own", name)
		checkRefused(t, "the hub does not take it", refusal, "spokelet-agent", "--set", "cluster.name="+name)
	}
}

// A name is a DNS label, and of those YAML reads some as a number, a truth or nothing.
func TestTheNameOfAClusterStaysAsItIsWritten(t *testing.T) {
	for _, name := range []string{"store-1", "007", "1e3", "null", "no"} {
		want := fmt.Sprintf("cluster: %q\n", name)
		found := false
		for _, object := range template(t, templateArgs("spokelet-agent", "--set-string", "cluster.name="+name)...) {
			file, _, _ := unstructured.NestedString(object.Object, "data", "config.yaml")
			found = found || strings.Contains(file, want)
		}
		if !found {
			t.Errorf("no configuration has %q", want)
		}
	}
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
			t.Parallel()
			got := slices.Sorted(maps.Keys(policies(t, "spokelet-agent", tc.values...)))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: policies (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
