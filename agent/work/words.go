// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/conditionrules"
	"github.com/spokelet/spokelet/agent/work/executor"
	"github.com/spokelet/spokelet/agent/work/feedback"
	"github.com/spokelet/spokelet/agent/work/ignorefields"
	"github.com/spokelet/spokelet/api/wire"
)

// conditionShared is on a work that wants other values of an object than another
// work does; it is ours, OCM's agent lets them overwrite each other unsaid.
const conditionShared = "SharedResources"

// maxObjects bounds how many objects a condition names.
const maxObjects = 8

// manifestWorkWords are OCM's, to the letter.
type manifestWorkWords struct{}

func (manifestWorkWords) failure(s *step) (reason, message string) {
	if isIgnoreError(s.err) {
		return "AppliedManifestSSAIgnoreFieldError", "Failed to process ignoreFields: " + describe(s.err, false)
	}
	text := s.failure()
	if isRefusal(s.err) {
		text += fmt.Sprintf(", will try again in %s", permissionRetry)
	}
	return workv1.AppliedManifestFailed, "Failed to apply manifest: " + text
}

// failure says why a step was not taken.
func (s *step) failure() string {
	if unknown, ok := errors.AsType[*UnknownKindError](s.err); ok {
		return describe(unknown, false)
	}
	return describe(s.err, s.isSecret())
}

func (manifestWorkWords) manifest(w *work, o *outcome, seen objectIndex, now metav1.Time) {
	set(&o.conditions, o.applied(w.observed), now)
	if o.at == nil {
		set(&o.conditions, unknown(conditionAvailable, "IncompleteResourceMeta", "Resource meta is incomplete"), now)
		return
	}
	live, known, failure := seen.look(*o.at)
	why := o.unfetched
	if failure != nil {
		why = describe(failure, false)
	}
	switch {
	case failure != nil || why != "" && live == nil:
		set(&o.conditions, unknown(conditionAvailable, "FetchingResourceFailed", "Failed to fetch resource: "+why), now)
	case live != nil:
		set(&o.conditions, metav1.Condition{Type: conditionAvailable, Status: metav1.ConditionTrue, Reason: "ResourceAvailable", Message: "Resource is available"}, now)
	case seen.ended(*o.at):
		set(&o.conditions, finished, now)
	case known || o.failure != "":
		set(&o.conditions, metav1.Condition{Type: conditionAvailable, Status: metav1.ConditionFalse, Reason: "ResourceNotAvailable", Message: "Resource is not available"}, now)
	}
	o.conditions = conditionrules.Prune(o.conditions, w.observed)
	reading := seen.readingOf(*o.at, w.key.String())
	switch {
	case reading == nil:
	case reading.of.generation > w.observed:
		return // for a version that is being applied: what was said of this one stands
	case reading.of.generation < w.observed:
		reading = nil // for a version that is no more, with rules that may be no more
	}
	o.unread = o.reads && reading == nil
	if live != nil && failure == nil {
		o.report(reading, now)
	}
}

// report takes over what was read. What cannot be read now stays as it was.
func (o *outcome) report(r *reading, now metav1.Time) {
	if !o.reads {
		o.values = nil
		set(&o.conditions, (*feedback.Program)(nil).Condition(nil), now)
		return
	}
	if r == nil {
		return
	}
	o.values = r.values
	set(&o.conditions, r.synced, now)
	for _, c := range r.conditions {
		set(&o.conditions, c, now)
	}
}

func (manifestWorkWords) work(w *work, tallies map[string]*tally, seen objectIndex) []metav1.Condition {
	all := []metav1.Condition{w.applied(tallies)}
	if t := tallies[conditionAvailable]; t != nil {
		all = append(all, available(t))
	} else {
		all = append(all, unknown(conditionAvailable, "ResourcesStatusUnknown", "cannot get any available resource "))
	}
	manifests := make([][]metav1.Condition, len(w.outcomes))
	for i := range w.outcomes {
		manifests[i] = w.outcomes[i].conditions
	}
	for _, c := range conditionrules.Aggregate(manifests, w.observed) {
		if c.Type == workv1.WorkComplete && c.Status == metav1.ConditionTrue && w.unread() {
			continue // what is complete for good ends the work, so nothing may be guessed
		}
		all = append(all, c)
	}
	if c, ok := w.sharing(seen); ok {
		all = append(all, c)
	}
	if c, ok := w.contended(seen); ok {
		all = append(all, c)
	}
	if w.leaving != nil {
		all = append(all, metav1.Condition{Type: conditionDeleting, Status: metav1.ConditionTrue, Reason: "WorkDeleting", Message: "ManifestWork is being deleted"})
	}
	return all
}

// unread tells whether rules have yet to see an object; the work is locked.
func (w *work) unread() bool {
	return slices.ContainsFunc(w.outcomes, func(o outcome) bool { return o.unread || o.reads && o.at == nil })
}

// sharing names the objects of which other works want something else.
func (w *work) sharing(seen objectIndex) (metav1.Condition, bool) {
	var shared []string
	for i := range w.outcomes {
		o := &w.outcomes[i]
		if o.at == nil {
			continue
		}
		rivals := seen.rivals(*o.at, w.key.String())
		if len(rivals) == 0 {
			continue
		}
		for j := range rivals {
			rivals[j] = workName(rivals[j])
		}
		slices.Sort(rivals)
		shared = append(shared, fmt.Sprintf("%s is also in %s", o.at, strings.Join(rivals, ", ")))
	}
	if len(shared) == 0 {
		return metav1.Condition{}, false
	}
	return metav1.Condition{
		Type: conditionShared, Status: metav1.ConditionTrue, Reason: "DesiredValuesDiffer",
		Message: printable(firstOf(shared) + "; the value applied last stays"),
	}, true
}

// firstOf joins what is said of objects, and counts those beyond what a condition names.
func firstOf(list []string) string {
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

// isIgnoreError tells that the fields that a work ignores cannot be found.
func isIgnoreError(err error) bool {
	var pointer *ignorefields.PointerError
	var query *ignorefields.QueryError
	return errors.As(err, &pointer) || errors.As(err, &query)
}

// isRefusal tells that the work's executor may not do a step.
func isRefusal(err error) bool {
	var refused *executor.NotAllowedError
	return errors.As(err, &refused)
}
