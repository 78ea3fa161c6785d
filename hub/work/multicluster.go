// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/workconvert"
)

// multicluster is multicluster.x-k8s.io/v1alpha1 Work.
func multicluster() *kind {
	return &kind{
		name:      wire.DialectMulticluster,
		finalizer: v1alpha1.WorkFinalizer,
		failed:    "AppliedWorkFailed",
		failure:   "Failed to apply work",
		blank:     func() item { return &multiclusterWork{} },
		of: func(o client.Object) (item, bool) {
			work, ok := o.(*v1alpha1.Work)
			if !ok {
				return nil, false
			}
			return &multiclusterWork{*work}, true
		},
		list: func() client.ObjectList { return &v1alpha1.WorkList{} },
	}
}

type multiclusterWork struct{ v1alpha1.Work }

func (m *multiclusterWork) object() client.Object           { return &m.Work }
func (m *multiclusterWork) wire() wire.Work                 { return workconvert.FromMulticluster(&m.Work) }
func (m *multiclusterWork) status() any                     { return m.Status }
func (m *multiclusterWork) conditions() *[]metav1.Condition { return &m.Status.Conditions }

func (m *multiclusterWork) merge(r wire.WorkStatus, now metav1.Time) {
	m.Status = workconvert.MergeMulticluster(m.Status, r, now)
}

func (m *multiclusterWork) dropManifests(by int) (left, total int) {
	all := m.Status.ManifestConditions
	m.Status.ManifestConditions = dropEntries(all, by, func(c v1alpha1.ManifestCondition) []metav1.Condition { return c.Conditions })
	return len(m.Status.ManifestConditions), len(all)
}
