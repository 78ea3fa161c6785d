// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/hub/mutation"
)

// evaluator is the policy as an API server has it.
type evaluator struct {
	compiler *cel.CompositedCompiler
	matcher  matchconditions.Matcher
	patcher  patch.Patcher
}

func parsePolicy(t *testing.T) *admissionv1.MutatingAdmissionPolicy {
	t.Helper()
	objects, err := mutation.Parse(policyYAML)
	if err != nil {
		t.Fatal(err)
	}
	made := &admissionv1.MutatingAdmissionPolicy{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(objects[0].Object, made, true); err != nil {
		t.Fatal(err)
	}
	return made
}

func compilePolicy(t *testing.T) *evaluator {
	t.Helper()
	policy := parsePolicy(t)
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	options := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	conditions := make([]cel.ExpressionAccessor, 0, len(policy.Spec.MatchConditions))
	for _, c := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&c))
	}
	// Conditions know no variables.
	matcher := matchconditions.NewMatcher(compiler.CompileCondition(conditions, options, environment.StoredExpressions),
		policy.Spec.FailurePolicy, "policy", "mutate", policy.Name)
	variables := make([]cel.NamedExpressionAccessor, 0, len(policy.Spec.Variables))
	for _, v := range policy.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: v.Name, Expression: v.Expression})
	}
	compiler.CompileAndStoreVariables(variables, options, environment.StoredExpressions)
	options.HasPatchTypes = true
	expression := &patch.JSONPatchCondition{Expression: policy.Spec.Mutations[0].JSONPatch.Expression}
	return &evaluator{
		compiler: compiler, matcher: matcher,
		patcher: patch.NewJSONPatcher(compiler.CompileMutatingEvaluator(expression, options, environment.StoredExpressions)),
	}
}

// kindOf is a kind that the policy is about, and its resource.
func kindOf(t *testing.T, obj runtime.Object) (schema.GroupVersionKind, schema.GroupVersionResource) {
	t.Helper()
	switch obj.(type) {
	case *appsv1.DaemonSet:
		return appsv1.SchemeGroupVersion.WithKind("DaemonSet"), appsv1.SchemeGroupVersion.WithResource("daemonsets")
	case *corev1.Pod:
		return corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
	}
	t.Fatalf("a %T", obj)
	return schema.GroupVersionKind{}, schema.GroupVersionResource{}
}

// admit returns what the policy makes of an object: a new one, or one that was before as
// old is.
func admit[T client.Object](t *testing.T, e *evaluator, obj T, old runtime.Object) T {
	t.Helper()
	kind, resource := kindOf(t, obj)
	operation := admission.Create
	if old != nil {
		operation = admission.Update
	}
	in := obj.DeepCopyObject()
	in.GetObjectKind().SetGroupVersionKind(kind)
	attributes := &admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(in, old, kind, obj.GetNamespace(), obj.GetName(), resource, "", operation,
			&metav1.CreateOptions{}, false, nil),
		VersionedKind: kind, VersionedObject: admission.NewLazyObject(in), VersionedOldObject: admission.NewLazyObject(old),
	}
	ctx := e.compiler.CreateContext(t.Context())
	match := e.matcher.Match(ctx, attributes, nil, nil)
	if match.Error != nil {
		t.Fatal(match.Error)
	}
	if match.Matches {
		var err error
		in, err = e.patcher.Patch(ctx, patch.Request{
			MatchedResource: resource, VersionedAttributes: attributes,
			ObjectInterfaces: admission.NewObjectInterfacesFromScheme(clientgoscheme.Scheme),
		}, celconfig.RuntimeCELCostBudget)
		if err != nil {
			t.Fatal(err)
		}
	}
	made, ok := in.(T)
	if !ok {
		t.Fatalf("the policy makes a %T", in)
	}
	made.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return made
}
