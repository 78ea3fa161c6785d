// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/spokelet/spokelet/hub/mutation"
)

func TestPolicyAddsFinalizerAndIgnoresFailures(t *testing.T) {
	objects, err := mutation.Parse(policyYAML)
	if err != nil {
		t.Fatal(err)
	}
	var made admissionv1.MutatingAdmissionPolicy
	var bound admissionv1.MutatingAdmissionPolicyBinding
	strict := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation
	if err := errors.Join(strict(objects[0].Object, &made, true), strict(objects[1].Object, &bound, true)); err != nil {
		t.Fatal(err)
	}
	if *made.Spec.FailurePolicy != admissionv1.Ignore {
		t.Errorf("failure policy %s: works must be admitted where the policy does not run", *made.Spec.FailurePolicy)
	}
	if bound.Spec.PolicyName != made.Name {
		t.Errorf("the binding is of policy %q, want %q", bound.Spec.PolicyName, made.Name)
	}
	if text := made.Spec.Mutations[0].JSONPatch.Expression; strings.Count(text, "variables.finalizer") != 2 {
		t.Errorf("the mutation %s does not add the finalizer in both of its cases", text)
	}
	eachKind(t, func(t *testing.T, k *kind) {
		for what, text := range map[string]string{"variable": made.Spec.Variables[0].Expression, "condition": made.Spec.MatchConditions[0].Expression} {
			if !strings.Contains(text, "'"+k.Finalizer+"'") {
				t.Errorf("the %s %s does not know finalizer %s", what, text, k.Finalizer)
			}
		}
	})
}

func TestPolicyIsInstalledWhereServed(t *testing.T) {
	tests := map[string]struct {
		reason  string
		answer  error
		applied int
		err     error
	}{
		"served":     {reason: "the policy and its binding are applied", applied: 2},
		"not served": {reason: "Kubernetes before 1.36 is no fault", answer: &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "MutatingAdmissionPolicy"}}, applied: 1},
		"refused":    {reason: "whoever starts the works is told", answer: errRefused, applied: 1, err: errRefused},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			applied := 0
			r.Works.client = interceptor.NewClient(r.client, interceptor.Funcs{
				Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
					applied++
					return tc.answer
				},
			})
			if err := r.installPolicy(t.Context()); !errors.Is(err, tc.err) || applied != tc.applied {
				t.Errorf("%s: %d objects, error %v", tc.reason, applied, err)
			}
		})
	}
}

var errRefused = errors.New("refused")
