// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"sync"
	"sync/atomic"
	"time"

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
	// recording: this run brings the anchor up to date.
	recording bool

	// shaken is set when somebody else touched the anchor.
	shaken atomic.Bool

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
	// leaving is set while the work is being deleted.
	leaving    *leaving
	conditions []metav1.Condition
}

// desired is what the hub asks for; it is replaced, never changed.
type desired struct {
	uid        string
	generation int64
	deleting   bool
	manifests  []manifest
	// copied: read from our own copy, not yet confirmed by the hub.
	copied   bool
	received time.Time
}

// outcome is what became of one manifest.
type outcome struct {
	meta workv1.ManifestResourceMeta
	// at is set when the manifest names an object that may be looked at.
	at *objectID
	// failure is the text of the last error, empty when applied.
	failure    string
	generation int64
	conditions []metav1.Condition
}

// leaving is a deletion under way.
type leaving struct {
	remaining int
	failure   string
}

// anchorName of every dialect so far is the name of the work.
func (w *work) anchorName() string { return w.key.Name }

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
	w.outcomes, w.conditions, w.concluded = nil, nil, nil
}

// conclude takes what became of every step of one generation.
func (w *work) conclude(d *desired, steps []step, results map[int]result) {
	out := make([]outcome, len(steps))
	for i := range steps {
		s := &steps[i]
		o := &out[i]
		o.meta = s.meta()
		if s.at.Name != "" {
			id := s.at.objectID
			o.at, o.meta.Namespace = &id, id.Namespace
		}
		if s.err != nil {
			o.failure = describe(s.err, s.gvk.Group == "" && s.gvk.Kind == "Secret")
			continue
		}
		o.generation = results[s.ordinal].generation
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	inherit(out, w.outcomes)
	w.outcomes, w.observed, w.concluded, w.leaving = out, d.generation, d, nil
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
