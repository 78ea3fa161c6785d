// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	var got []string
	for _, g := range install(t, "spokelet-hub") {
		if slices.Contains(g.rule.Resources, "leases") || slices.Contains(g.rule.Resources, "*") {
			got = append(got, g.account+" in "+g.namespace)
		}
	}
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
				"works.multicluster.x-k8s.io",
			},
		},
		"validatingadmissionpolicies":       {group: "admissionregistration.k8s.io", want: []string{"spokelet-managedclusters"}},
		"validatingadmissionpolicybindings": {group: "admissionregistration.k8s.io", want: []string{"spokelet-managedclusters"}},
		"validatingwebhookconfigurations":   {group: "admissionregistration.k8s.io", want: []string{"spokelet-manifestworks"}},
		"mutatingadmissionpolicies":         {group: "admissionregistration.k8s.io", want: []string{"spokelet-works", "spokelet-tolerations"}},
		"mutatingadmissionpolicybindings":   {group: "admissionregistration.k8s.io", want: []string{"spokelet-works", "spokelet-tolerations"}},
		"apiservices":                       {group: "apiregistration.k8s.io", want: []string{"v1alpha1.live.spokelet.io"}},
	}
	grants := install(t, "spokelet-hub")
	for resource, tc := range cases {
		t.Run(resource, func(t *testing.T) {
			var got []string
			for _, g := range grants {
				if !g.gives(tc.group, resource, "update", "patch", "delete", "deletecollection") {
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
		"in all namespaces":     {reason: "no limit was set", values: []string{"pods.tokens=hub"}, want: []string{hub + " in "}},
		"in some namespaces":    {reason: "RBAC can express this limit", values: []string{"pods.tokens=hub", "pods.tokenNamespaces={shop,till}"}, want: []string{hub + " in shop", hub + " in till"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, g := range install(t, "spokelet-hub", tc.values...) {
				if g.gives("", "serviceaccounts/token", "create") {
					got = append(got, g.account+" in "+g.namespace)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: rights to make tokens (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// hubWith are the arguments of helm for the hub's chart with a value of JSON.
func hubWith(value string) []string {
	return []string{
		"template", "test", "../../charts/spokelet-hub", "--namespace", namespace,
		"--values", "../chart-values/spokelet-hub.yaml", "--set", "pods.tokens=hub", "--set-json", value,
	}
}

// TestANamespaceMayBeCalledAnything that DNS allows: 1234 and true are names, too.
func TestANamespaceMayBeCalledAnything(t *testing.T) {
	var got []string
	for _, g := range grants(t, decode(t, run(t, helm(t), hubWith(`pods.tokenNamespaces=["1234","true"]`)...))) {
		if g.gives("", "serviceaccounts/token", "create") {
			got = append(got, g.namespace)
		}
	}
	if diff := cmp.Diff([]string{"1234", "true"}, got); diff != "" {
		t.Errorf("rights to make tokens (-want +got):\n%s", diff)
	}
}

func TestANamespaceIsNamedOnce(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), helm(t), hubWith(`pods.tokenNamespaces=["shop","shop"]`)...)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "pods/tokenNamespaces") {
		t.Errorf("helm renders two roles of one name: %v: %.300s", err, out)
	}
}
