// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// maxStored is the size in bytes up to which a Work with its status is
	// written; etcd refuses a request of 1.5 MiB.
	maxStored = 1400 << 10
	// trimMargin is for what stands around the parts that are counted, and for the
	// condition that says what was left out.
	trimMargin = 2 << 10
	// trimmedType is the condition of a status that had to leave something out.
	trimmedType = "StatusTrimmed"
)

// report is what is to be written to one work.
type report struct {
	uid    types.UID
	status wire.WorkStatus
	// refused: the work was not sent, so nothing is known of its manifests.
	refused  bool
	received time.Time
}

// receive takes a status from an agent. It runs on the stream's goroutine.
func (w *Works) receive(cluster string, r resource.Resource) {
	name, ok := nameIn(cluster, r.Key)
	if !ok {
		w.log.Info("agent reports on a work that is not its own", "cluster", cluster, "key", r.Key)
		return
	}
	status, err := wire.DecodeWorkStatus(r.Body)
	if err != nil {
		w.log.Error(err, "agent sent a status that cannot be read", "cluster", cluster, "key", r.Key)
		return
	}
	// A report is kept for works that exist: what an agent can make us hold is
	// bounded by what the hub's users made.
	var work v1alpha1.Work
	if err := w.client.Get(context.Background(), name, &work); err != nil {
		return
	}
	w.enqueue(name, report{uid: types.UID(r.UID), status: status})
}

func (w *Works) enqueue(name types.NamespacedName, r report) {
	r.received = time.Now()
	w.mu.Lock()
	w.pending[name] = r
	w.mu.Unlock()
	w.queue.Add(name)
}

// take returns the latest report and forgets it.
func (w *Works) take(name types.NamespacedName) (report, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, ok := w.pending[name]
	delete(w.pending, name)
	return r, ok
}

// giveBack keeps a report that could not be written, unless there is a later one.
func (w *Works) giveBack(name types.NamespacedName, r report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, later := w.pending[name]; !later {
		w.pending[name] = r
	}
}

// Start writes reports until ctx ends; the manager calls it once the caches are
// filled.
func (w *Works) Start(ctx context.Context) error {
	if err := w.installPolicy(ctx); err != nil {
		w.log.Error(err, "finalizers of works are written one by one")
	}
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for w.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	w.queue.ShutDown()
	wg.Wait()
	return nil
}

func (w *Works) next(ctx context.Context) bool {
	name, quit := w.queue.Get()
	if quit {
		return false
	}
	defer w.queue.Done(name)
	// What comes meanwhile replaces the report that waits.
	if wait := w.pace.Wait(name); wait > 0 {
		w.queue.AddAfter(name, wait)
		return true
	}
	r, ok := w.take(name)
	if !ok {
		return true
	}
	if err := w.write(ctx, name, r); err != nil {
		w.giveBack(name, r)
		w.queue.AddRateLimited(name)
		w.metrics.wrote(resultError)
		w.log.V(1).Info("status is written again", "work", name.String(), "err", err.Error())
		return true
	}
	w.queue.Forget(name)
	return true
}

// write brings a report into its work: from the cache first, and from the API
// server when the cache turns out to lag.
func (w *Works) write(ctx context.Context, name types.NamespacedName, r report) error {
	err := w.writeOver(ctx, w.recent, name, r)
	if apierrors.IsConflict(err) {
		w.metrics.wrote(resultConflict)
		err = w.writeOver(ctx, w.fresh, name, r)
	}
	return err
}

// get reads a work.
type get func(context.Context, types.NamespacedName, *v1alpha1.Work) error

func (w *Works) fresh(ctx context.Context, name types.NamespacedName, work *v1alpha1.Work) error {
	return w.live.Get(ctx, name, work)
}

// recent reads a work as our own last write left it, or later. The cache may not
// have seen that write: beside an older state, a report that takes the last one
// back would look like no change and be lost.
func (w *Works) recent(ctx context.Context, name types.NamespacedName, work *v1alpha1.Work) error {
	err := w.client.Get(ctx, name, work)
	if err != nil || w.caughtUp(name, work.ResourceVersion) {
		return err
	}
	return w.fresh(ctx, name, work)
}

// caughtUp tells whether a version is not before our own last write, which is
// then forgotten.
func (w *Works) caughtUp(name types.NamespacedName, version string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	own, ok := w.written[name]
	if !ok {
		return true
	}
	if order, err := resourceversion.CompareResourceVersion(version, own); err != nil || order < 0 {
		return false
	}
	delete(w.written, name)
	return true
}

// wrote remembers the version that a write of ours made.
func (w *Works) wrote(name types.NamespacedName, version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if order, err := resourceversion.CompareResourceVersion(version, w.written[name]); err == nil && order < 0 {
		return // the answer of an earlier write, late
	}
	w.written[name] = version
}

func (w *Works) writeOver(ctx context.Context, from get, name types.NamespacedName, r report) error {
	var work v1alpha1.Work
	if err := from(ctx, name, &work); err != nil {
		return client.IgnoreNotFound(err)
	}
	if work.UID != r.uid {
		return nil // of an earlier work of that name
	}
	if r.status.Finalized {
		if work.DeletionTimestamp == nil {
			return nil
		}
		return w.dropFinalizer(ctx, &work)
	}
	if r.status.ObservedGeneration < observed(work.Status) {
		return nil // overtaken
	}
	next := merge(work.Status, r, metav1.Now())
	trim(&work, &next, metav1.Now())
	if equality.Semantic.DeepEqual(work.Status, next) {
		w.metrics.wrote(resultUnchanged)
		return nil
	}
	if err := w.patchStatus(ctx, &work, next); err != nil {
		return client.IgnoreNotFound(err)
	}
	w.metrics.wrote(resultWritten)
	w.metrics.latency.Observe(time.Since(r.received).Seconds())
	return nil
}

func (w *Works) patchStatus(ctx context.Context, work *v1alpha1.Work, next v1alpha1.WorkStatus) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": work.UID, "resourceVersion": work.ResourceVersion}, "status": next,
	})
	if err != nil {
		return fmt.Errorf("encode status: %w", err)
	}
	w.pace.Spend(client.ObjectKeyFromObject(work))
	target := &v1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: work.Namespace, Name: work.Name}}
	if err := w.client.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), fieldOwner); err != nil {
		return fmt.Errorf("patch status: %w", err)
	}
	w.wrote(client.ObjectKeyFromObject(work), target.ResourceVersion)
	return nil
}

// trim leaves out manifests until the Work fits into etcd, those that are well
// first, and says so in a condition.
func trim(work *v1alpha1.Work, next *v1alpha1.WorkStatus, now metav1.Time) {
	room := maxStored - trimMargin - size(work.ObjectMeta) - size(next.Conditions)
	for _, m := range work.Spec.Workload.Manifests {
		room -= len(m.Raw) + 1
	}
	sizes := make([]int, len(next.ManifestConditions))
	total := 0
	for i := range next.ManifestConditions {
		sizes[i] = size(next.ManifestConditions[i]) + 1
		total += sizes[i]
	}
	if total <= room {
		return
	}
	all := next.ManifestConditions
	keep := make([]bool, len(all))
	for _, well := range []bool{false, true} {
		for i := range all {
			if isWell(all[i]) == well && sizes[i] <= room {
				keep[i] = true
				room -= sizes[i]
			}
		}
	}
	next.ManifestConditions = nil
	for i := range all {
		if keep[i] {
			next.ManifestConditions = append(next.ManifestConditions, all[i])
		}
	}
	trimmed := metav1.Condition{
		Type: trimmedType, Status: metav1.ConditionTrue, Reason: "SizeLimit", ObservedGeneration: observed(*next),
		Message: fmt.Sprintf("%d of %d manifests are left out: the status is too large to be stored", len(all)-len(next.ManifestConditions), len(all)),
	}
	if old := meta.FindStatusCondition(work.Status.Conditions, trimmedType); old != nil {
		now = old.LastTransitionTime
	}
	trimmed.LastTransitionTime = now
	meta.SetStatusCondition(&next.Conditions, trimmed)
}

func isWell(m v1alpha1.ManifestCondition) bool {
	for _, c := range m.Conditions {
		if c.Status != metav1.ConditionTrue {
			return false
		}
	}
	return true
}

// size in bytes as JSON.
func size(v any) int {
	raw, err := json.Marshal(v)
	if err != nil {
		return maxStored // cannot be written either way
	}
	return len(raw)
}
