// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package toleration decides how long pods stay on a virtual node whose cluster is
// away.
//
// Kubernetes evicts a pod 300 s after its node became unreachable or not ready: its
// admission plugin DefaultTolerationSeconds gives every pod that says nothing else
// two tolerations with that time. A cluster behind a line that is often cut wants
// longer. Where that is asked for, the hub installs a MutatingAdmissionPolicy that
// replaces the default for pods that ask for virtual nodes, as they are created.
package toleration

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const (
	// fieldOwner of what the hub writes.
	fieldOwner = client.FieldOwner("spokelet-hub")
	// Forever, or less, as seconds has pods stay until somebody deletes them.
	Forever = -1
	// maxSeconds is what survives the way through JSON, and every clock.
	maxSeconds = 1 << 40
)

// ErrNotServed: the API server serves no mutating admission policies, as before
// Kubernetes 1.36. Pods keep the default of 300 s.
var ErrNotServed = errors.New("API server serves no mutating admission policies")

//go:embed policy.yaml
var policyYAML []byte

// Install has pods that ask for virtual nodes stay so many seconds on one that is
// lost, where they do not say themselves how long. Forever is no limit. With nil
// they stay as long as on any other node, and what Install made before is removed.
// Only pods that are created from now on are changed. Who asks for 300 s in the
// words of the default cannot be told from who says nothing. It fails with
// ErrNotServed.
func Install(ctx context.Context, c client.Client, seconds *int64) error {
	objects, err := policy(seconds)
	if err != nil {
		return err
	}
	if seconds == nil {
		return remove(ctx, c, objects)
	}
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

// remove takes the binding away before the policy that it names.
func remove(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	for _, obj := range slices.Backward(objects) {
		err := c.Delete(ctx, obj)
		if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
			return fmt.Errorf("delete %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
	return nil
}

// policy returns the MutatingAdmissionPolicy and its binding.
func policy(seconds *int64) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for document := range bytes.SplitSeq(policyYAML, []byte("\n---\n")) {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &obj.Object); err != nil {
			return nil, fmt.Errorf("policy of tolerations: %w", err)
		}
		out = append(out, obj)
	}
	if seconds == nil {
		return out, nil
	}
	if *seconds > maxSeconds {
		return nil, fmt.Errorf("policy of tolerations: %d seconds are more than %d; use %d for no limit", *seconds, maxSeconds, Forever)
	}
	value := []any{map[string]any{"name": "seconds", "expression": strconv.FormatInt(max(*seconds, Forever), 10)}}
	if err := unstructured.SetNestedSlice(out[0].Object, value, "spec", "variables"); err != nil {
		return nil, fmt.Errorf("policy of tolerations: %w", err)
	}
	return out, nil
}
