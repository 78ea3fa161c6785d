// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

func TestAdmissionPolicy(t *testing.T) {
	t.Run("The policy fails closed and names the hub", func(t *testing.T) {
		objects, err := AdmissionPolicy("system:serviceaccount:spokelet-system:spokelet-hub")
		if err != nil {
			t.Fatal(err)
		}
		policy, ok := objects[0].(*admissionv1.ValidatingAdmissionPolicy)
		if !ok {
			t.Fatalf("first object is %T", objects[0])
		}
		if *policy.Spec.FailurePolicy != admissionv1.Fail {
			t.Errorf("failure policy %s", *policy.Spec.FailurePolicy)
		}
		if got, want := policy.Spec.Variables[0].Expression, "'system:serviceaccount:spokelet-system:spokelet-hub'"; got != want {
			t.Errorf("hub is %s, want %s", got, want)
		}
		binding, ok := objects[1].(*admissionv1.ValidatingAdmissionPolicyBinding)
		if !ok || binding.Spec.PolicyName != policy.Name || binding.Spec.ValidationActions[0] != admissionv1.Deny {
			t.Errorf("binding %+v does not deny by the policy", objects[1])
		}
	})

	for name, user := range map[string]string{
		"empty": "", "with a quote": "a' == 'a", "with a backslash": `a\`, "with a line end": "a\nb", "that is not ASCII": "ä",
	} {
		t.Run("A user name "+name+" does not become CEL", func(t *testing.T) {
			if objects, err := AdmissionPolicy(user); err == nil {
				t.Errorf("AdmissionPolicy(%q) = %v", user, objects)
			}
		})
	}
}
