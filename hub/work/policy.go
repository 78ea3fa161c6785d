// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

//go:embed policy.yaml
var policyYAML []byte

// policy returns the MutatingAdmissionPolicy that puts the finalizer on a new
// work (ADR 0007), and its binding.
func policy() ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for document := range bytes.SplitSeq(policyYAML, []byte("\n---\n")) {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &obj.Object); err != nil {
			return nil, fmt.Errorf("policy of works: %w", err)
		}
		out = append(out, obj)
	}
	return out, nil
}

// installPolicy applies the policy. An API server before Kubernetes 1.36 does not
// serve the kind; there the reconciler puts the finalizer on.
func (w *Works) installPolicy(ctx context.Context) error {
	objects, err := policy()
	if err != nil {
		return err
	}
	for _, obj := range objects {
		err := w.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(obj), fieldOwner, client.ForceOwnership)
		if meta.IsNoMatchError(err) {
			w.log.Info("finalizers of works are written one by one: the API server serves no mutating admission policies")
			return nil
		}
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
	return nil
}
