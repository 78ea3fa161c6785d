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

	"github.com/spokelet/spokelet/api/wire"
)

// work is one work of the hub, or an anchor whose work the hub does not know.
type work struct {
	key    wire.WorkKey
	policy Policy

	// Of the executor alone; the queue runs one at a time.
	anchor  *anchor
	results map[objectID]result
	// failures in a row, of tried.
	failures int
	tried    *desired
	// uid is that of the work that was tried last.
	uid string
	// recording: this run brings the anchor up to date.
	recording bool
	// sought is the deletion for which the anchor was looked for.
	sought *desired
	// recallAgain: what was applied before this process could not be looked at whole.
	recallAgain bool
	// compared are the objects that are followed without being listed in the anchor.
	compared map[objectID]struct{}
	// readers are those of one version of the work.
	readersOf *desired
	readers   map[objectID]*reader
	// permits are nil without an executor.
	permits *permits

	// shaken is set when somebody else touched the anchor.
	shaken  atomic.Bool
	denied  denied
	reviews reviews

	// telling serialises what is told of the work: a status composed later is
	// also sent later.
	telling sync.Mutex

	mu sync.Mutex
	// All below are guarded by mu.
	want *desired
	// orphaned is since when the hub is known not to know the work.
	orphaned time.Time
	// observed is the generation that outcomes are about, concluded whether there
	// are any.
	observed  int64
	concluded *desired
	// told is the last one that the hub was first told of.
	told     *desired
	outcomes []outcome
	// suspended is what is wanted while nothing is done, nil when that is not so.
	suspended *desired
	// seenOnly: outcomes are of what there is, and not of what was applied here.
	seenOnly bool
	// comparing: outcomes say what differs from the manifests.
	comparing bool
	// refused says why nothing of the work can be looked at.
	refused string
	// someFinished: at least one outcome is complete.
	someFinished bool
	// leaving is set while the work is being deleted.
	leaving    *leaving
	conditions []metav1.Condition
	// anchored is the name of the work's anchor, where that is not its own.
	anchored string
}

// desired is what the hub asks for; it is replaced, never changed.
type desired struct {
	uid        string
	generation int64
	deleting   bool
	manifests  []manifest
	// spec is the rest of what the work says.
	spec workv1.ManifestWorkSpec
	// refusal says why it cannot be executed, nil when it can.
	refusal error
	hubHash string
	labels  map[string]string
	healthy bool
	// suspended: nothing is to be done. applied is the generation that was applied last,
	// as far as the hub knows.
	suspended bool
	applied   int64
	// reportsDrift: the manifests are to be compared, and not applied.
	reportsDrift bool
	// copied: read from our own copy, not yet confirmed by the hub.
	copied   bool
	received time.Time
}

// outcome is what became of one manifest.
type outcome struct {
	meta workv1.ManifestResourceMeta
	// at is set when the manifest names an object that may be looked at.
	at *objectID
	// reason and failure say the last error, empty when applied.
	reason, failure string
	// remark names what was not applied of it, empty for nothing.
	remark     string
	generation int64
	conditions []metav1.Condition
	// unfetched says why the object cannot be read.
	unfetched string
	// reads: the manifest has rules. values are what they last reported.
	reads  bool
	values []workv1.FeedbackValue
	// compared: what differs from the manifest is reported.
	compared bool
	// unread: the rules have yet to see the object for the first time.
	unread bool
}

// leaving is a deletion under way.
type leaving struct {
	remaining int
	failure   string
}

// anchorName is the name of the object that stands for the work.
func (w *work) anchorName() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.anchored != "" {
		return w.anchored
	}
	return w.key.Name
}

// hubHash is the hash in the name of the anchor of what is wanted.
func (w *work) hubHash() string {
	if d := w.wanted(); d != nil {
		return d.hubHash
	}
	return ""
}

// isComplete: the rules say that the work is done for good.
func (w *work) isComplete() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return meta.IsStatusConditionTrue(w.conditions, workv1.WorkComplete)
}

// finished: the rules say so of one manifest.
func (w *work) finished(id objectID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.outcomes {
		if !w.someFinished {
			break
		}
		if o := &w.outcomes[i]; o.at != nil && *o.at == id {
			return meta.IsStatusConditionTrue(o.conditions, workv1.WorkComplete)
		}
	}
	return false
}

func (w *work) hasConcluded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.concluded != nil
}

func (w *work) wanted() *desired {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.want
}

func (w *work) resultOf(id objectID) result { return w.results[id] }

func (w *work) keep(id objectID, r result) {
	if w.results == nil {
		w.results = map[objectID]result{}
	}
	w.results[id] = r
}

// clear forgets what was applied.
func (w *work) clear() {
	w.results = nil
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outcomes, w.conditions, w.concluded, w.suspended, w.seenOnly = nil, nil, nil, nil, false
}

// replace forgets what was said of an earlier work of that name, not what was
// applied of it. That there was one stays known: its objects say nothing of how far
// this one has come.
func (w *work) replace() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outcomes, w.conditions, w.leaving, w.suspended, w.someFinished, w.seenOnly = nil, nil, nil, nil, false, false
}

// conclude takes what became of every step of one generation.
func (w *work) conclude(d *desired, steps []step, results map[int]result) {
	out := w.outcomesOf(steps, results)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold(d, out)
}

// hold keeps the outcomes of a generation in the place of those before; w.mu is held.
func (w *work) hold(d *desired, out []outcome) {
	inherit(out, w.outcomes)
	w.outcomes, w.observed, w.concluded, w.leaving, w.refused = out, d.generation, d, nil, ""
	w.seenOnly, w.comparing = false, false
}

// outcomesOf is what became of every step.
func (w *work) outcomesOf(steps []step, results map[int]result) []outcome {
	out := make([]outcome, len(steps))
	for i := range steps {
		s := &steps[i]
		o := &out[i]
		o.meta = s.meta()
		if s.at.Name != "" {
			id := s.at.objectID
			o.at, o.meta.Namespace = &id, id.Namespace
		}
		o.reads = s.read != nil
		if _, ok := errors.AsType[*FetchError](s.err); ok {
			o.unfetched = describe(s.err, s.isSecret())
			continue
		}
		if s.err != nil {
			o.reason, o.failure = w.policy.words.failure(s)
			continue
		}
		o.generation, o.remark = results[s.ordinal].generation, results[s.ordinal].remark
	}
	return out
}

// refuse concludes that a generation cannot be executed at all, if so; what was
// applied before it stays as it is.
func (w *work) refuse(d *desired) (refused bool) {
	if d.refusal == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.observed, w.concluded, w.refused, w.seenOnly = d.generation, d, describe(d.refusal, false), false
	return true
}

// inherit carries conditions over, so that their transition times stay: by
// identity, then by identity without ordinal where that is unique.
func inherit(next, before []outcome) {
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

// hinder notes how far a deletion has come.
func (w *work) hinder(d *desired, err error) {
	l := &leaving{}
	if w.anchor != nil {
		l.remaining = len(w.anchor.tracked)
	}
	if err != nil {
		l.failure = describe(err, false)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leaving, w.observed, w.concluded = l, d.generation, d
}
