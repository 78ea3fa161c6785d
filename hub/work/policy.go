// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	_ "embed"
	"errors"

	"github.com/spokelet/spokelet/hub/mutation"
)

//go:embed policy.yaml
var policyYAML []byte

// installPolicy has the API server put the finalizer on a new work (ADR 0007). One
// before Kubernetes 1.36 cannot; there the reconciler puts it on.
func (w *Works) installPolicy(ctx context.Context) error {
	objects, err := mutation.Parse(policyYAML)
	if err != nil {
		return err
	}
	err = mutation.Apply(ctx, w.client, objects)
	if errors.Is(err, mutation.ErrNotServed) {
		w.log.Info("finalizers of works are written one by one: the API server serves no mutating admission policies")
		return nil
	}
	return err
}
