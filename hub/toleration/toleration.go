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
	"context"
	_ "embed"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/hub/mutation"
)

const (
	// Forever, or less, as seconds has pods stay until somebody deletes them.
	Forever = -1
	// maxSeconds is what survives the way through JSON, and every clock.
	maxSeconds = 1 << 40
)

//go:embed policy.yaml
var policyYAML []byte

// Install has pods that ask for virtual nodes stay so many seconds on one that is
// lost, where they do not say themselves how long. Forever is no limit. With nil
// they stay as long as on any other node, and what Install made before is removed.
// Only pods that are created from now on are changed. Who asks for 300 s in the
// words of the default cannot be told from who says nothing. It fails with
// mutation.ErrNotServed.
func Install(ctx context.Context, c client.Client, seconds *int64) error {
	objects, err := newPolicy(seconds)
	if err != nil {
		return err
	}
	if seconds == nil {
		return mutation.Remove(ctx, c, objects)
	}
	return mutation.Apply(ctx, c, objects)
}

// newPolicy returns the MutatingAdmissionPolicy and its binding.
func newPolicy(seconds *int64) ([]*unstructured.Unstructured, error) {
	out, err := mutation.Parse(policyYAML)
	if err != nil || seconds == nil {
		return out, err
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
