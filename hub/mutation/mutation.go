// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mutation installs MutatingAdmissionPolicies, which the API server runs by
// itself, so that nobody waits for the hub. They are served from Kubernetes 1.36 on.
package mutation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// fieldOwner of what the hub writes.
const fieldOwner = client.FieldOwner("spokelet-hub")

// ErrNotServed: the API server serves no mutating admission policies, as before
// Kubernetes 1.36.
var ErrNotServed = errors.New("API server serves no mutating admission policies")

// Parse reads a policy and its binding, in this order, from YAML documents.
func Parse(documents []byte) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for document := range bytes.SplitSeq(documents, []byte("\n---\n")) {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &obj.Object); err != nil {
			return nil, fmt.Errorf("mutating admission policy: %w", err)
		}
		out = append(out, obj)
	}
	return out, nil
}

// Apply writes a policy and its binding. It fails with ErrNotServed.
func Apply(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	for _, obj := range objects {
		err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(obj), fieldOwner, client.ForceOwnership)
		if meta.IsNoMatchError(err) {
			return fmt.Errorf("apply %s: %w", obj.GetKind(), ErrNotServed)
		}
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
	return nil
}

// Remove takes the binding away before the policy that it names. What is not there, or
// not served, is no error.
func Remove(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	for _, obj := range slices.Backward(objects) {
		err := c.Delete(ctx, obj)
		if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
			return fmt.Errorf("delete %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
	return nil
}
