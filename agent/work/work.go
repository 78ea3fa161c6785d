// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/plan"
	"github.com/spokelet/spokelet/agent/work/record"
	"github.com/spokelet/spokelet/api/wire"
)

// work is one work of the hub, or an anchor whose work the hub does not know.
type work struct {
	key    wire.WorkKey
	policy Policy

	// Of the executor alone; the queue runs one at a time.
	anchor  *record.Anchor
	results map[manifest.ObjectID]result
	// failures in a row, of tried.
	failures  int
	attempted *plan.Spec
	// uid is that of the work that was tried last.
	uid string
	// recordNow: this run brings the anchor up to date.
	recordNow bool
	// anchorSearchedFor is the deletion for which the anchor was looked for.
	anchorSearchedFor *plan.Spec
	// restoreAgain: what was applied before this process could not be looked at whole.
	restoreAgain bool
	// comparedObjects are the objects that are followed without being listed in the anchor.
	comparedObjects map[manifest.ObjectID]struct{}
	// readers are those of one version of the work.
	readersFor *plan.Spec
	readers    map[manifest.ObjectID]*inventory.Reader
	// allowed are nil without an executor.
	allowed *allowedCache

	// anchorChanged is set when somebody else touched the anchor.
	anchorChanged atomic.Bool
	denials       denialBackoff
	reviews       reviewSchedule

	// publishMu serialises what is told of the work: a status composed later is
	// also sent later.
	publishMu sync.Mutex

	mu sync.Mutex
	// All below are guarded by mu.
	spec *plan.Spec
	// unknownSince is since when the hub is known not to know the work.
	unknownSince time.Time
	// observedGeneration is the generation that outcomes are about, concluded whether there
	// are any.
	observedGeneration int64
	outcomesOf         *plan.Spec
	// reported is the last one that the hub was first told of.
	reported *plan.Spec
	outcomes []outcome
	// suspended is what is wanted while nothing is done, nil when that is not so.
	suspended *plan.Spec
	// isObservedOnly: outcomes are of what there is, and not of what was applied here.
	isObservedOnly bool
	// reportsDrift: outcomes say what differs from the manifests.
	reportsDrift bool
	// refusal says why nothing of the work can be looked at.
	refusal string
	// hasCompleteManifest: at least one outcome is complete.
	hasCompleteManifest bool
	// deletion is set while the work is being deleted.
	deletion   *deletionProgress
	conditions []metav1.Condition
	// boundAnchor is the name of the work's anchor, where that is not its own.
	boundAnchor string
}

// outcome is what became of one manifest.
type outcome struct {
	meta workv1.ManifestResourceMeta
	// object is set when the manifest names an object that may be looked at.
	object *manifest.ObjectID
	// reason and failure say the last error, empty when applied.
	reason, failure string
	// warning names what was not applied of it, empty for nothing.
	warning    string
	generation int64
	conditions []metav1.Condition
	// readError says why the object cannot be read.
	readError string
	// hasRules: the manifest has rules. values are what they last reported.
	hasRules bool
	values   []workv1.FeedbackValue
	// isCompared: what differs from the manifest is reported.
	isCompared bool
	// isUnread: the rules have yet to see the object for the first time.
	isUnread bool
}

// deletionProgress is a deletion under way.
type deletionProgress struct {
	remaining int
	failure   string
}

// anchorName is the name of the object that stands for the work.
func (w *work) anchorName() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.boundAnchor != "" {
		return w.boundAnchor
	}
	return w.key.Name
}

// recordKey is the work as its anchor names it.
func (w *work) recordKey() record.Work {
	r := record.Work{Key: w.key, Name: w.anchorName()}
	if d := w.currentSpec(); d != nil {
		r.HubHash, r.Labels = d.HubHash, d.Labels
	}
	return r
}

// isComplete: the rules say that the work is done for good.
func (w *work) isComplete() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return meta.IsStatusConditionTrue(w.conditions, workv1.WorkComplete)
}

// isManifestComplete: the rules say so of one manifest.
func (w *work) isManifestComplete(id manifest.ObjectID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.outcomes {
		if !w.hasCompleteManifest {
			break
		}
		if o := &w.outcomes[i]; o.object != nil && *o.object == id {
			return meta.IsStatusConditionTrue(o.conditions, workv1.WorkComplete)
		}
	}
	return false
}

func (w *work) hasOutcomes() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.outcomesOf != nil
}

func (w *work) currentSpec() *plan.Spec {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.spec
}

func (w *work) lastResult(id manifest.ObjectID) result { return w.results[id] }

func (w *work) setResult(id manifest.ObjectID, r result) {
	if w.results == nil {
		w.results = map[manifest.ObjectID]result{}
	}
	w.results[id] = r
}

// reset forgets what was applied.
func (w *work) reset() {
	w.results = nil
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outcomes, w.conditions, w.outcomesOf, w.suspended, w.isObservedOnly = nil, nil, nil, nil, false
}

// resetStatus forgets what was said of an earlier work of that name, not what was
// applied of it. That there was one stays known: its objects say nothing of how far
// this one has come.
func (w *work) resetStatus() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outcomes, w.conditions, w.deletion, w.suspended, w.hasCompleteManifest, w.isObservedOnly = nil, nil, nil, nil, false, false
}

// recordOutcomes takes what became of every step of one generation.
func (w *work) recordOutcomes(d *plan.Spec, steps []plan.Step, results map[int]result) {
	out := w.buildOutcomes(steps, results)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setOutcomes(d, out)
}

// setOutcomes keeps the outcomes of a generation in the place of those before; w.mu is held.
func (w *work) setOutcomes(d *plan.Spec, out []outcome) {
	inheritConditions(out, w.outcomes)
	w.outcomes, w.observedGeneration, w.outcomesOf, w.deletion, w.refusal = out, d.Generation, d, nil, ""
	w.isObservedOnly, w.reportsDrift = false, false
}

// buildOutcomes is what became of every step.
func (w *work) buildOutcomes(steps []plan.Step, results map[int]result) []outcome {
	out := make([]outcome, len(steps))
	for i := range steps {
		s := &steps[i]
		o := &out[i]
		o.meta = s.Meta()
		if s.Target.Name != "" {
			id := s.Target.ObjectID
			o.object, o.meta.Namespace = &id, id.Namespace
		}
		o.hasRules = s.Reader != nil
		if _, ok := errors.AsType[*manifest.FetchError](s.Error); ok {
			o.readError = manifest.DescribeError(s.Error, s.IsSecret())
			continue
		}
		if s.Error != nil {
			o.reason, o.failure = w.policy.formatter.failure(s)
			continue
		}
		o.generation, o.warning = results[s.Ordinal].generation, results[s.Ordinal].warning
	}
	return out
}

// recordRefusal concludes that a generation cannot be executed at all, if so; what was
// applied before it stays as it is.
func (w *work) recordRefusal(d *plan.Spec) (refused bool) {
	if d.Refusal == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.observedGeneration, w.outcomesOf, w.refusal, w.isObservedOnly = d.Generation, d, manifest.DescribeError(d.Refusal, false), false
	return true
}

// inheritConditions carries conditions over, so that their transition times stay: by
// identity, then by identity without ordinal where that is unique.
func inheritConditions(next, before []outcome) {
	exact := make(map[workv1.ManifestResourceMeta]*outcome, len(before))
	loose := make(map[workv1.ManifestResourceMeta]*outcome, len(before))
	for i := range before {
		o := &before[i]
		exact[o.meta] = o
		m := o.meta
		m.Ordinal = 0
		if _, twice := loose[m]; twice {
			loose[m] = nil
			continue
		}
		loose[m] = o
	}
	for i := range next {
		m := next[i].meta
		o := exact[m]
		if o == nil {
			m.Ordinal = 0
			o = loose[m]
		}
		if o != nil {
			next[i].conditions = append([]metav1.Condition(nil), o.conditions...)
			next[i].values = o.values
		}
	}
}

// recordDeletionProgress notes how far a deletion has come.
func (w *work) recordDeletionProgress(d *plan.Spec, err error) {
	l := &deletionProgress{}
	if w.anchor != nil {
		l.remaining = len(w.anchor.Objects)
	}
	if err != nil {
		l.failure = manifest.DescribeError(err, false)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deletion, w.observedGeneration, w.outcomesOf = l, d.Generation, d
}
