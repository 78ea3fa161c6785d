// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// namespace is where the charts of the tests go, unlike any name in them.
const namespace = "installed"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A grant is a rule that a service account has, in one namespace or, when that is
// empty, everywhere.
type grant struct {
	account   string // namespace/name
	namespace string
	rule      rbacv1.PolicyRule
}

// gives says whether the grant has one of the verbs on a resource, whatever the
// names that it is limited to.
func (g grant) gives(group, resource string, verbs ...string) bool {
	has := func(list []string, want string) bool {
		return slices.Contains(list, want) || slices.Contains(list, "*")
	}
	return has(g.rule.APIGroups, group) && has(g.rule.Resources, resource) &&
		slices.ContainsFunc(verbs, func(verb string) bool { return has(g.rule.Verbs, verb) })
}

// holders returns who has the grants that are asked for, as "account in namespace".
func holders(grants []grant, asked func(grant) bool) []string {
	var got []string
	for _, g := range grants {
		if asked(g) {
			got = append(got, g.account+" in "+g.namespace)
		}
	}
	return got
}

// install renders a chart and returns every grant.
func install(t *testing.T, chart string, values ...string) []grant {
	t.Helper()
	return grants(t, render(t, chart, values...))
}

// render returns the objects of a chart, with the values that have no default
// and those given (as in "kube.enabled=true").
func render(t *testing.T, chart string, values ...string) []unstructured.Unstructured {
	t.Helper()
	args := templateArgs(chart)
	for _, value := range values {
		args = append(args, "--set", value)
	}
	return template(t, args...)
}

// rendered holds the objects that helm made, by its arguments: a process of helm takes a
// fifth of a second, and most tests look at a chart with its default values.
var rendered sync.Map

// template returns the objects that helm makes for some arguments. They are the caller's.
func template(t *testing.T, args ...string) []unstructured.Unstructured {
	t.Helper()
	made, _ := rendered.LoadOrStore(strings.Join(args, "\x00"), sync.OnceValues(func() ([]unstructured.Unstructured, error) {
		path, err := helm()
		if err != nil {
			return nil, err
		}
		manifests, err := output(exec.Command(path, args...))
		if err != nil {
			return nil, err
		}
		return decode(manifests)
	}))
	objects, err := made.(func() ([]unstructured.Unstructured, error))()
	if err != nil {
		t.Fatal(err)
	}
	copies := make([]unstructured.Unstructured, len(objects))
	for i, object := range objects {
		copies[i] = *object.DeepCopy()
	}
	return copies
}

// templateArgs are helm's arguments to render a chart, with the values that have no
// default.
func templateArgs(chart string, more ...string) []string {
	args := []string{
		"template", "test", "../../charts/" + chart, "--namespace", namespace,
		"--values", "../chart-values/" + chart + ".yaml",
	}
	return append(args, more...)
}

// checkRefused checks that helm does not render a chart with such arguments, and names
// what is wrong.
func checkRefused(t *testing.T, reason, names, chart string, more ...string) {
	t.Helper()
	path, err := helm()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), path, templateArgs(chart, more...)...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), names) {
		t.Errorf("%s: helm takes it: %v: %.300s", reason, err, out)
	}
}

// find converts the first object of a kind in a chart, and tells whether there is one.
func find(t *testing.T, chart, kind string, into any, values ...string) bool {
	t.Helper()
	for _, object := range render(t, chart, values...) {
		if object.GetKind() == kind {
			convert(t, object, into)
			return true
		}
	}
	return false
}

// helm returns the path of the helm that SPOKELET_HELM names, or else of the one that the
// clusters of the tests use. To ask for that takes as long as to render a chart.
var helm = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("SPOKELET_HELM"); path != "" {
		return path, nil
	}
	path, err := output(exec.Command("go", "-C", "../clusters", "run", "./cmd/clusters", "bin", "helm"))
	return strings.TrimSpace(string(path)), err
})

// output runs a command and returns what it prints. An error has what it says of it.
func output(cmd *exec.Cmd) ([]byte, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd, err, stderr.String())
	}
	return out, nil
}

func decode(manifests []byte) ([]unstructured.Unstructured, error) {
	var objects []unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	for {
		object := unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// grants follows every binding to its role. Roles that the chart does not make,
// such as admin, give no grant.
func grants(t *testing.T, objects []unstructured.Unstructured) []grant {
	t.Helper()
	rules := map[string][]rbacv1.PolicyRule{}
	for _, object := range objects {
		if kind := object.GetKind(); kind == "ClusterRole" || kind == "Role" {
			var role rbacv1.ClusterRole // a Role has the same fields
			convert(t, object, &role)
			rules[kind+"/"+role.Namespace+"/"+role.Name] = role.Rules
		}
	}
	var all []grant
	for _, object := range objects {
		if kind := object.GetKind(); kind != "ClusterRoleBinding" && kind != "RoleBinding" {
			continue
		}
		var binding rbacv1.RoleBinding // a ClusterRoleBinding has the same fields
		convert(t, object, &binding)
		role := binding.RoleRef.Kind + "//" + binding.RoleRef.Name
		if binding.RoleRef.Kind == "Role" {
			role = "Role/" + binding.Namespace + "/" + binding.RoleRef.Name
		}
		for _, subject := range binding.Subjects {
			for _, rule := range rules[role] {
				all = append(all, grant{account: subject.Namespace + "/" + subject.Name, namespace: binding.Namespace, rule: rule})
			}
		}
	}
	if len(all) == 0 {
		t.Fatal("the chart grants nothing: it was not read right")
	}
	return all
}

// policies returns the admission policies of a chart by name. Each is there once and
// bound once, denies, and lets nothing pass that it cannot judge.
func policies(t *testing.T, chart string, values ...string) map[string]admissionv1.ValidatingAdmissionPolicy {
	t.Helper()
	byName := map[string]admissionv1.ValidatingAdmissionPolicy{}
	var names, bound []string
	for _, object := range render(t, chart, values...) {
		switch object.GetKind() {
		case "ValidatingAdmissionPolicy":
			var policy admissionv1.ValidatingAdmissionPolicy
			convert(t, object, &policy)
			if fails := policy.Spec.FailurePolicy; fails == nil || *fails != admissionv1.Fail {
				t.Errorf("%s lets pass what it cannot judge", policy.Name)
			}
			byName[policy.Name] = policy
			names = append(names, policy.Name)
		case "ValidatingAdmissionPolicyBinding":
			var binding admissionv1.ValidatingAdmissionPolicyBinding
			convert(t, object, &binding)
			if diff := cmp.Diff([]admissionv1.ValidationAction{admissionv1.Deny}, binding.Spec.ValidationActions); diff != "" {
				t.Errorf("what %s does (-want +got):\n%s", binding.Name, diff)
			}
			bound = append(bound, binding.Spec.PolicyName)
		}
	}
	slices.Sort(bound)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(byName)), bound); diff != "" || len(names) != len(byName) {
		t.Errorf("policies %q, and those that are bound (-want +got):\n%s", names, diff)
	}
	return byName
}

func convert(t *testing.T, object unstructured.Unstructured, into any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
		t.Fatal(err)
	}
}
