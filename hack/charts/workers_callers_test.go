// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// callers lets a ServiceAccount and a group call the scripts of an account in two clusters.
func callers(account string, more ...string) []string {
	value := "callers." + account + "."
	return append([]string{
		value + "clusters={spoke1,spoke2}", value + "users={system:serviceaccount:team-a:caller}", value + "groups={developers}",
	}, more...)
}

// bound are the subjects of the binding among objects, and the rules of the role that it names.
func bound(t *testing.T, objects []unstructured.Unstructured) (subjects []rbacv1.Subject, rules []rbacv1.PolicyRule) {
	t.Helper()
	var binding rbacv1.RoleBinding
	var role rbacv1.ClusterRole // a Role has the same fields
	for _, object := range objects {
		switch kind := object.GetKind(); {
		case strings.HasSuffix(kind, "Binding"):
			convert(t, object, &binding)
		case strings.HasSuffix(kind, "Role"):
			convert(t, object, &role)
		}
	}
	if binding.RoleRef.Name != role.Name || binding.Namespace != role.Namespace {
		t.Errorf("the binding is of %s in %q, the role is %s in %q", binding.RoleRef.Name, binding.Namespace, role.Name, role.Namespace)
	}
	return binding.Subjects, role.Rules
}

// manifests are those of a work.
func manifests(t *testing.T, work unstructured.Unstructured) []unstructured.Unstructured {
	t.Helper()
	list, found, err := unstructured.NestedSlice(work.Object, "spec", "workload", "manifests")
	if err != nil || !found {
		t.Fatalf("manifests of %s: %v", work.GetName(), err)
	}
	var objects []unstructured.Unstructured
	for _, manifest := range list {
		objects = append(objects, unstructured.Unstructured{Object: manifest.(map[string]any)})
	}
	return objects
}

// ofCallers are the objects of the hub that are there for callers, and the works.
func ofCallers(t *testing.T, values ...string) (hub, works []unstructured.Unstructured) {
	t.Helper()
	for _, object := range render(t, workersChart, values...) {
		switch {
		case object.GetKind() == "ManifestWork":
			works = append(works, object)
		case strings.Contains(object.GetName(), ":callers-"):
			hub = append(hub, object)
		}
	}
	return hub, works
}

func TestCallersHaveTheWayIntoTheirClustersAndToTheAccountsServices(t *testing.T) {
	hub, works := ofCallers(t, callers("1234")...)
	verbs := []string{"get", "create", "update", "patch", "delete"}
	subjects := func(prefix string) []rbacv1.Subject {
		return []rbacv1.Subject{
			{APIGroup: rbacv1.GroupName, Kind: "User", Name: prefix + "system:serviceaccount:team-a:caller"},
			{APIGroup: rbacv1.GroupName, Kind: "Group", Name: prefix + "developers"},
		}
	}
	who, may := bound(t, hub)
	if diff := cmp.Diff(subjects(""), who); diff != "" {
		t.Errorf("who has rights on the hub (-want +got):\n%s", diff)
	}
	want := []rbacv1.PolicyRule{{APIGroups: []string{"live.spokelet.io"}, Resources: []string{"clusters/proxy"}, ResourceNames: []string{"spoke1", "spoke2"}, Verbs: verbs}}
	if diff := cmp.Diff(want, may); diff != "" {
		t.Errorf("rights on the hub (-want +got):\n%s", diff)
	}
	var clusters []string
	for _, work := range works {
		clusters = append(clusters, work.GetNamespace())
		who, may := bound(t, manifests(t, work))
		if diff := cmp.Diff(subjects("hub:"), who); diff != "" {
			t.Errorf("who has rights in a cluster (-want +got):\n%s", diff)
		}
		want := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"services/proxy"}, Verbs: verbs}}
		if diff := cmp.Diff(want, may); diff != "" {
			t.Errorf("rights in a cluster (-want +got):\n%s", diff)
		}
		for _, object := range manifests(t, work) {
			if object.GetNamespace() != "workers-1234" {
				t.Errorf("%s is in %q", object.GetKind(), object.GetNamespace())
			}
		}
	}
	if diff := cmp.Diff([]string{"spoke1", "spoke2"}, clusters); diff != "" {
		t.Errorf("clusters (-want +got):\n%s", diff)
	}
}

func TestCallersHaveThePrefixOfTheAgents(t *testing.T) {
	_, works := ofCallers(t, callers("1234", "callers.1234.userPrefix=a:")...)
	who, _ := bound(t, manifests(t, works[0]))
	if len(who) != 2 || who[1].Name != "a:developers" {
		t.Errorf("who has rights in a cluster: %v", who)
	}
}

func TestByDefaultNobodyCallsFromTheHub(t *testing.T) {
	if hub, works := ofCallers(t); len(hub)+len(works) > 0 {
		t.Errorf("%d objects of the hub, %d works", len(hub), len(works))
	}
}

func TestCallersThatCouldNotCallAreRefused(t *testing.T) {
	for name, tc := range map[string]struct{ reason, names, value string }{
		"no cluster":     {reason: "it would be every one", names: "clusters", value: "callers.1234.users={a}"},
		"nobody":         {reason: "a binding without subjects gives nothing", names: "users", value: "callers.1234.clusters={a}"},
		"a system group": {reason: "agents pass none on", names: "groups", value: "callers.1234.groups={system:authenticated}"},
		"no account":     {reason: "it is no name of one", names: "callers", value: "callers.Team_A.users={a}"},
	} {
		t.Run(name, func(t *testing.T) {
			checkRefused(t, tc.reason, tc.names, workersChart, "--set", tc.value)
		})
	}
}
