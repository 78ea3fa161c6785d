// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"

	syncv1alpha1 "github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

// terminationCheck tells deletions of objects from the end of their namespace or definition,
// which deletes all objects one by one.
type terminationCheck struct {
	// running has one element while a check runs: callers that wait use its result, or give
	// up with their context.
	running chan struct{}
	// checkedAt is when the last check began, problem its result. They belong to the caller
	// that has put the element into running.
	checkedAt time.Time
	problem   *wire.ShareProblem
}

// check returns why a deletion that was observed at a time does not count; nil when it does.
func (p *terminationCheck) check(ctx context.Context, s *share, spec *wire.Share, seen time.Time) (*wire.ShareProblem, error) {
	select {
	case p.running <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-p.running }()
	if p.checkedAt.After(seen) {
		return p.problem, nil
	}
	now := time.Now()
	problem, err := s.engine.checkTermination(ctx, spec)
	if err != nil {
		return nil, err
	}
	p.checkedAt, p.problem = now, problem
	return problem, nil
}

// checkTermination returns which of namespace and definition is being deleted, or was.
func (e *Engine) checkTermination(ctx context.Context, spec *wire.Share) (*wire.ShareProblem, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	name := definitionName(spec)
	list, err := e.cfg.Definitions.Resource(definitions()).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("definition %s: %w", name, err)
	}
	if len(list.Items) == 0 {
		return clusterProblem(syncv1alpha1.ReasonDefinitionMissing, "definition %s does not exist", name), nil
	}
	if list.Items[0].GetDeletionTimestamp() != nil {
		return clusterProblem(syncv1alpha1.ReasonDefinitionNotReady, "definition %s is being deleted", name), nil
	}
	namespace, err := e.cfg.Objects.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Get(ctx, spec.SpokeNamespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return clusterProblem(syncv1alpha1.ReasonNamespaceMissing, "namespace %q does not exist", spec.SpokeNamespace), nil
	case apierrors.IsForbidden(err):
		// The right goes with the namespace.
		return clusterProblem(syncv1alpha1.ReasonRightsMissing, "namespace %q cannot be read", spec.SpokeNamespace), nil
	case err != nil:
		return nil, fmt.Errorf("namespace %s: %w", spec.SpokeNamespace, err)
	}
	return namespaceTermination(namespace), nil
}

func namespaceTermination(namespace *unstructured.Unstructured) *wire.ShareProblem {
	if namespace.GetDeletionTimestamp() == nil {
		return nil
	}
	return clusterProblem(syncv1alpha1.ReasonNamespaceTerminating, "namespace %q is being deleted", namespace.GetName())
}
