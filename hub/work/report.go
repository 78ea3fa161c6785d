// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/statuswriter"
	"github.com/spokelet/spokelet/internal/workconvert"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const conditionApplied = workv1.WorkApplied

// receive takes a status from an agent. It runs on the stream's goroutine.
func (w *Works) receive(cluster string, r resource.Resource) {
	key, status, ok := w.decodeReport(cluster, r)
	if !ok {
		r.Account.Close()
		return
	}
	w.queue.Enqueue(key, statuswriter.Report{UID: types.UID(r.UID), Status: status, Since: r.Since, OnDone: r.Account.Close})
}

// decodeReport decodes a status, if it is about a work that exists, or whose end is waited
// for: what an agent can make us hold is bounded by what the hub's users made.
func (w *Works) decodeReport(cluster string, r resource.Resource) (key wire.WorkKey, status wire.WorkStatus, ok bool) {
	k, name, ok := w.parseKey(cluster, r.Key)
	if !ok {
		if w.logLimiter.Allow(cluster) {
			w.log.Info("agent reports on a work that is not its own", "cluster", cluster, "key", r.Key)
		}
		return key, status, false
	}
	key = k.key(name)
	ended := false
	if err := w.client.Get(context.Background(), name, k.New().Object()); err != nil {
		// Of a work that is there the UID is asked about later: an agent may know of one
		// that has taken the name before our cache does.
		e, leaving := w.publishedTombstone(key)
		if ended = leaving && string(e.uid) == r.UID; !ended {
			return key, status, false
		}
	}
	status, err := wire.DecodeWorkStatus(r.Body)
	if err != nil {
		if w.logLimiter.Allow(cluster) {
			w.log.Error(err, "agent sent a status that cannot be read", "cluster", cluster, "key", r.Key)
		}
		return key, status, false
	}
	w.recordDeletionProgress(key, r.UID, status)
	return key, status, !ended || status.Finalized
}

// Start writes reports until ctx ends; the manager calls it once the caches are
// filled.
func (w *Works) Start(ctx context.Context) error {
	if err := w.installPolicy(ctx); err != nil {
		w.log.Error(err, "finalizers of works are written one by one")
	}
	var running sync.WaitGroup
	running.Go(func() { w.runLateDeletionWarnings(ctx) })
	statuswriter.Run(ctx, w.queue, writers, w.writeNext)
	running.Wait()
	return nil
}

// writeNext writes the latest report on a work. What comes meanwhile replaces the report
// that waits.
func (w *Works) writeNext(ctx context.Context, key wire.WorkKey) {
	if delay := w.writeDelay(key); delay > 0 {
		w.queue.AddAfter(key, delay)
		return
	}
	r, ok := w.queue.Take(key)
	if !ok {
		w.writeHubReport(ctx, key)
		return
	}
	if err := w.write(ctx, key, r); err != nil {
		w.queue.RetryReport(key, r, err)
		return
	}
	r.Done()
	w.queue.Forget(key)
	if _, _, needsWrite := w.renderings.pendingReport(key); needsWrite {
		w.queue.Add(key) // the report was overtaken, and did not take it along
	}
}

// writeHubReport writes what the hub itself has to say of a work that refers to its cluster,
// if it has anything to say. Unlike a report it is made when it is written.
func (w *Works) writeHubReport(ctx context.Context, key wire.WorkKey) {
	r, version, ok := w.renderings.pendingReport(key)
	if !ok {
		return
	}
	if err := w.write(ctx, key, r); err != nil {
		w.queue.Retry(key, err)
		return
	}
	w.renderings.markWritten(key, r.UID, version)
	w.queue.Forget(key)
}

// writeDelay returns how long the next write of a work has to wait. What the hub itself has
// to say does not wait for what its cluster has had written.
func (w *Works) writeDelay(key wire.WorkKey) time.Duration {
	r, ok := w.queue.Pending(key)
	delay := w.queue.Limiter.Delay(key)
	if !ok || r.FromHub {
		return delay
	}
	return max(delay, w.writeQuota.Wait(key.Namespace))
}

// write brings a report into its work, without what the API server refuses of it.
func (w *Works) write(ctx context.Context, key wire.WorkKey, r statuswriter.Report) error {
	k, ok := w.kind(key)
	if !ok {
		return nil // nothing of the kind is enqueued
	}
	// It may have waited until its cluster had left: another hub may serve the work now.
	if isManaged, err := w.isManagedCluster(ctx, key.Namespace); err != nil || !isManaged {
		return err
	}
	return w.queue.Write(r, func(r statuswriter.Report) error { return w.writeReport(ctx, k, key, r) }, func(err error) {
		if w.logLimiter.Allow(key.Namespace) {
			w.log.Error(err, "status is refused", "work", key.String())
		}
	})
}

// writeReport brings a report into its work: from the cache first, and from the API
// server when the cache turns out to lag.
func (w *Works) writeReport(ctx context.Context, k *kind, key wire.WorkKey, r statuswriter.Report) error {
	err := w.writeStatus(ctx, w.getCached, k, key, r)
	switch {
	case apierrors.IsConflict(err):
		w.queue.Metrics.CountWrite(statuswriter.ResultConflict)
		err = w.writeStatus(ctx, w.getLive, k, key, r)
	case errors.Is(err, errStale):
		// The agent may know more than our cache: of us as well as of a hub before us.
		w.queue.Limiter.Spend(key, 0)
		err = w.writeStatus(ctx, w.getLive, k, key, r)
	}
	if errors.Is(err, errStale) {
		return nil // nor will it be
	}
	return err
}

// errStale says that a work, as it was read, is not the one that a report is about,
// or is not on its way out although the agent is done with it.
var errStale = errors.New("work is another than the one reported on")

// getFunc reads a work.
type getFunc func(context.Context, wire.WorkKey, client.Object) error

func (w *Works) getLive(ctx context.Context, key wire.WorkKey, work client.Object) error {
	return w.apiReader.Get(ctx, namespacedName(key), work)
}

// getCached reads a work as our own last write left it, or later. The cache may not
// have seen that write: beside an older state, a report that takes the last one
// back would look like no change and be lost.
func (w *Works) getCached(ctx context.Context, key wire.WorkKey, work client.Object) error {
	if err := w.client.Get(ctx, namespacedName(key), work); err != nil {
		return err
	}
	if _, isStale := w.ownWrites.After(key, work.GetResourceVersion()); isStale {
		return w.getLive(ctx, key, work)
	}
	return nil
}

func (w *Works) writeStatus(ctx context.Context, from getFunc, k *kind, key wire.WorkKey, r statuswriter.Report) error {
	it := k.New()
	work := it.Object()
	if err := from(ctx, key, work); err != nil {
		if r.Status.Finalized && apierrors.IsNotFound(err) {
			w.acknowledgeDeletion(key, r.UID)
		}
		return client.IgnoreNotFound(err)
	}
	if work.GetUID() != r.UID {
		return errStale
	}
	if r.Status.Finalized {
		if work.GetDeletionTimestamp() == nil {
			return errStale
		}
		if err := w.removeFinalizer(ctx, k, work); err != nil {
			return err
		}
		w.acknowledgeDeletion(key, r.UID) // what was deleted in the background may be held by others
		return nil
	}
	conditions := *it.Conditions()
	if r.Status.ObservedGeneration < workconvert.ObservedGeneration(conditions) {
		return nil // overtaken
	}
	before := it.Status()
	made, refers := w.renderings.get(key, r.UID)
	applied, stored := applyReport(it, r, made.refusal, metav1.Now())
	if refers && !k.isReferenceRefusal(applied) {
		w.renderings.recordAgentApplied(key, r.UID, applied)
	}
	if equality.Semantic.DeepEqual(before, it.Status()) {
		w.queue.Metrics.CountWrite(statuswriter.ResultUnchanged)
		w.renderings.markWritten(key, r.UID, made.version) // version 0 is of none
		return nil
	}
	w.writeQuota.Spend(key.Namespace, int64(stored))
	if err := w.patchStatus(ctx, k, it, before, stored); err != nil {
		return client.IgnoreNotFound(err)
	}
	w.renderings.markWritten(key, r.UID, made.version)
	w.queue.Metrics.ObserveWritten(r)
	w.recordEvent(work, conditions, *it.Conditions())
	return nil
}

// applyReport makes the status of a work that which it has after a report. A refusal of the
// hub stands in the place of Applied as the agent says it, which is returned, with the
// size in bytes of the whole work.
func applyReport(it workconvert.Work, r statuswriter.Report, refusal *metav1.Condition, now metav1.Time) (applied *metav1.Condition, stored int) {
	before := meta.FindStatusCondition(*it.Conditions(), conditionApplied)
	conditions := it.Conditions()
	if r.FromHub {
		applied = before
		*conditions = slices.Clone(*conditions)
		for _, c := range r.Status.Conditions {
			meta.SetStatusCondition(conditions, c)
		}
	} else {
		it.Merge(r.Status, now)
		conditions = it.Conditions()
		if c := meta.FindStatusCondition(*conditions, conditionApplied); c != nil {
			applied = c.DeepCopy()
		}
	}
	if refusal != nil {
		setRefusal(conditions, *refusal, before, now)
	}
	return applied, trim(it, now, r.OmitReason)
}

// patchStatus writes what is different from before, and nothing if the work is no
// more as it was read. The whole work has about size bytes.
func (w *Works) patchStatus(ctx context.Context, k *kind, it workconvert.Work, before any, size int) error {
	work := it.Object()
	patch, err := statuswriter.NewStatusPatch(work, before, it.Status())
	if err != nil {
		return err
	}
	key := k.keyOf(work)
	w.queue.Limiter.Spend(key, size)
	target := k.New().Object()
	target.SetNamespace(key.Namespace)
	target.SetName(key.Name)
	if err := w.client.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), fieldOwner); err != nil {
		return fmt.Errorf("patch status: %w", err)
	}
	w.ownWrites.Record(key, target.GetResourceVersion(), struct{}{})
	return nil
}
