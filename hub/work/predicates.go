// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/spokelet/spokelet/api/wire"
)

// relevantAnnotations are the annotations of a work that change what its spoke is asked for. None of
// them changes its generation.
var relevantAnnotations = []string{wire.AnnotationSubstitute, wire.AnnotationSuspend, wire.AnnotationDrift}

// relevantAnnotationsChanged passes works of which one of those is another.
func relevantAnnotationsChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()
		return slices.ContainsFunc(relevantAnnotations, func(name string) bool { return before[name] != after[name] })
	}}
}
