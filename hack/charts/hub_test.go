// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

const hub = namespace + "/spokelet-hub"

// TestTheHubsSecretsAreInItsOwnNamespace: whoever may write Secrets in a
// cluster's namespace decides nothing about who becomes that cluster.
func TestTheHubsSecretsAreInItsOwnNamespace(t *testing.T) {
	found := false
	for _, g := range install(t, "spokelet-hub") {
		// Pods refer to Secrets of any namespace, which are watched by name.
		if !g.gives("", "secrets", "get", "create", "update", "patch", "delete", "deletecollection") {
			continue
		}
		found = true
		if g.account != hub || g.namespace != namespace {
			t.Errorf("%s has %v on secrets in %q, want none outside %q", g.account, g.rule.Verbs, g.namespace, namespace)
		}
	}
	if !found {
		t.Error("the hub has no right on Secrets: it cannot keep its CA")
	}
}

func TestTheHubWritesLeasesOfNodesAlone(t *testing.T) {
	got := holders(install(t, "spokelet-hub"), func(g grant) bool {
		return slices.Contains(g.rule.Resources, "leases") || slices.Contains(g.rule.Resources, "*")
	})
	if diff := cmp.Diff([]string{hub + " in kube-node-lease"}, got); diff != "" {
		t.Errorf("rights on leases (-want +got):\n%s", diff)
	}
}

// TestTheHubChangesItsOwnDefinitionsAndPoliciesAlone: who may change any of them
// may change what the API server of the hub's cluster stores and lets through.
func TestTheHubChangesItsOwnDefinitionsAndPoliciesAlone(t *testing.T) {
	cases := map[string]struct {
		group string
		want  []string
	}{
		"customresourcedefinitions": {
			group: "apiextensions.k8s.io",
			want: []string{
				"managedclusters.cluster.open-cluster-management.io", "manifestworks.work.open-cluster-management.io",
				"works.multicluster.x-k8s.io", "works.mcm.ibm.com", "worksets.mcm.ibm.com", "resourceviews.mcm.ibm.com",
				"managedclusterviews.view.open-cluster-management.io", "managedclusteractions.action.open-cluster-management.io",
				"sharedresources.sync.spokelet.io",
			},
		},
		"validatingadmissionpolicies":       {group: "admissionregistration.k8s.io", want: []string{"spokelet-managedclusters"}},
		"validatingadmissionpolicybindings": {group: "admissionregistration.k8s.io", want: []string{"spokelet-managedclusters"}},
		"validatingwebhookconfigurations":   {group: "admissionregistration.k8s.io", want: []string{"spokelet-manifestworks"}},
		"mutatingwebhookconfigurations":     {group: "admissionregistration.k8s.io", want: []string{"spokelet-authors"}},
		"mutatingadmissionpolicies":         {group: "admissionregistration.k8s.io", want: []string{"spokelet-works", "spokelet-placement", "spokelet-tolerations"}},
		"mutatingadmissionpolicybindings":   {group: "admissionregistration.k8s.io", want: []string{"spokelet-works", "spokelet-placement", "spokelet-tolerations"}},
		"apiservices":                       {group: "apiregistration.k8s.io", want: []string{"v1alpha1.live.spokelet.io"}},
	}
	grants := install(t, "spokelet-hub")
	for resource, tc := range cases {
		t.Run(resource, func(t *testing.T) {
			var got []string
			for _, g := range grants {
				if !g.gives(tc.group, resource, "create", "update", "patch", "delete", "deletecollection") {
					continue
				}
				if len(g.rule.ResourceNames) == 0 {
					t.Errorf("%s may change any: %v", g.account, g.rule.Verbs)
				}
				got = append(got, g.rule.ResourceNames...)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("objects that may be changed (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTheHubChangesNothingThatUsersAsk: what a view or an action asks is done as its
// author. The hub writes the answers, and the Works of sets.
func TestTheHubChangesNothingThatUsersAsk(t *testing.T) {
	groups := []string{"mcm.ibm.com", "view.open-cluster-management.io", "action.open-cluster-management.io"}
	var got []string
	for _, g := range install(t, "spokelet-hub") {
		if g.account == hub && slices.Contains(groups, g.rule.APIGroups[0]) {
			got = append(got, strings.Join(g.rule.Verbs, ",")+" "+strings.Join(g.rule.Resources, ",")+" in "+g.namespace)
		}
	}
	want := []string{
		"get,list,watch,create,update,patch,delete works in ",
		"get,list,watch worksets,resourceviews in ",
		"update,patch works/status,worksets/status,resourceviews/status in ",
		"get,list,watch managedclusterviews in ",
		"update,patch managedclusterviews/status in ",
		"get,list,watch,delete managedclusteractions in ", // a minute after they are done
		"update,patch managedclusteractions/status in ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights on views and actions (-want +got):\n%s", diff)
	}
}

func TestTheHubSeesWhoMayAskAndGivesNobodyTheRight(t *testing.T) {
	for _, resource := range []string{"roles", "rolebindings", "clusterroles", "clusterrolebindings"} {
		var got []string
		for _, g := range install(t, "spokelet-hub") {
			if slices.Contains(g.rule.Resources, resource) || slices.Contains(g.rule.Resources, "*") {
				got = append(got, strings.Join(g.rule.Verbs, ",")+" in "+g.namespace)
			}
		}
		if diff := cmp.Diff([]string{"list,watch in "}, got); diff != "" {
			t.Errorf("rights on %s (-want +got):\n%s", resource, diff)
		}
	}
}

// mcm is that part of the hub's configuration.
type mcm struct {
	MaxResultBytes   int    `json:"maxResultBytes"`
	ShowSecrets      bool   `json:"showSecrets"`
	SpecLimit        int    `json:"specLimit"`
	NamespaceObjects int    `json:"namespaceObjects"`
	NamespaceBytes   string `json:"namespaceBytes"`
}

func TestWhatComesBackOfViewsIsInTheHubsFile(t *testing.T) {
	cases := map[string]struct {
		reason string
		values []string
		want   mcm
	}{
		"by default": {reason: "as the hub would have it without a file", want: mcm{MaxResultBytes: 512 << 10, SpecLimit: 512 << 10, NamespaceObjects: 1000, NamespaceBytes: "32Mi"}},
		"configured": {
			reason: "its owner says so",
			values: []string{"mcm.maxResultBytes=1048576", "mcm.showSecrets=true", "mcm.specLimit=1048576", "mcm.namespaceObjects=5000", "mcm.namespaceBytes=1Gi"},
			want:   mcm{MaxResultBytes: 1 << 20, ShowSecrets: true, SpecLimit: 1 << 20, NamespaceObjects: 5000, NamespaceBytes: "1Gi"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var files corev1.ConfigMap
			find(t, "spokelet-hub", "ConfigMap", &files, tc.values...)
			var file struct {
				MCM mcm `json:"mcm"`
			}
			if err := yaml.Unmarshal([]byte(files.Data["config.yaml"]), &file); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, file.MCM); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestTheHubMakesTokensWhereItIsToldTo: who may make tokens has the rights of every
// account there.
func TestTheHubMakesTokensWhereItIsToldTo(t *testing.T) {
	cases := map[string]struct {
		reason string
		values []string
		want   []string
	}{
		"by default":            {reason: "nobody consented"},
		"namespaces without it": {reason: "nobody consented", values: []string{"pods.tokenNamespaces={shop}"}},
		"in some namespaces":    {reason: "RBAC can express this limit", values: []string{"pods.tokens=hub", "pods.tokenNamespaces={shop,till}"}, want: []string{hub + " in shop", hub + " in till"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := holders(install(t, "spokelet-hub", tc.values...), func(g grant) bool {
				return g.gives("", "serviceaccounts/token", "create")
			})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: rights to make tokens (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestANamespaceMayBeCalledAnything that DNS allows: 1234 and true are names, too.
func TestANamespaceMayBeCalledAnything(t *testing.T) {
	var got []string
	args := templateArgs("spokelet-hub", "--set", "pods.tokens=hub", "--set-json", `pods.tokenNamespaces=["1234","true"]`)
	for _, g := range grants(t, template(t, args...)) {
		if g.gives("", "serviceaccounts/token", "create") {
			got = append(got, g.namespace)
		}
	}
	if diff := cmp.Diff([]string{"1234", "true"}, got); diff != "" {
		t.Errorf("rights to make tokens (-want +got):\n%s", diff)
	}
}

func TestANamespaceIsNamedOnce(t *testing.T) {
	checkRefused(t, "two roles would have one name", "pods/tokenNamespaces", "spokelet-hub",
		"--set", "pods.tokens=hub", "--set-json", `pods.tokenNamespaces=["shop","shop"]`)
}

// TestTheHubReadsObjectsOnlyInConfiguredNamespaces: who may watch by name may watch every name.
func TestTheHubReadsObjectsOnlyInConfiguredNamespaces(t *testing.T) {
	cases := map[string]struct {
		reason string
		values []string
		want   []string
	}{
		"by default":         {reason: "nobody consented"},
		"in some namespaces": {reason: "RBAC can express this limit", values: []string{"pods.namespaces={shop,till}"}, want: []string{hub + " in shop", hub + " in till"}},
		"in all namespaces":  {reason: "somebody said so", values: []string{"pods.namespaces={*}"}, want: []string{hub + " in "}},
		"tokens alone":       {reason: "a token needs one ConfigMap, which holds no secret", values: []string{"pods.tokens=hub", "pods.tokenNamespaces={shop}"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := holders(install(t, "spokelet-hub", tc.values...), func(g grant) bool {
				// The hub keeps its own in its own namespace.
				return g.namespace != namespace && g.gives("", "secrets", "get", "list", "watch")
			})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: rights to read Secrets (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestATokenComesWithTheAuthorityOfTheHub(t *testing.T) {
	var got []string
	for _, g := range install(t, "spokelet-hub", "pods.tokens=hub", "pods.tokenNamespaces={shop}") {
		if g.namespace == "shop" && g.gives("", "configmaps", "list", "watch") {
			got = append(got, g.rule.ResourceNames...)
		}
	}
	if diff := cmp.Diff([]string{"kube-root-ca.crt"}, got); diff != "" {
		t.Errorf("ConfigMaps that may be read (-want +got):\n%s", diff)
	}
}

func TestTheChartRefusesLimitsThatAreNone(t *testing.T) {
	cases := map[string]struct{ reason, values, about string }{
		"tokens everywhere":    {reason: "whoever may make tokens everywhere is everybody", values: `pods.tokens=hub`, about: "tokenNamespaces"},
		"all and one":          {reason: "the list would not be one", values: `pods.namespaces={*,shop}`, about: "namespaces"},
		"no room for results":  {reason: "nothing but the cut would be seen", values: `mcm.maxResultBytes=1023`, about: "maxResultBytes"},
		"specs beyond etcd":    {reason: "none could be written", values: `mcm.specLimit=1048577`, about: "specLimit"},
		"no objects":           {reason: "it is no way to serve none", values: `mcm.namespaceObjects=0`, about: "namespaceObjects"},
		"bytes that are none":  {reason: "the hub would not start", values: `mcm.namespaceBytes=many`, about: "namespaceBytes"},
		"results beyond etcd":  {reason: "no status could be written", values: `mcm.maxResultBytes=1048577`, about: "maxResultBytes"},
		"a switch of views":    {reason: "they come with admission", values: `mcm.enabled=true`, about: "mcm"},
		"tokens for a pattern": {reason: "RBAC knows none", values: `pods.tokens=hub,pods.tokenNamespaces={*}`, about: "tokenNamespaces"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkRefused(t, tc.reason, tc.about, "spokelet-hub", "--set", tc.values)
		})
	}
}

// TestWhoMayViewMayNotReadWorks: their manifests may be Secrets.
func TestWhoMayViewMayNotReadWorks(t *testing.T) {
	for _, object := range render(t, "spokelet-hub") {
		if object.GetLabels()["rbac.authorization.k8s.io/aggregate-to-view"] != "true" {
			continue
		}
		var role rbacv1.ClusterRole
		convert(t, object, &role)
		for _, rule := range role.Rules {
			if diff := cmp.Diff([]string{"viewworks"}, rule.Resources); diff != "" {
				t.Errorf("what view may use (-want +got):\n%s", diff)
			}
		}
		return
	}
	t.Error("nothing is added to view")
}

// TestPoliciesHoldTheHubToItsOwnObjects: what they let through a real API server says.
func TestPoliciesHoldTheHubToItsOwnObjects(t *testing.T) {
	got := policies(t, "spokelet-hub")
	for _, ofUsers := range []string{"spokelet-authors", "spokelet-detaching"} {
		delete(got, ofUsers)
	}
	for name, policy := range got {
		conditions := policy.Spec.MatchConditions
		if len(conditions) != 1 || conditions[0].Expression != "request.userInfo.username == 'system:serviceaccount:"+namespace+":spokelet-hub'" {
			t.Errorf("policy %s is not for the hub's account alone: %+v", name, policy.Spec)
		}
	}
	want := []string{"spokelet-hub-namespaces", "spokelet-hub-nodes", "spokelet-hub-pods"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
}
