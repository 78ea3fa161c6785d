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
	"github.com/spokelet/spokelet/internal/workconvert"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// workStore holds every work as it was last seen, by the watch or in the answer to a
// write of ours, without its spec. The watch may be behind such an answer: what
// is older than what is held is not taken.
type workStore struct {
	mu sync.Mutex
	// All below are guarded by mu, which is held during calls of the receiver, too:
	// those must not overlap.
	works map[wire.WorkKey]workconvert.Work
	// sent is what the engine was last told of each work.
	sent     map[wire.WorkKey]sentWork
	receiver resource.Receiver
	// listed are the kinds of which all is known, of as many as there are.
	listed map[string]struct{}
	kinds  int
}

// sentWork identifies the version of a work that the engine was sent.
type sentWork struct {
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

func (t sentWork) equal(o sentWork) bool {
	return t.uid == o.uid && t.generation == o.generation && t.deleting == o.deleting && t.suspended == o.suspended && t.reports == o.reports && maps.Equal(t.labels, o.labels)
}

func newWorkStore() *workStore {
	return &workStore{works: map[wire.WorkKey]workconvert.Work{}, sent: map[wire.WorkKey]sentWork{}, listed: map[string]struct{}{}}
}

// start sets the receiver, before the first update.
func (b *workStore) start(to resource.Receiver, kinds int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.receiver, b.kinds = to, kinds
}

// get returns a work, which must not be changed.
func (b *workStore) get(key wire.WorkKey) (workconvert.Work, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w, ok := b.works[key]
	return w, ok
}

// update takes a work as it was read. It returns false if it is older than what is
// held, or known already.
func (b *workStore) update(key wire.WorkKey, w workconvert.Work) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old, ok := b.works[key]; ok && !isNewer(w, old) {
		return false
	}
	b.set(key, w)
	return true
}

// refresh stores the response to a request of ours, unless the watch has already seen that
// the work is deleted, or that another one has its name.
func (b *workStore) refresh(key wire.WorkKey, w workconvert.Work) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old, ok := b.works[key]; ok && old.Object().GetUID() == w.Object().GetUID() && isNewer(w, old) {
		b.set(key, w)
	}
}

// set puts a work in its place; b.mu is held.
func (b *workStore) set(key wire.WorkKey, w workconvert.Work) {
	w.Object().SetManagedFields(nil)
	b.works[key] = w.WithoutSpec()
}

// isNewer reports whether a is a later state than b. Another UID is a later work.
func isNewer(a, b workconvert.Work) bool {
	x, y := a.Object(), b.Object()
	if x.GetUID() != y.GetUID() {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(x.GetResourceVersion(), y.GetResourceVersion())
	return err != nil || order > 0
}

// publish sends a work to the engine, if it has changed.
func (b *workStore) publish(key wire.WorkKey, w workconvert.Work) error {
	o := w.Object()
	now := sentWork{
		uid: o.GetUID(), generation: o.GetGeneration(), deleting: o.GetDeletionTimestamp() != nil, labels: o.GetLabels(),
		suspended: wire.Suspends(o.GetAnnotations()), reports: wire.ReportsDrift(o.GetAnnotations()),
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sent[key].equal(now) {
		return nil
	}
	body, err := json.Marshal(w.Wire())
	if err != nil {
		return fmt.Errorf("encode work: %w", err)
	}
	now.size = len(body)
	b.sent[key] = now
	b.receiver.Put(resource.Resource{Key: key.String(), UID: string(now.uid), Generation: now.generation, Body: body})
	return nil
}

// publishDeletion is for a work that is being deleted and no more held by us: somebody took
// our finalizer off, or another agent of this cluster has done the work. What is
// here goes all the same.
func (b *workStore) publishDeletion(key wire.WorkKey, w workconvert.Work) error {
	b.mu.Lock()
	t, known := b.sent[key]
	b.mu.Unlock()
	if !known || t.finalized {
		b.withdraw(key)
		return nil
	}
	return b.publish(key, w)
}

func (b *workStore) withdraw(key wire.WorkKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.withdrawLocked(key)
}

// specSize of the spec of a work, about.
func (b *workStore) specSize(key wire.WorkKey) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent[key].size
}

// withdrawLocked withdraws a work from the engine.
func (b *workStore) withdrawLocked(key wire.WorkKey) {
	if _, known := b.sent[key]; known {
		delete(b.sent, key)
		b.receiver.Delete(key.String())
	}
}

// handleDeleted takes a work that was seen to be deleted. It may never have been seen to be
// on its way: an API server that deletes an object while it gets its first
// finalizer does so at once. What is here goes, as if it had waited.
func (b *workStore) handleDeleted(key wire.WorkKey, w workconvert.Work) error {
	b.mu.Lock()
	t, known := b.sent[key]
	b.mu.Unlock()
	var err error
	if known && t.uid == w.Object().GetUID() && !t.deleting && !t.suspended {
		now := metav1.Now()
		w.Object().SetDeletionTimestamp(&now)
		err = b.publish(key, w)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.removeLocked(key)
	return err
}

// removeLocked does so with b.mu held. An engine that was told to delete the work goes on
// until it has: a work that is only missed is kept for the time of its grace, and so is
// one that was suspended, for nobody could end that any more.
func (b *workStore) removeLocked(key wire.WorkKey) {
	delete(b.works, key)
	if t := b.sent[key]; !t.deleting || t.finalized || t.suspended {
		b.withdrawLocked(key)
	}
}

// markFinalized: the engine has deleted a work. It returns whether that is to be
// written: a work that is gone already takes nothing.
func (b *workStore) markFinalized(key wire.WorkKey, uid types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, is := b.works[key]
	t, known := b.sent[key]
	if !known || t.uid != uid || !t.deleting {
		return is
	}
	t.finalized = true
	b.sent[key] = t
	if !is {
		b.withdrawLocked(key)
	}
	return is
}

// removeMissing says that of one kind there are these works and no others. The engine
// is told once all kinds are complete.
func (b *workStore) removeMissing(k *kind, names map[string]struct{}) (gone []wire.WorkKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.works {
		if _, is := names[key.Name]; !is && key.Dialect == k.Name {
			gone = append(gone, key)
		}
	}
	slices.SortFunc(gone, compareKeys)
	for _, key := range gone {
		b.removeLocked(key)
	}
	_, again := b.listed[k.Name]
	b.listed[k.Name] = struct{}{}
	if !again && len(b.listed) == b.kinds {
		b.receiver.Synced()
	}
	return gone
}

func compareKeys(a, b wire.WorkKey) int {
	return slices.Compare([]string{a.Dialect, a.Name}, []string{b.Dialect, b.Name})
}

// reflectorStore receives the watch of one kind. Its calls do not overlap.
type reflectorStore struct {
	hub  *hub
	kind *kind
}

var _ cache.ReflectorStore = (*reflectorStore)(nil)

// Add takes a work that is there.
func (s *reflectorStore) Add(obj any) error {
	w, ok := s.kind.wrap(obj)
	if !ok {
		return fmt.Errorf("watch of %s sent a %T", s.kind.resource.Resource, obj)
	}
	return s.hub.handleWork(s.kind, w)
}

// Update takes a work that has changed.
func (s *reflectorStore) Update(obj any) error { return s.Add(obj) }

// Delete takes a work that is no more.
func (s *reflectorStore) Delete(obj any) error {
	w, ok := s.kind.wrap(obj)
	if !ok {
		return fmt.Errorf("watch of %s sent a %T", s.kind.resource.Resource, obj)
	}
	return s.hub.handleDeleted(s.kind.key(w.Object().GetName()), w)
}

// Replace takes all works that there are.
func (s *reflectorStore) Replace(list []any, _ string) error {
	names := make(map[string]struct{}, len(list))
	for _, obj := range list {
		w, ok := s.kind.wrap(obj)
		if !ok {
			return fmt.Errorf("list of %s has a %T", s.kind.resource.Resource, obj)
		}
		names[w.Object().GetName()] = struct{}{}
		if err := s.hub.handleWork(s.kind, w); err != nil {
			return err
		}
	}
	for _, key := range s.hub.store.removeMissing(s.kind, names) {
		s.hub.reports.Limiter.Forget(key)
	}
	s.hub.pruneReports(s.kind, names)
	return nil
}

// Resync has nothing to do.
func (s *reflectorStore) Resync() error { return nil }
