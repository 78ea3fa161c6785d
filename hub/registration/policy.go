// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"bytes"
	_ "embed"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

//go:embed policy.yaml
var policyYAML []byte

// AdmissionPolicy returns the ValidatingAdmissionPolicy and its binding that
// guard ManagedClusters, to be applied before the hub admits anybody. hubUser is
// who the hub is to the API server, such as
// "system:serviceaccount:spokelet-system:spokelet-hub": the only one who may
// write a cluster's id and pinned UID.
func AdmissionPolicy(hubUser string) ([]client.Object, error) {
	// The name becomes part of a CEL expression.
	if hubUser == "" || strings.ContainsAny(hubUser, `'"\`) || strings.ContainsFunc(hubUser, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("admission policy: user %q of the hub is not a plain user name", hubUser)
	}
	documents := bytes.SplitN(policyYAML, []byte("\n---\n"), 2)
	policy, binding := &admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}
	for i, into := range []client.Object{policy, binding} {
		if err := yaml.UnmarshalStrict(documents[i], into); err != nil {
			return nil, fmt.Errorf("admission policy: %w", err)
		}
	}
	for i := range policy.Spec.Variables {
		if policy.Spec.Variables[i].Name == "hub" {
			policy.Spec.Variables[i].Expression = "'" + hubUser + "'"
		}
	}
	return []client.Object{policy, binding}, nil
}
