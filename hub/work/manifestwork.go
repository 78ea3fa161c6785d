// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/workconvert"
)

// manifestWorks is work.open-cluster-management.io/v1 ManifestWork.
func manifestWorks(hubHash string, healthy bool) *kind {
	return &kind{
		name:      wire.DialectManifestWork,
		finalizer: workconvert.ManifestWorkFinalizer,
		failed:    "AppliedManifestWorkFailed",
		failure:   "Failed to apply manifest work",
		maxName:   workconvert.MaxManifestWorkName,
		shared:    true,
		changes:   predicate.LabelChangedPredicate{}, // its anchor bears them
		blank:     func() item { return &manifestWork{hubHash: hubHash, healthy: healthy} },
		of: func(o client.Object) (item, bool) {
			work, ok := o.(*workv1.ManifestWork)
			if !ok {
				return nil, false
			}
			return &manifestWork{ManifestWork: *work, hubHash: hubHash, healthy: healthy}, true
		},
		list: func() client.ObjectList { return &workv1.ManifestWorkList{} },
	}
}

type manifestWork struct {
	workv1.ManifestWork

	hubHash string
	healthy bool
}

func (m *manifestWork) object() client.Object { return &m.ManifestWork }
func (m *manifestWork) wire() wire.Work {
	return workconvert.FromManifestWork(&m.ManifestWork, m.hubHash, m.healthy)
}
func (m *manifestWork) status() any                     { return m.Status }
func (m *manifestWork) conditions() *[]metav1.Condition { return &m.Status.Conditions }

func (m *manifestWork) merge(r wire.WorkStatus, now metav1.Time) {
	m.Status = workconvert.MergeManifestWork(m.Status, r, now)
}

func (m *manifestWork) dropManifests(by int) (left, total int) {
	status := &m.Status.ResourceStatus
	all := status.Manifests
	status.Manifests = dropEntries(all, by, func(c workv1.ManifestCondition) []metav1.Condition { return c.Conditions })
	return len(status.Manifests), len(all)
}
