// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/hub/mcm"
	"github.com/spokelet/spokelet/hub/requester"
)

func TestWorkNameIsUniqueAndValid(t *testing.T) {
	names := map[string]string{}
	for _, p := range []parent{
		newWorkSetParent(setNamed("a", "b")), newWorkSetParent(setNamed("b", "b")), newWorkSetParent(setNamed("a", "1234")),
		newWorkSetParent(setNamed("a", "x.y-"+strings.Repeat("z", 240))), newWorkSetParent(setNamed("a", "x.y-"+strings.Repeat("z", 241))),
		newResourceViewParent(&v1alpha1.ResourceView{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}}),
	} {
		for _, cluster := range []string{"store-1", "store-2"} {
			name := workName(p, cluster)
			if errs := validation.IsDNS1035Label(name); len(errs) > 0 {
				t.Errorf("%q: %v", name, errs)
			}
			if errs := validation.IsValidLabelValue(labelValue(p)); len(errs) > 0 {
				t.Errorf("label %q: %v", labelValue(p), errs)
			}
			who := ownerReference(p) + " in " + cluster
			if other, twice := names[name]; twice {
				t.Errorf("%s and %s have the name %q", who, other, name)
			}
			names[name] = who
		}
	}
}

func TestParseOwnerReturnsParent(t *testing.T) {
	p := newWorkSetParent(setNamed("a", "b.c"))
	w := newWork(p, requester.User{User: "alice"}, registered, "store-1")
	if name, ok := parseOwner(w, kindWorkSet); !ok || name != (types.NamespacedName{Namespace: "a", Name: "b.c"}) {
		t.Errorf("it leads to %v, %t", name, ok)
	}
	if _, ok := parseOwner(w, kindResourceView); ok {
		t.Error("it leads to a parent of another kind")
	}
	if _, ok := parseOwner(&v1alpha1.Work{}, kindWorkSet); ok {
		t.Error("a work without parent leads to one")
	}
}

func TestNewWorkHasAuthorOfParentOnly(t *testing.T) {
	s := setNamed("a", "b")
	s.Spec.Template.Labels = map[string]string{"x": "y"}
	s.UID = "uid"
	s.Spec.Template.Annotations = map[string]string{
		requester.MCM.User: "cm9vdA==", "c": "d", v1alpha1.AnnotationOwners: "WorkSet.x.y", v1alpha1.AnnotationOwnerUID: "forged",
		// The cache takes both from the work, so that it would never be as it is to be.
		corev1.LastAppliedConfigAnnotation: "{}", mcm.AnnotationDigest: "forged",
	}
	s.Spec.Template.Spec = v1alpha1.TemplateSpec{Type: "Action", Cluster: &v1alpha1.Cluster{Name: "elsewhere"}}
	want := &v1alpha1.Work{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "store-1", Name: workName(newWorkSetParent(s), "store-1"),
			Labels: map[string]string{"x": "y", v1alpha1.LabelCluster: "store-1", v1alpha1.LabelWorkSet: "a.b"},
			Annotations: map[string]string{
				requester.MCM.User: "YWxpY2U=", requester.MCM.Groups: "Zw==", requester.AnnotationRegistration: registered, "c": "d", v1alpha1.AnnotationOwners: "WorkSet.a.b", v1alpha1.AnnotationOwnerUID: "uid",
			},
		},
		Spec: v1alpha1.WorkSpec{Type: "Action", Cluster: v1alpha1.Cluster{Name: "store-1"}},
	}
	got := newWork(newWorkSetParent(s), requester.User{User: "alice", Groups: []string{"g"}}, registered, "store-1")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("child (-want +got):\n%s", diff)
	}
	if patch, err := diffPatch(got, want); err != nil || patch != nil {
		t.Errorf("of the same there is a difference: %s, %v", patch, err)
	}
}

func TestResourceViewCreatesSameWorkPerCluster(t *testing.T) {
	v := &v1alpha1.ResourceView{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"},
		Spec: v1alpha1.ResourceViewSpec{
			SummaryOnly: true, Mode: "Periodic", UpdateIntervalSeconds: 7,
			Scope: v1alpha1.ViewFilter{
				LabelSelector: &runtime.RawExtension{Raw: []byte(`{"app":"x"}`)}, FieldSelector: "f", APIGroup: "apps",
				Resource: "deployments", ResourceName: "d", NameSpace: "n",
			},
		},
	}
	want := v1alpha1.WorkSpec{
		Cluster: v1alpha1.Cluster{Name: "store-1"}, Type: "Resource",
		Scope: v1alpha1.ResourceFilter{
			LabelSelector: &runtime.RawExtension{Raw: []byte(`{"app":"x"}`)}, FieldSelector: "f", APIGroup: "apps",
			ResourceType: "deployments", Name: "d", NameSpace: "n", ServerPrint: true, Mode: "Periodic", UpdateIntervalSeconds: 7,
		},
	}
	if diff := cmp.Diff(want, newResourceViewParent(v).specFor("store-1")); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}
