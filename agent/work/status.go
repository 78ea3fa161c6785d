// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"cmp"
	"fmt"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/plan"
	"github.com/spokelet/spokelet/api/wire"
)

// Condition types of manifests and works.
const (
	conditionApplied   = "Applied"
	conditionAvailable = "Available"
	conditionHealthy   = "Healthy"
	conditionDeleting  = "Deleting"
)

// objectReader is what a status is composed from: a table as it is at that moment.
type objectReader interface {
	Get(manifest.ObjectID) (live *inventory.ObservedObject, known bool, failure error)
	// HasEnded: it is gone because it had ended.
	HasEnded(manifest.ObjectID) bool
	// ReadingOf is what a work's rules read, rivals who else wants other values.
	ReadingOf(id manifest.ObjectID, work string) *inventory.Reading
	ConflictingWorks(id manifest.ObjectID, work string) []string
	// ContendedBy says who changes it each time it was repaired, empty for nobody.
	ContendedBy(manifest.ObjectID) string
}

// statusFormatter are what a dialect says of manifests and works.
type statusFormatter interface {
	// failure says why a step was not taken.
	failure(s *plan.Step) (reason, message string)
	// setManifestConditions brings the conditions of one manifest up to date; the work is locked.
	setManifestConditions(w *work, o *outcome, seen objectReader, now metav1.Time)
	// workConditions returns the conditions of the work, in order; it is locked.
	workConditions(w *work, tallies map[string]*conditionCounts, seen objectReader) []metav1.Condition
}

// status composes what the hub is told; ok is false when there is nothing to tell.
func (w *work) status(seen objectReader, now metav1.Time) (s wire.WorkStatus, uid string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.outcomesOf == nil && w.suspended == nil {
		return wire.WorkStatus{}, "", false
	}
	uid, s.ObservedGeneration = w.statusSubject()
	unapplied := w.hasNoApplied()
	tallies := map[string]*conditionCounts{}
	w.hasCompleteManifest = false
	for i := range w.outcomes {
		o := &w.outcomes[i]
		w.policy.formatter.setManifestConditions(w, o, seen, now)
		if unapplied {
			meta.RemoveStatusCondition(&o.conditions, conditionApplied)
		}
		w.setDriftCondition(o, seen, now)
		for _, c := range o.conditions {
			if tallies[c.Type] == nil {
				tallies[c.Type] = &conditionCounts{}
			}
			tallies[c.Type].add(c)
		}
		w.hasCompleteManifest = w.hasCompleteManifest || meta.IsStatusConditionTrue(o.conditions, workv1.WorkComplete)
		s.Manifests = append(s.Manifests, workv1.ManifestCondition{
			ResourceMeta: o.meta, Conditions: append([]metav1.Condition(nil), o.conditions...), StatusFeedbacks: workv1.StatusFeedbackResult{Values: o.values},
		})
	}
	w.setConditions(w.adjustConditions(w.policy.formatter.workConditions(w, tallies, seen), tallies), now)
	s.Conditions = append(s.Conditions, w.conditions...)
	return s, uid, true
}

// appliedCondition is the Applied condition of a manifest.
func (o *outcome) appliedCondition(generation int64) metav1.Condition {
	c := metav1.Condition{
		Type: conditionApplied, Status: metav1.ConditionTrue, Reason: "AppliedManifestComplete",
		Message: "Apply manifest complete", ObservedGeneration: generation,
	}
	switch {
	case o.failure != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, o.reason, o.failure
	case o.warning != "":
		c.Message += "; " + manifest.Printable(o.warning)
	}
	return c
}

// multiclusterFormatter are those of the multicluster Work API.
type multiclusterFormatter struct{}

func (multiclusterFormatter) failure(s *plan.Step) (reason, message string) {
	return workv1.AppliedManifestFailed, "Failed to apply manifest: " + s.FailureText()
}

func (multiclusterFormatter) setManifestConditions(_ *work, o *outcome, seen objectReader, now metav1.Time) {
	applied := o.appliedCondition(o.generation)
	if o.failure != "" {
		applied.ObservedGeneration = 0
	}
	setCondition(&o.conditions, applied, now)
	if o.object == nil {
		setCondition(&o.conditions, unknownCondition(conditionAvailable, "IncompleteResourceMeta", "Resource meta is incomplete"), now)
		setCondition(&o.conditions, unknownCondition(conditionHealthy, "Unknown", "Resource meta is incomplete"), now)
		return
	}
	live, known, failure := seen.Get(*o.object)
	switch {
	case failure != nil:
		message := "Failed to fetch resource: " + manifest.DescribeError(failure, false)
		setCondition(&o.conditions, unknownCondition(conditionAvailable, "FetchingResourceFailed", message), now)
		setCondition(&o.conditions, unknownCondition(conditionHealthy, "Unknown", message), now)
	case live != nil:
		setCondition(&o.conditions, metav1.Condition{Type: conditionAvailable, Status: metav1.ConditionTrue, Reason: "ResourceAvailable", Message: "Resource is available"}, now)
		setCondition(&o.conditions, objectHealthCondition(live.Health), now)
	case seen.HasEnded(*o.object):
		setCondition(&o.conditions, finishedCondition, now)
		setCondition(&o.conditions, objectHealthCondition(inventory.Health{Status: status.CurrentStatus, Message: finishedCondition.Message}), now)
	case known || o.failure != "":
		setCondition(&o.conditions, metav1.Condition{Type: conditionAvailable, Status: metav1.ConditionFalse, Reason: "ResourceNotAvailable", Message: "Resource is not available"}, now)
		setCondition(&o.conditions, metav1.Condition{Type: conditionHealthy, Status: metav1.ConditionFalse, Reason: "NotFound", Message: "Resource is not available"}, now)
	}
}

// finishedCondition is said of an object that is gone because it had ended by itself.
var finishedCondition = metav1.Condition{Type: conditionAvailable, Status: metav1.ConditionTrue, Reason: "ResourceFinished", Message: "Resource has finished and was removed by Kubernetes"}

func unknownCondition(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: reason, Message: message}
}

// objectHealthCondition maps kstatus to a condition; the reason is its status.
func objectHealthCondition(h inventory.Health) metav1.Condition {
	c := metav1.Condition{Type: conditionHealthy, Status: metav1.ConditionFalse, Reason: string(h.Status), Message: manifest.Printable(h.Message)}
	switch h.Status {
	case status.CurrentStatus:
		c.Status = metav1.ConditionTrue
	case status.UnknownStatus:
		c.Status = metav1.ConditionUnknown
	case status.InProgressStatus, status.FailedStatus, status.TerminatingStatus, status.NotFoundStatus:
	}
	return c
}

// conditionCounts counts the manifests' conditions of one type.
type conditionCounts struct {
	total, falseCount, unknownCount int
	reasons                         map[string]int
}

func (t *conditionCounts) add(c metav1.Condition) {
	t.total++
	switch c.Status {
	case metav1.ConditionFalse:
		t.falseCount++
	case metav1.ConditionUnknown:
		t.unknownCount++
	case metav1.ConditionTrue:
	}
	if t.reasons == nil {
		t.reasons = map[string]int{}
	}
	t.reasons[c.Reason]++
}

func (multiclusterFormatter) workConditions(w *work, tallies map[string]*conditionCounts, seen objectReader) []metav1.Condition {
	all := []metav1.Condition{w.appliedCondition(tallies), availableCondition(tallies[conditionAvailable]), healthyCondition(tallies[conditionHealthy])}
	if c, ok := w.contendedCondition(seen); ok {
		all = append(all, c)
	}
	if w.deletion != nil {
		all = append(all, w.deletion.condition())
	}
	return all
}

// appliedCondition is the Applied condition of the work.
func (w *work) appliedCondition(tallies map[string]*conditionCounts) metav1.Condition {
	names := w.policy.Conditions
	applied := metav1.Condition{Type: conditionApplied, Status: metav1.ConditionTrue, Reason: names.AppliedReason, Message: names.AppliedMessage}
	if t := tallies[conditionApplied]; t != nil && t.falseCount > 0 || w.refusal != "" {
		applied.Status, applied.Reason, applied.Message = metav1.ConditionFalse, names.FailedReason, names.FailedMessage
	}
	if w.refusal != "" {
		applied.Message += ": " + w.refusal
	}
	return applied
}

// setConditions brings the conditions of the work up to date, which are about the generation
// that was looked at unless they say another; w.mu is held.
func (w *work) setConditions(all []metav1.Condition, now metav1.Time) {
	kept := w.conditions
	w.conditions = nil
	for _, c := range all {
		c.ObservedGeneration = cmp.Or(c.ObservedGeneration, w.observedGeneration)
		for _, old := range kept {
			if old.Type == c.Type {
				w.conditions = append(w.conditions, old)
			}
		}
		setCondition(&w.conditions, c, now)
	}
}

func availableCondition(t *conditionCounts) metav1.Condition {
	c := metav1.Condition{Type: conditionAvailable, Status: metav1.ConditionTrue, Reason: "ResourcesAvailable", Message: "All resources are available"}
	switch {
	case t == nil:
	case t.falseCount > 0:
		c.Status, c.Reason = metav1.ConditionFalse, "ResourcesNotAvailable"
		c.Message = fmt.Sprintf("%d of %d resources are not available", t.falseCount, t.total)
	case t.unknownCount > 0:
		c.Status, c.Reason = metav1.ConditionUnknown, "ResourcesStatusUnknown"
		c.Message = fmt.Sprintf("%d of %d resources have unknown status", t.unknownCount, t.total)
	}
	return c
}

// healthyCondition says of a work the worst that is true of one of its objects.
func healthyCondition(t *conditionCounts) metav1.Condition {
	c := metav1.Condition{Type: conditionHealthy, Status: metav1.ConditionTrue, Reason: string(status.CurrentStatus), Message: "All resources are current"}
	if t == nil {
		return c
	}
	for _, worst := range []status.Status{status.FailedStatus, status.NotFoundStatus, status.TerminatingStatus, status.InProgressStatus} {
		if n := t.reasons[string(worst)]; n > 0 {
			c.Status, c.Reason = metav1.ConditionFalse, string(worst)
			c.Message = fmt.Sprintf("%d of %d resources are %s", n, t.total, worst)
			return c
		}
	}
	if t.unknownCount > 0 {
		c.Status, c.Reason = metav1.ConditionUnknown, string(status.UnknownStatus)
		c.Message = fmt.Sprintf("%d of %d resources have unknown status", t.unknownCount, t.total)
	}
	return c
}

func (l *deletionProgress) condition() metav1.Condition {
	c := metav1.Condition{Type: conditionDeleting, Status: metav1.ConditionTrue, Reason: "WorkDeleting"}
	c.Message = fmt.Sprintf("Work is being deleted: %d resources remain", l.remaining)
	if l.failure != "" {
		c.Message += ": " + l.failure
	}
	return c
}

// setCondition replaces a condition; its transition time moves with its status alone.
func setCondition(conditions *[]metav1.Condition, c metav1.Condition, now metav1.Time) {
	c.LastTransitionTime = now
	for i := range *conditions {
		old := &(*conditions)[i]
		if old.Type != c.Type {
			continue
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		*old = c
		return
	}
	*conditions = append(*conditions, c)
}
