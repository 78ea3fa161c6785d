// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// check tries what the account may do, and what the policy refuses.
func (p *policed) check(allowed, refused map[string]func() error) {
	p.t.Helper()
	for name, act := range allowed {
		if err := act(); err != nil {
			p.t.Errorf("%s: %v", name, err)
		}
	}
	for name, act := range refused {
		if err := act(); !refusedBy(err, "spokelet-agent-pods") {
			p.t.Errorf("%s: got %v, want the policy's refusal", name, err)
		}
	}
}

func (p *policed) patchNamespace(name, body string) error {
	_, err := p.account.Namespaces().Patch(p.t.Context(), name, types.MergePatchType, []byte(body), patching)
	return err
}

// look is the role by which the account looks into a namespace that it made.
const look = "spokelet-agent:namespace-content"

// looking is the account's binding to that role.
func looking(change ...func(*rbacv1.RoleBinding)) *rbacv1.RoleBinding {
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: look, Labels: hubs},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: look},
		Subjects: []rbacv1.Subject{{
			APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:serviceaccount:" + namespace + ":spokelet-node",
		}},
	}
	for _, f := range change {
		f(binding)
	}
	return binding
}

func (p *policed) bind(namespace string, change ...func(*rbacv1.RoleBinding)) error {
	_, err := p.client("spokelet-node").RbacV1().RoleBindings(namespace).Create(p.t.Context(), looking(change...), creation)
	return err
}

func (p *policed) unbind(namespace, name string) error {
	return p.client("spokelet-node").RbacV1().RoleBindings(namespace).Delete(p.t.Context(), name, deletion)
}

func TestTheAccountOfThePodsIsHeldToTheNamespacesThatItMade(t *testing.T) {
	p := newPoliced(t)
	annotates := func(namespace, annotations string) func() error {
		return func() error { return p.patchNamespace(namespace, `{"metadata":{"annotations":`+annotations+`}}`) }
	}
	labels := func(labels string) func() error {
		return func() error { return p.patchNamespace(p.made, `{"metadata":{"labels":`+labels+`}}`) }
	}
	binds := func(namespace string, change ...func(*rbacv1.RoleBinding)) func() error {
		return func() error { return p.bind(namespace, change...) }
	}
	removes := func(namespace string) func() error {
		return func() error { return p.account.Namespaces().Delete(t.Context(), namespace, deletion) }
	}
	allowed := map[string]func() error{
		"removes one":    removes(p.made),
		"annotates one":  annotates(p.made, `{"spokelet.io/kept-because":"x","spokelet.io/hub-namespace":"y"}`),
		"looks into one": binds(p.made),
		"looks no more":  func() error { return p.unbind(p.shared, look) },
	}
	refused := map[string]func() error{
		"removes one of others":          removes(p.shared),
		"removes one of nobody":          removes(p.foreign),
		"labels one":                     labels(`{"pod-security.kubernetes.io/enforce":"privileged"}`),
		"gives one up":                   labels(`{"spokelet.io/created-by":null}`),
		"adds an annotation":             annotates(p.made, `{"new":""}`),
		"changes an annotation":          annotates(p.made, `{"theirs":"x"}`),
		"takes an annotation":            annotates(p.made, `{"theirs":null}`),
		"annotates one of others":        annotates(p.shared, `{"spokelet.io/kept-because":"x"}`),
		"looks into one of others":       binds(p.shared),
		"looks into kube-system":         binds("kube-system"),
		"binds itself to another role":   binds(p.made, func(b *rbacv1.RoleBinding) { b.RoleRef.Name = "admin" }),
		"binds another account":          binds(p.made, func(b *rbacv1.RoleBinding) { b.Subjects[0].Name = "mallory" }),
		"binds everybody":                binds(p.made, func(b *rbacv1.RoleBinding) { b.Subjects[0].Kind = rbacv1.GroupKind }),
		"binds under another name":       binds(p.made, func(b *rbacv1.RoleBinding) { b.Name = "other" }),
		"binds without the hub's label":  binds(p.made, func(b *rbacv1.RoleBinding) { b.Labels = nil }),
		"removes a binding of the owner": func() error { return p.unbind(p.shared, "theirs") },
		"makes a role": func() error {
			role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "new", Labels: hubs}}
			_, err := p.client("spokelet-node").RbacV1().Roles(p.made).Create(t.Context(), role, creation)
			return err
		},
	}
	p.check(allowed, refused)
}
