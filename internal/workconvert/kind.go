// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workconvert

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

// Work is a stored work of any API.
type Work interface {
	// Object is what is read and written.
	Object() client.Object
	// Wire is what the agent is sent.
	Wire() wire.Work
	// WithoutSpec returns a copy without spec, whose status may be replaced.
	WithoutSpec() Work
	StatusMerger
}

// StatusMerger has the status of a work.
type StatusMerger interface {
	// Status is a copy; what it refers to is not written to.
	Status() any
	// Conditions are the work's own.
	Conditions() *[]metav1.Condition
	// Merge merges a report into the status, and leaves what was there as it was.
	Merge(r wire.WorkStatus, now metav1.Time)
	// DropManifests leaves manifests out of the status until its JSON is shorter by so
	// many bytes, or nothing is left of them.
	DropManifests(by int) (left, total int)
}

// Kind is what tells the works of one API from those of another.
type Kind struct {
	// Name is the first part of a work's key.
	Name string
	// Finalizer keeps a work until its objects are gone from the spoke.
	Finalizer string
	// FailedReason is the reason of Applied for a work that cannot be sent, and
	// FailedMessage what its message begins with.
	FailedReason, FailedMessage string
	// MaxName is the length of the longest name that can be served; 0 is any.
	MaxName int

	New     func() Work
	NewList func() client.ObjectList
	// Wrap is a work that somebody else has: a copy, for all but what it refers to.
	Wrap func(client.Object) (Work, bool)
}

// ManifestWorks are those of work.open-cluster-management.io/v1.
func ManifestWorks(hubHash string, healthy bool) Kind {
	return Kind{
		Name:          wire.DialectManifestWork,
		Finalizer:     ManifestWorkFinalizer,
		FailedReason:  "AppliedManifestWorkFailed",
		FailedMessage: "Failed to apply manifest work",
		MaxName:       MaxManifestWorkName,
		New:           func() Work { return &manifestWork{hubHash: hubHash, healthy: healthy} },
		NewList:       func() client.ObjectList { return &workv1.ManifestWorkList{} },
		Wrap: func(o client.Object) (Work, bool) {
			work, ok := o.(*workv1.ManifestWork)
			if !ok {
				return nil, false
			}
			return &manifestWork{ManifestWork: *work, hubHash: hubHash, healthy: healthy}, true
		},
	}
}

// MulticlusterWorks are those of multicluster.x-k8s.io/v1alpha1.
func MulticlusterWorks() Kind {
	return Kind{
		Name:          wire.DialectMulticluster,
		Finalizer:     v1alpha1.WorkFinalizer,
		FailedReason:  "AppliedWorkFailed",
		FailedMessage: "Failed to apply work",
		New:           func() Work { return &multiclusterWork{} },
		NewList:       func() client.ObjectList { return &v1alpha1.WorkList{} },
		Wrap: func(o client.Object) (Work, bool) {
			work, ok := o.(*v1alpha1.Work)
			if !ok {
				return nil, false
			}
			return &multiclusterWork{*work}, true
		},
	}
}

// FailedCondition is Applied of a work that cannot be sent.
func (k *Kind) FailedCondition(work client.Object, why error) metav1.Condition {
	return metav1.Condition{
		Type: workv1.WorkApplied, Status: metav1.ConditionFalse, Reason: k.FailedReason,
		Message: k.FailedMessage + ": " + why.Error(), ObservedGeneration: work.GetGeneration(),
	}
}

// ValidateName refuses the name of a work whose anchor can have no name.
func (k *Kind) ValidateName(name string) error {
	if k.MaxName == 0 || len(name) <= k.MaxName {
		return nil
	}
	return fmt.Errorf("its name has %d characters, more than %d leave no room for the hub's hash in the name of its AppliedManifestWork",
		len(name), k.MaxName)
}

type manifestWork struct {
	workv1.ManifestWork

	hubHash string
	healthy bool
}

func (m *manifestWork) Object() client.Object { return &m.ManifestWork }
func (m *manifestWork) Wire() wire.Work {
	return FromManifestWork(&m.ManifestWork, m.hubHash, m.healthy)
}
func (m *manifestWork) Status() any                     { return m.ManifestWork.Status }
func (m *manifestWork) Conditions() *[]metav1.Condition { return &m.ManifestWork.Status.Conditions }

func (m *manifestWork) Merge(r wire.WorkStatus, now metav1.Time) {
	m.ManifestWork.Status = MergeManifestWork(m.ManifestWork.Status, r, now)
}

func (m *manifestWork) WithoutSpec() Work {
	out := *m
	out.Spec = workv1.ManifestWorkSpec{}
	return &out
}

func (m *manifestWork) DropManifests(by int) (left, total int) {
	status := &m.ManifestWork.Status.ResourceStatus
	all := status.Manifests
	status.Manifests = dropEntries(all, by, func(c workv1.ManifestCondition) []metav1.Condition { return c.Conditions })
	return len(status.Manifests), len(all)
}

type multiclusterWork struct{ v1alpha1.Work }

func (m *multiclusterWork) Object() client.Object           { return &m.Work }
func (m *multiclusterWork) Wire() wire.Work                 { return FromMulticluster(&m.Work) }
func (m *multiclusterWork) Status() any                     { return m.Work.Status }
func (m *multiclusterWork) Conditions() *[]metav1.Condition { return &m.Work.Status.Conditions }

func (m *multiclusterWork) Merge(r wire.WorkStatus, now metav1.Time) {
	m.Work.Status = MergeMulticluster(m.Work.Status, r, now)
}

func (m *multiclusterWork) WithoutSpec() Work {
	out := *m
	out.Spec = v1alpha1.WorkSpec{}
	return &out
}

func (m *multiclusterWork) DropManifests(by int) (left, total int) {
	all := m.Work.Status.ManifestConditions
	m.Work.Status.ManifestConditions = dropEntries(all, by, func(c v1alpha1.ManifestCondition) []metav1.Condition { return c.Conditions })
	return len(m.Work.Status.ManifestConditions), len(all)
}
