// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package toleration

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/spokelet/spokelet/hub/mutation"
	"github.com/spokelet/spokelet/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPolicyMatchesVirtualNodePodsAndFailsOpen(t *testing.T) {
	tests := map[string]struct {
		reason  string
		seconds int64
		want    string
		bad     bool
	}{
		"some":     {reason: "as configured", seconds: 600, want: "600"},
		"none":     {reason: "pods go at once", want: "0"},
		"forever":  {reason: "no limit", seconds: Forever, want: "-1"},
		"less":     {reason: "any negative number is that", seconds: -300, want: "-1"},
		"too many": {reason: "they would come out as others", seconds: maxSeconds + 1, bad: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			objects, err := newPolicy(&tc.seconds)
			if (err != nil) != tc.bad {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if tc.bad {
				return
			}
			var made admissionv1.MutatingAdmissionPolicy
			var bound admissionv1.MutatingAdmissionPolicyBinding
			strict := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation
			if err := errors.Join(strict(objects[0].Object, &made, true), strict(objects[1].Object, &bound, true)); err != nil {
				t.Fatal(err)
			}
			if got := made.Spec.Variables[0]; got.Name != "seconds" || got.Expression != tc.want {
				t.Errorf("%s: %+v, want %s", tc.reason, got, tc.want)
			}
			if *made.Spec.FailurePolicy != admissionv1.Ignore {
				t.Errorf("failure policy %s: pods must be admitted where the policy does not run", *made.Spec.FailurePolicy)
			}
			if bound.Spec.PolicyName != made.Name {
				t.Errorf("the binding is of policy %q, want %q", bound.Spec.PolicyName, made.Name)
			}
			if text := made.Spec.MatchConditions[0].Expression; !strings.Contains(text, "'"+provider.TaintVirtualNode+"'") {
				t.Errorf("the condition %s does not know the taint %s", text, provider.TaintVirtualNode)
			}
		})
	}
}

func TestInstallAppliesAndRemovesPolicy(t *testing.T) {
	refused, missing := errors.New("refused"), apierrors.NewNotFound(schema.GroupResource{}, "x")
	notServed := &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "MutatingAdmissionPolicy"}}
	tests := map[string]struct {
		reason  string
		seconds *int64
		answer  error
		want    []string
		err     error
	}{
		"asked for": {
			reason: "the binding comes after what it names", seconds: new(int64(600)),
			want: []string{"apply MutatingAdmissionPolicy", "apply MutatingAdmissionPolicyBinding"},
		},
		"asked for and not served": {
			reason: "somebody must be told", seconds: new(int64(600)), answer: notServed,
			want: []string{"apply MutatingAdmissionPolicy"}, err: mutation.ErrNotServed,
		},
		"asked for and refused": {
			reason: "the hub lacks a right", seconds: new(int64(600)), answer: refused,
			want: []string{"apply MutatingAdmissionPolicy"}, err: refused,
		},
		"not asked for": {
			reason: "what was there goes, the binding first",
			want:   []string{"delete MutatingAdmissionPolicyBinding", "delete MutatingAdmissionPolicy"},
		},
		"never asked for": {
			reason: "there is nothing", answer: missing,
			want: []string{"delete MutatingAdmissionPolicyBinding", "delete MutatingAdmissionPolicy"},
		},
		"not asked for and not served": {
			reason: "there can be nothing", answer: notServed,
			want: []string{"delete MutatingAdmissionPolicyBinding", "delete MutatingAdmissionPolicy"},
		},
		"not asked for and refused": {
			reason: "it goes on working", answer: refused,
			want: []string{"delete MutatingAdmissionPolicyBinding"}, err: refused,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var did []string
			c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
				Apply: func(_ context.Context, _ client.WithWatch, o runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
					kind, ok := o.(interface{ GetKind() string })
					if !ok {
						t.Fatalf("applied a %T", o)
					}
					did = append(did, "apply "+kind.GetKind())
					return tc.answer
				},
				Delete: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.DeleteOption) error {
					did = append(did, "delete "+o.GetObjectKind().GroupVersionKind().Kind)
					return tc.answer
				},
			})
			if err := Install(t.Context(), c, tc.seconds); !errors.Is(err, tc.err) {
				t.Errorf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, did); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
