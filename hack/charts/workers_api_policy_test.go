// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
)

// A secretWrite is what somebody with rights on Secrets asks for: to create one if there is
// none before, to delete it if there is none after, else to patch it.
type secretWrite struct {
	reason        string
	before, after *corev1.Secret
	refused       bool
}

// versionSecret is the Secret of a version, which the changes change.
func versionSecret(changes ...func(*corev1.Secret)) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "hello-1", Labels: map[string]string{"workers.spokelet.io/version": "1", "workers.spokelet.io/script": "hello"}},
		Immutable:  new(true), Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"KEY": []byte("value")},
	}
	for _, change := range changes {
		change(secret)
	}
	return secret
}

func secretWrites() map[string]secretWrite {
	owned := func(s *corev1.Secret) {
		s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "api.worker-deployment/v1alpha1", Kind: "WorkerDeployment", Name: "hello", UID: "any"}}
	}
	bare := func(s *corev1.Secret) { s.Labels = nil }
	unversioned := func(s *corev1.Secret) { delete(s.Labels, "workers.spokelet.io/version") }
	mutable := func(s *corev1.Secret) { s.Immutable = nil }
	another := func(s *corev1.Secret) { s.Type = "example.com/another" }
	token := func(s *corev1.Secret) {
		s.Type = corev1.SecretTypeServiceAccountToken
		s.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
	}
	return map[string]secretWrite{
		"create one of a version":        {reason: "it is what the API is for", after: versionSecret()},
		"create one of no type":          {reason: "it is Opaque", after: versionSecret(func(s *corev1.Secret) { s.Type = "" })},
		"own one of a version":           {reason: "it goes with its WorkerDeployment", before: versionSecret(), after: versionSecret(owned)},
		"delete one of a version":        {reason: "no release needs it any more", before: versionSecret()},
		"create a token of an account":   {reason: "it would be another one's rights", after: versionSecret(token), refused: true},
		"create one of another type":     {reason: "others read it as theirs", after: versionSecret(another), refused: true},
		"create one without a version":   {reason: "users have such ones", after: versionSecret(unversioned), refused: true},
		"create one without labels":      {reason: "users have such ones", after: versionSecret(bare), refused: true},
		"create one that may change":     {reason: "a rollback is one to its values", after: versionSecret(mutable), refused: true},
		"create one that may change yet": {reason: "it says so itself", after: versionSecret(func(s *corev1.Secret) { s.Immutable = new(false) }), refused: true},
		"own one without a version":      {reason: "it is a user's", before: versionSecret(unversioned), after: versionSecret(unversioned, owned), refused: true},
		"take one without labels":        {reason: "it was a user's", before: versionSecret(bare), after: versionSecret(), refused: true},
		"take one that may change":       {reason: "it was a user's", before: versionSecret(mutable), after: versionSecret(), refused: true},
		"give one up":                    {reason: "nobody would delete it", before: versionSecret(), after: versionSecret(unversioned), refused: true},
		"delete one without a version":   {reason: "it is a user's", before: versionSecret(unversioned), refused: true},
		"delete one without labels":      {reason: "it is a user's", before: versionSecret(bare), refused: true},
		"delete one that may change":     {reason: "it is a user's", before: versionSecret(mutable), refused: true},
		"delete one of another type":     {reason: "it is another's", before: versionSecret(another), refused: true},
	}
}

// validator is a policy as an API server compiles it. The policy has no variables, and no
// messages of its own making.
func validator(t *testing.T, policy admissionv1.ValidatingAdmissionPolicy) validating.Validator {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	options := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	compile := func(expressions []cel.ExpressionAccessor) cel.ConditionEvaluator {
		return compiler.CompileCondition(expressions, options, environment.StoredExpressions)
	}
	var conditions, validations []cel.ExpressionAccessor
	for i := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i]))
	}
	for _, v := range policy.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
	}
	matcher := matchconditions.NewMatcher(compile(conditions), policy.Spec.FailurePolicy, "policy", "validate", policy.Name)
	return validating.NewValidator(compile(validations), matcher, compile(nil), compile(nil), policy.Spec.FailurePolicy, nil)
}

// decisions are a policy's about what a user asks for. There are none about whom it is not for.
func (w secretWrite) decisions(t *testing.T, v validating.Validator, name string) []validating.PolicyDecision {
	t.Helper()
	var object, old runtime.Object // a nil *Secret in one would be an object
	operation := admission.Update
	if w.after != nil {
		object = w.after
	} else {
		operation = admission.Delete
	}
	if w.before != nil {
		old = w.before
	} else {
		operation = admission.Create
	}
	kind, resource := corev1.SchemeGroupVersion.WithKind("Secret"), corev1.SchemeGroupVersion.WithResource("secrets")
	attributes := &admission.VersionedAttributes{
		Attributes:    admission.NewAttributesRecord(object, old, kind, "team-a", "hello-1", resource, "", operation, nil, false, &user.DefaultInfo{Name: name}),
		VersionedKind: kind, VersionedObject: admission.NewLazyObject(object), VersionedOldObject: admission.NewLazyObject(old),
	}
	return v.Validate(t.Context(), resource, attributes, nil, nil, celconfig.RuntimeCELCostBudget, nil).Decisions
}

func TestTheAPIWritesSecretsOfVersionsAlone(t *testing.T) {
	policy := policies(t, workersChart, withAPI()...)[workersAPI]
	rules := []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: []string{"secrets"}},
	}}}
	if diff := cmp.Diff(&admissionv1.MatchResources{ResourceRules: rules}, policy.Spec.MatchConstraints); diff != "" {
		t.Errorf("what the policy is about (-want +got):\n%s", diff)
	}
	v := validator(t, policy)
	for name, tc := range secretWrites() {
		t.Run(name, func(t *testing.T) {
			got := tc.decisions(t, v, workersAPIUser)
			if len(got) != 1 || got[0].Evaluation == validating.EvalError || tc.refused != (got[0].Action == validating.ActionDeny) {
				t.Fatalf("%s: decisions %+v, want refused %t", tc.reason, got, tc.refused)
			}
			if tc.refused && got[0].Reason != metav1.StatusReasonForbidden {
				t.Errorf("refused as %s, want Forbidden", got[0].Reason)
			}
			for _, other := range []string{"jane", "system:serviceaccount:" + namespace + ":spokelet-workers", "system:serviceaccount:team-a:" + workersAPI} {
				if got := tc.decisions(t, v, other); len(got) > 0 {
					t.Errorf("%s is held to it: %+v", other, got)
				}
			}
		})
	}
}
