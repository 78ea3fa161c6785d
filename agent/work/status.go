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

	"github.com/spokelet/spokelet/api/wire"
)

// Condition types of manifests and works.
const (
	conditionApplied   = "Applied"
	conditionAvailable = "Available"
	conditionHealthy   = "Healthy"
	conditionDeleting  = "Deleting"
)

// objectIndex is what a status is composed from: a table as it is at that moment.
type objectIndex interface {
	look(objectID) (live *sighting, known bool, failure error)
	// ended: it is gone because it had ended.
	ended(objectID) bool
	// readingOf is what a work's rules read, rivals who else wants other values.
	readingOf(id objectID, work string) *reading
	rivals(id objectID, work string) []string
	// contended says who changes it each time it was repaired, empty for nobody.
	contended(objectID) string
}

// words are what a dialect says of manifests and works.
type words interface {
	// failure says why a step was not taken.
	failure(s *step) (reason, message string)
	// manifest brings the conditions of one manifest up to date; the work is locked.
	manifest(w *work, o *outcome, seen objectIndex, now metav1.Time)
	// work returns the conditions of the work, in order; it is locked.
	work(w *work, tallies map[string]*tally, seen objectIndex) []metav1.Condition
}

// status composes what the hub is told; ok is false when there is nothing to tell.
func (w *work) status(seen objectIndex, now metav1.Time) (s wire.WorkStatus, uid string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.concluded == nil && w.suspended == nil {
		return wire.WorkStatus{}, "", false
	}
	uid, s.ObservedGeneration = w.about()
	unapplied := w.unapplied()
	tallies := map[string]*tally{}
	w.someFinished = false
	for i := range w.outcomes {
		o := &w.outcomes[i]
		w.policy.words.manifest(w, o, seen, now)
		if unapplied {
			meta.RemoveStatusCondition(&o.conditions, conditionApplied)
		}
		w.drift(o, seen, now)
		for _, c := range o.conditions {
			if tallies[c.Type] == nil {
				tallies[c.Type] = &tally{}
			}
			tallies[c.Type].add(c)
		}
		w.someFinished = w.someFinished || meta.IsStatusConditionTrue(o.conditions, workv1.WorkComplete)
		s.Manifests = append(s.Manifests, workv1.ManifestCondition{
			ResourceMeta: o.meta, Conditions: append([]metav1.Condition(nil), o.conditions...), StatusFeedbacks: workv1.StatusFeedbackResult{Values: o.values},
		})
	}
	w.summarize(w.suspension(w.policy.words.work(w, tallies, seen), tallies), now)
	s.Conditions = append(s.Conditions, w.conditions...)
	return s, uid, true
}

// applied is the Applied condition of a manifest.
func (o *outcome) applied(generation int64) metav1.Condition {
	c := metav1.Condition{
		Type: conditionApplied, Status: metav1.ConditionTrue, Reason: "AppliedManifestComplete",
		Message: "Apply manifest complete", ObservedGeneration: generation,
	}
	switch {
	case o.failure != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, o.reason, o.failure
	case o.remark != "":
		c.Message += "; " + printable(o.remark)
	}
	return c
}

// multiclusterWords are those of the multicluster Work API.
type multiclusterWords struct{}

func (multiclusterWords) failure(s *step) (reason, message string) {
	return workv1.AppliedManifestFailed, "Failed to apply manifest: " + s.failure()
}

func (s *step) isSecret() bool { return s.gvk.Group == "" && s.gvk.Kind == "Secret" }

func (multiclusterWords) manifest(_ *work, o *outcome, seen objectIndex, now metav1.Time) {
	applied := o.applied(o.generation)
	if o.failure != "" {
		applied.ObservedGeneration = 0
	}
	set(&o.conditions, applied, now)
	if o.at == nil {
		set(&o.conditions, unknown(conditionAvailable, "IncompleteResourceMeta", "Resource meta is incomplete"), now)
		set(&o.conditions, unknown(conditionHealthy, "Unknown", "Resource meta is incomplete"), now)
		return
	}
	live, known, failure := seen.look(*o.at)
	switch {
	case failure != nil:
		message := "Failed to fetch resource: " + describe(failure, false)
		set(&o.conditions, unknown(conditionAvailable, "FetchingResourceFailed", message), now)
		set(&o.conditions, unknown(conditionHealthy, "Unknown", message), now)
	case live != nil:
		set(&o.conditions, metav1.Condition{Type: conditionAvailable, Status: metav1.ConditionTrue, Reason: "ResourceAvailable", Message: "Resource is available"}, now)
		set(&o.conditions, healthy(live.health), now)
	case seen.ended(*o.at):
		set(&o.conditions, finished, now)
		set(&o.conditions, healthy(health{status: status.CurrentStatus, message: finished.Message}), now)
	case known || o.failure != "":
		set(&o.conditions, metav1.Condition{Type: conditionAvailable, Status: metav1.ConditionFalse, Reason: "ResourceNotAvailable", Message: "Resource is not available"}, now)
		set(&o.conditions, metav1.Condition{Type: conditionHealthy, Status: metav1.ConditionFalse, Reason: "NotFound", Message: "Resource is not available"}, now)
	}
}

// finished is said of an object that is gone because it had ended by itself.
var finished = metav1.Condition{Type: conditionAvailable, Status: metav1.ConditionTrue, Reason: "ResourceFinished", Message: "Resource has finished and was removed by Kubernetes"}

func unknown(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: reason, Message: message}
}

// healthy maps kstatus to a condition; the reason is its status.
func healthy(h health) metav1.Condition {
	c := metav1.Condition{Type: conditionHealthy, Status: metav1.ConditionFalse, Reason: string(h.status), Message: printable(h.message)}
	switch h.status {
	case status.CurrentStatus:
		c.Status = metav1.ConditionTrue
	case status.UnknownStatus:
		c.Status = metav1.ConditionUnknown
	case status.InProgressStatus, status.FailedStatus, status.TerminatingStatus, status.NotFoundStatus:
	}
	return c
}

// tally counts the manifests' conditions of one type.
type tally struct {
	total, bad, unknown int
	reasons             map[string]int
}

func (t *tally) add(c metav1.Condition) {
	t.total++
	switch c.Status {
	case metav1.ConditionFalse:
		t.bad++
	case metav1.ConditionUnknown:
		t.unknown++
	case metav1.ConditionTrue:
	}
	if t.reasons == nil {
		t.reasons = map[string]int{}
	}
	t.reasons[c.Reason]++
}

func (multiclusterWords) work(w *work, tallies map[string]*tally, seen objectIndex) []metav1.Condition {
	all := []metav1.Condition{w.applied(tallies), available(tallies[conditionAvailable]), overall(tallies[conditionHealthy])}
	if c, ok := w.contended(seen); ok {
		all = append(all, c)
	}
	if w.leaving != nil {
		all = append(all, w.leaving.condition())
	}
	return all
}

// applied is the Applied condition of the work.
func (w *work) applied(tallies map[string]*tally) metav1.Condition {
	names := w.policy.Conditions
	applied := metav1.Condition{Type: conditionApplied, Status: metav1.ConditionTrue, Reason: names.AppliedReason, Message: names.AppliedMessage}
	if t := tallies[conditionApplied]; t != nil && t.bad > 0 || w.refused != "" {
		applied.Status, applied.Reason, applied.Message = metav1.ConditionFalse, names.FailedReason, names.FailedMessage
	}
	if w.refused != "" {
		applied.Message += ": " + w.refused
	}
	return applied
}

// summarize brings the conditions of the work up to date, which are about the generation
// that was looked at unless they say another; w.mu is held.
func (w *work) summarize(all []metav1.Condition, now metav1.Time) {
	kept := w.conditions
	w.conditions = nil
	for _, c := range all {
		c.ObservedGeneration = cmp.Or(c.ObservedGeneration, w.observed)
		for _, old := range kept {
			if old.Type == c.Type {
				w.conditions = append(w.conditions, old)
			}
		}
		set(&w.conditions, c, now)
	}
}

func available(t *tally) metav1.Condition {
	c := metav1.Condition{Type: conditionAvailable, Status: metav1.ConditionTrue, Reason: "ResourcesAvailable", Message: "All resources are available"}
	switch {
	case t == nil:
	case t.bad > 0:
		c.Status, c.Reason = metav1.ConditionFalse, "ResourcesNotAvailable"
		c.Message = fmt.Sprintf("%d of %d resources are not available", t.bad, t.total)
	case t.unknown > 0:
		c.Status, c.Reason = metav1.ConditionUnknown, "ResourcesStatusUnknown"
		c.Message = fmt.Sprintf("%d of %d resources have unknown status", t.unknown, t.total)
	}
	return c
}

// overall says of a work the worst that is true of one of its objects.
func overall(t *tally) metav1.Condition {
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
	if t.unknown > 0 {
		c.Status, c.Reason = metav1.ConditionUnknown, string(status.UnknownStatus)
		c.Message = fmt.Sprintf("%d of %d resources have unknown status", t.unknown, t.total)
	}
	return c
}

func (l *leaving) condition() metav1.Condition {
	c := metav1.Condition{Type: conditionDeleting, Status: metav1.ConditionTrue, Reason: "WorkDeleting"}
	c.Message = fmt.Sprintf("Work is being deleted: %d resources remain", l.remaining)
	if l.failure != "" {
		c.Message += ": " + l.failure
	}
	return c
}

// set replaces a condition; its transition time moves with its status alone.
func set(conditions *[]metav1.Condition, c metav1.Condition, now metav1.Time) {
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
