// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// board holds every work as it was last seen, by the watch or in the answer to a
// write of ours, without its spec. The watch may be behind such an answer: what
// is older than what is held is not taken.
type board struct {
	mu sync.Mutex
	// All below are guarded by mu, which is held during calls of the receiver, too:
	// those must not overlap.
	works map[wire.WorkKey]hubWork
	// told is what the engine was last told of each work.
	told map[wire.WorkKey]told
	to   resource.Receiver
	// listed are the kinds of which all is known, of as many as there are.
	listed map[string]struct{}
	kinds  int
}

// told is what tells one version of a wanted work from another.
type told struct {
	uid        types.UID
	generation int64
	deleting   bool
	suspended  bool
	reports    bool
	labels     map[string]string
	// size of what it was told, in bytes.
	size int
	// finalized: the engine has said that nothing of the work is left.
	finalized bool
}

func (t told) equal(o told) bool {
	return t.uid == o.uid && t.generation == o.generation && t.deleting == o.deleting && t.suspended == o.suspended && t.reports == o.reports && maps.Equal(t.labels, o.labels)
}

func newBoard() *board {
	return &board{works: map[wire.WorkKey]hubWork{}, told: map[wire.WorkKey]told{}, listed: map[string]struct{}{}}
}

// open says who is to be told, before anything is put.
func (b *board) open(to resource.Receiver, kinds int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.to, b.kinds = to, kinds
}

// get returns a work, which must not be changed.
func (b *board) get(key wire.WorkKey) (hubWork, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w, ok := b.works[key]
	return w, ok
}

// put takes a work as it was read. It returns false if it is older than what is
// held, or known already.
func (b *board) put(key wire.WorkKey, w hubWork) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old, ok := b.works[key]; ok && !newer(w, old) {
		return false
	}
	b.keep(key, w)
	return true
}

// refresh takes the answer to a request of ours. The watch may have told already
// that the work is gone, or that another one has its name, and does not tell again:
// then that stays.
func (b *board) refresh(key wire.WorkKey, w hubWork) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old, ok := b.works[key]; ok && old.object().GetUID() == w.object().GetUID() && newer(w, old) {
		b.keep(key, w)
	}
}

// keep puts a work in its place; b.mu is held.
func (b *board) keep(key wire.WorkKey, w hubWork) {
	w.object().SetManagedFields(nil)
	b.works[key] = w.without()
}

// newer tells whether a is a later state than b. Another UID is a later work.
func newer(a, b hubWork) bool {
	x, y := a.object(), b.object()
	if x.GetUID() != y.GetUID() {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(x.GetResourceVersion(), y.GetResourceVersion())
	return err != nil || order > 0
}

// want tells the engine what is wanted of a work, if that is new to it.
func (b *board) want(key wire.WorkKey, w hubWork) error {
	o := w.object()
	now := told{
		uid: o.GetUID(), generation: o.GetGeneration(), deleting: o.GetDeletionTimestamp() != nil, labels: o.GetLabels(),
		suspended: wire.Suspends(o.GetAnnotations()), reports: wire.ReportsDrift(o.GetAnnotations()),
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.told[key].equal(now) {
		return nil
	}
	body, err := json.Marshal(w.wire())
	if err != nil {
		return fmt.Errorf("encode work: %w", err)
	}
	now.size = len(body)
	b.told[key] = now
	b.to.Put(resource.Resource{Key: key.String(), UID: string(now.uid), Generation: now.generation, Body: body})
	return nil
}

// leave is for a work that is being deleted and no more held by us: somebody took
// our finalizer off, or another agent of this cluster has done the work. What is
// here goes all the same.
func (b *board) leave(key wire.WorkKey, w hubWork) error {
	b.mu.Lock()
	t, known := b.told[key]
	b.mu.Unlock()
	if !known || t.finalized {
		b.unwant(key)
		return nil
	}
	return b.want(key, w)
}

func (b *board) unwant(key wire.WorkKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.withdraw(key)
}

// size of the spec of a work, about.
func (b *board) size(key wire.WorkKey) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.told[key].size
}

// withdraw tells the engine that the hub does not know a work.
func (b *board) withdraw(key wire.WorkKey) {
	if _, known := b.told[key]; known {
		delete(b.told, key)
		b.to.Delete(key.String())
	}
}

// end takes a work that was seen to be deleted. It may never have been seen to be
// on its way: an API server that deletes an object while it gets its first
// finalizer does so at once. What is here goes, as if it had waited.
func (b *board) end(key wire.WorkKey, w hubWork) error {
	b.mu.Lock()
	t, known := b.told[key]
	b.mu.Unlock()
	var err error
	if known && t.uid == w.object().GetUID() && !t.deleting && !t.suspended {
		now := metav1.Now()
		w.object().SetDeletionTimestamp(&now)
		err = b.want(key, w)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(key)
	return err
}

// drop does so with b.mu held. An engine that was told to delete the work goes on
// until it has: a work that is only missed is kept for the time of its grace, and so is
// one that was suspended, for nobody could end that any more.
func (b *board) drop(key wire.WorkKey) {
	delete(b.works, key)
	if t := b.told[key]; !t.deleting || t.finalized || t.suspended {
		b.withdraw(key)
	}
}

// finalized: the engine has deleted a work. It returns whether that is to be
// written: a work that is gone already takes nothing.
func (b *board) finalized(key wire.WorkKey, uid types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, is := b.works[key]
	t, known := b.told[key]
	if !known || t.uid != uid || !t.deleting {
		return is
	}
	t.finalized = true
	b.told[key] = t
	if !is {
		b.withdraw(key)
	}
	return is
}

// complete says that of one kind there are these works and no others. The engine
// is told once all kinds are complete.
func (b *board) complete(k *kind, names map[string]struct{}) (gone []wire.WorkKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.works {
		if _, is := names[key.Name]; !is && key.Dialect == k.dialect {
			gone = append(gone, key)
		}
	}
	slices.SortFunc(gone, compareKeys)
	for _, key := range gone {
		b.drop(key)
	}
	_, again := b.listed[k.dialect]
	b.listed[k.dialect] = struct{}{}
	if !again && len(b.listed) == b.kinds {
		b.to.Synced()
	}
	return gone
}

func compareKeys(a, b wire.WorkKey) int {
	return slices.Compare([]string{a.Dialect, a.Name}, []string{b.Dialect, b.Name})
}

// store takes what the watch of one kind tells. Its calls do not overlap.
type store struct {
	hub  *hub
	kind *kind
}

var _ cache.ReflectorStore = (*store)(nil)

// Add takes a work that is there.
func (s *store) Add(obj any) error {
	w, ok := s.kind.take(obj)
	if !ok {
		return fmt.Errorf("watch of %s sent a %T", s.kind.resource.Resource, obj)
	}
	return s.hub.see(s.kind, w)
}

// Update takes a work that has changed.
func (s *store) Update(obj any) error { return s.Add(obj) }

// Delete takes a work that is no more.
func (s *store) Delete(obj any) error {
	w, ok := s.kind.take(obj)
	if !ok {
		return fmt.Errorf("watch of %s sent a %T", s.kind.resource.Resource, obj)
	}
	return s.hub.gone(s.kind.key(w.object().GetName()), w)
}

// Replace takes all works that there are.
func (s *store) Replace(list []any, _ string) error {
	names := make(map[string]struct{}, len(list))
	for _, obj := range list {
		w, ok := s.kind.take(obj)
		if !ok {
			return fmt.Errorf("list of %s has a %T", s.kind.resource.Resource, obj)
		}
		names[w.object().GetName()] = struct{}{}
		if err := s.hub.see(s.kind, w); err != nil {
			return err
		}
	}
	for _, key := range s.hub.board.complete(s.kind, names) {
		s.hub.pace.Forget(key)
	}
	s.hub.prune(s.kind, names)
	return nil
}

// Resync has nothing to do.
func (s *store) Resync() error { return nil }
