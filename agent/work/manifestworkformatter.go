// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/conditionrules"
	"github.com/spokelet/spokelet/agent/work/feedback"
	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/plan"
	"github.com/spokelet/spokelet/api/wire"
)

// conditionShared is on a work that wants other values of an object than another
// work does; it is ours, OCM's agent lets them overwrite each other unsaid.
const conditionShared = "SharedResources"

// maxObjects bounds how many objects a condition names.
const maxObjects = 8

// manifestWorkFormatter are OCM's, to the letter.
type manifestWorkFormatter struct{}

func (manifestWorkFormatter) failure(s *plan.Step) (reason, message string) {
	if plan.IsIgnoreFieldsError(s.Error) {
		return "AppliedManifestSSAIgnoreFieldError", "Failed to process ignoreFields: " + manifest.DescribeError(s.Error, false)
	}
	text := s.FailureText()
	if plan.IsAccessDenied(s.Error) {
		text += fmt.Sprintf(", will try again in %s", maxDenialDelay)
	}
	return workv1.AppliedManifestFailed, "Failed to apply manifest: " + text
}

func (manifestWorkFormatter) setManifestConditions(w *work, o *outcome, seen objectReader, now metav1.Time) {
	setCondition(&o.conditions, o.appliedCondition(w.observedGeneration), now)
	if o.object == nil {
		setCondition(&o.conditions, unknownCondition(conditionAvailable, "IncompleteResourceMeta", "Resource meta is incomplete"), now)
		return
	}
	live, known, failure := seen.Get(*o.object)
	why := o.readError
	if failure != nil {
		why = manifest.DescribeError(failure, false)
	}
	switch {
	case failure != nil || why != "" && live == nil:
		setCondition(&o.conditions, unknownCondition(conditionAvailable, "FetchingResourceFailed", "Failed to fetch resource: "+why), now)
	case live != nil:
		setCondition(&o.conditions, metav1.Condition{Type: conditionAvailable, Status: metav1.ConditionTrue, Reason: "ResourceAvailable", Message: "Resource is available"}, now)
	case seen.HasEnded(*o.object):
		setCondition(&o.conditions, finishedCondition, now)
	case known || o.failure != "":
		setCondition(&o.conditions, metav1.Condition{Type: conditionAvailable, Status: metav1.ConditionFalse, Reason: "ResourceNotAvailable", Message: "Resource is not available"}, now)
	}
	o.conditions = conditionrules.RemoveStale(o.conditions, w.observedGeneration)
	reading := seen.ReadingOf(*o.object, w.key.String())
	switch {
	case reading == nil:
	case reading.Reader.Generation > w.observedGeneration:
		return // for a version that is being applied: what was said of this one stands
	case reading.Reader.Generation < w.observedGeneration:
		reading = nil // for a version that is no more, with rules that may be no more
	}
	o.isUnread = o.hasRules && reading == nil
	if live != nil && failure == nil {
		o.setReading(reading, now)
	}
}

// setReading takes over what was read. What cannot be read now stays as it was.
func (o *outcome) setReading(r *inventory.Reading, now metav1.Time) {
	if !o.hasRules {
		o.values = nil
		setCondition(&o.conditions, (*feedback.Program)(nil).Condition(nil), now)
		return
	}
	if r == nil {
		return
	}
	o.values = r.Values
	setCondition(&o.conditions, r.FeedbackCondition, now)
	for _, c := range r.Conditions {
		setCondition(&o.conditions, c, now)
	}
}

func (manifestWorkFormatter) workConditions(w *work, tallies map[string]*conditionCounts, seen objectReader) []metav1.Condition {
	all := []metav1.Condition{w.appliedCondition(tallies)}
	if t := tallies[conditionAvailable]; t != nil {
		all = append(all, availableCondition(t))
	} else {
		all = append(all, unknownCondition(conditionAvailable, "ResourcesStatusUnknown", "cannot get any available resource "))
	}
	manifests := make([][]metav1.Condition, len(w.outcomes))
	for i := range w.outcomes {
		manifests[i] = w.outcomes[i].conditions
	}
	for _, c := range conditionrules.Aggregate(manifests, w.observedGeneration) {
		if c.Type == workv1.WorkComplete && c.Status == metav1.ConditionTrue && w.hasUnreadManifest() {
			continue // what is complete for good ends the work, so nothing may be guessed
		}
		all = append(all, c)
	}
	if c, ok := w.sharedCondition(seen); ok {
		all = append(all, c)
	}
	if c, ok := w.contendedCondition(seen); ok {
		all = append(all, c)
	}
	if w.deletion != nil {
		all = append(all, metav1.Condition{Type: conditionDeleting, Status: metav1.ConditionTrue, Reason: "WorkDeleting", Message: "ManifestWork is being deleted"})
	}
	return all
}

// hasUnreadManifest tells whether rules have yet to see an object; the work is locked.
func (w *work) hasUnreadManifest() bool {
	return slices.ContainsFunc(w.outcomes, func(o outcome) bool { return o.isUnread || o.hasRules && o.object == nil })
}

// sharedCondition names the objects of which other works want something else.
func (w *work) sharedCondition(seen objectReader) (metav1.Condition, bool) {
	var shared []string
	for i := range w.outcomes {
		o := &w.outcomes[i]
		if o.object == nil {
			continue
		}
		rivals := seen.ConflictingWorks(*o.object, w.key.String())
		if len(rivals) == 0 {
			continue
		}
		for j := range rivals {
			rivals[j] = workName(rivals[j])
		}
		slices.Sort(rivals)
		shared = append(shared, fmt.Sprintf("%s is also in %s", o.object, strings.Join(rivals, ", ")))
	}
	if len(shared) == 0 {
		return metav1.Condition{}, false
	}
	return metav1.Condition{
		Type: conditionShared, Status: metav1.ConditionTrue, Reason: "DesiredValuesDiffer",
		Message: manifest.Printable(joinFirst(shared) + "; the value applied last stays"),
	}, true
}

// joinFirst joins what is said of objects, and counts those beyond what a condition names.
func joinFirst(list []string) string {
	if n := len(list) - maxObjects; n > 0 {
		return fmt.Sprintf("%s; and %d more", strings.Join(list[:maxObjects], "; "), n)
	}
	return strings.Join(list, "; ")
}

// workName is a key as people know it.
func workName(key string) string {
	k, err := wire.ParseWorkKey(key)
	if err != nil {
		return key
	}
	if k.Dialect == wire.DialectManifestWork {
		return "ManifestWork " + k.Name
	}
	return "Work " + k.Name
}
