// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/managedcluster"
	"github.com/spokelet/spokelet/internal/workconvert"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// AnnotationDeletion is "background" on a work that leaves the hub as soon as it is
	// deleted, while its cluster has yet to remove what it applied.
	AnnotationDeletion = "spokelet.io/deletion"
	deletionBackground = "background"
	// maxBackgroundDeletions bounds the deletions that go on in the background. The other half is
	// for works that went in another way.
	maxBackgroundDeletions = maxTombstones / 2
	// lateDeletionAfter is how long such a deletion may take before somebody is told,
	// lateDeletionRepeat when that is said again: events are kept for an hour, by default.
	lateDeletionAfter    = 5 * time.Minute
	lateDeletionRepeat   = time.Hour
	lateDeletionInterval = time.Minute
	// maxListedDeletions deletions are named in an event, each with maxProgressBytes bytes of what its
	// cluster says: the note of an event may have 1024 bytes.
	maxListedDeletions = 10
	maxProgressBytes   = 200
	maxEventNote       = 1000

	conditionDeleting = "Deleting"
	reasonNotDeleted  = "WorksNotDeleted"
)

// backgroundDeletion is a deletion that goes on although the hub has no work of it any more.
type backgroundDeletion struct {
	startedAt time.Time
	// progress is what the agent last said of it, warned when that was last told.
	progress string
	warnedAt time.Time
}

// publishDeletion has a work removed from its cluster. One that is deleted in the background
// is let go before that is done.
func (w *Works) publishDeletion(ctx context.Context, k *kind, it workconvert.Work) error {
	if err := w.publishCurrent(ctx, k, it); err != nil {
		return err
	}
	goes, err := w.deletesInBackground(ctx, it)
	if err != nil || !goes {
		return err
	}
	added, kept, err := w.storeBackgroundDeletion(k, it)
	if err != nil || !kept {
		return err
	}
	_, err = w.patchFinalizers(ctx, k, it.Object(), controllerutil.RemoveFinalizer)
	// The cache lags. What was added for a work whose finalizer is off already may come
	// after the agent's last word; after any other error the finalizer may be off.
	if added && (apierrors.IsNotFound(err) || apierrors.IsConflict(err)) {
		w.clearBackgroundDeletion(k.keyOf(it.Object()))
	}
	return client.IgnoreNotFound(err)
}

// deletesInBackground reports whether a work that is deleted is not held until its cluster has
// removed its objects. What is remembered of it does not outlive this process: the
// cluster then evicts a work that the hub does not know, and that must come to the same.
// An eviction knows of no objects that are to stay, and waits for no end of a suspension.
func (w *Works) deletesInBackground(ctx context.Context, it workconvert.Work) (bool, error) {
	obj := it.Object()
	annotations := obj.GetAnnotations()
	if annotations[AnnotationDeletion] != deletionBackground || mayOrphanObjects(it.Wire().Spec.DeleteOption) {
		return false, nil
	}
	if _, suspended := annotations[wire.AnnotationSuspend]; suspended {
		return false, nil
	}
	record, err := w.getCluster(ctx, obj.GetNamespace())
	// Whoever detaches a cluster waits for its works: the tunnel is cut when there are none.
	return record != nil && managedcluster.IsSelectable(record), err
}

// mayOrphanObjects reports whether objects of a work may stay when it is deleted.
func mayOrphanObjects(option *workv1.DeleteOption) bool {
	return option != nil && option.PropagationPolicy != "" && option.PropagationPolicy != workv1.DeletePropagationPolicyTypeForeground
}

// storeBackgroundDeletion remembers a deletion that is published, until the agent says that nothing
// is left. There may be no room for it.
func (w *Works) storeBackgroundDeletion(k *kind, it workconvert.Work) (added, kept bool, err error) {
	deletion, err := k.encode(it)
	if err != nil {
		return false, false, err
	}
	obj := it.Object()
	key := k.keyOf(obj)
	w.mu.Lock()
	defer w.mu.Unlock()
	if ref, published := w.source(key.Namespace).Ref(key.String()); !published || ref != resource.RefOf(deletion) {
		return false, false, nil
	}
	switch e, known := w.tombstones[key]; {
	case known && e.uid == obj.GetUID() && e.background != nil:
		return false, true, nil
	case !known && len(w.tombstones) >= maxBackgroundDeletions:
		return false, false, nil
	}
	w.tombstones[key] = tombstone{uid: obj.GetUID(), deletion: &deletion, published: true, background: &backgroundDeletion{
		startedAt: time.Now(), progress: deletingMessage(*it.Conditions()),
	}}
	return true, true, nil
}

// clearBackgroundDeletion makes of a deletion that was remembered the end of a work like any other.
// The event of that end may have come before this, and found it noted.
func (w *Works) clearBackgroundDeletion(key wire.WorkKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e, ok := w.tombstones[key]; ok {
		e.background, e.published = nil, false
		w.tombstones[key] = e
	}
}

// isDeletedInBackground reports whether the deletion of a work goes on without our finalizer.
func (w *Works) isDeletedInBackground(key wire.WorkKey, obj client.Object) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, ok := w.tombstones[key]
	return ok && e.background != nil && e.uid == obj.GetUID()
}

// recordDeletionProgress stores what an agent reports on a deletion in the background: the
// work is gone from the hub.
func (w *Works) recordDeletionProgress(key wire.WorkKey, uid string, status wire.WorkStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e, ok := w.tombstones[key]; ok && e.background != nil && string(e.uid) == uid {
		e.background.progress = deletingMessage(status.Conditions)
	}
}

func deletingMessage(conditions []metav1.Condition) string {
	c := meta.FindStatusCondition(conditions, conditionDeleting)
	if c == nil {
		return ""
	}
	return strings.ToValidUTF8(c.Message[:min(len(c.Message), maxProgressBytes)], "")
}

// dropBackgroundDeletions forgets the deletions in the background of a cluster that is going, and names
// them, as "<dialect>/<name>": what they would have removed stays.
func (w *Works) dropBackgroundDeletions(cluster string) (left []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, e := range w.tombstones {
		if key.Namespace == cluster && e.background != nil {
			left = append(left, key.Dialect+"/"+key.Name)
			delete(w.tombstones, key)
		}
	}
	slices.Sort(left)
	return left
}

// runLateDeletionWarnings warns of deletions that take long, until ctx ends.
func (w *Works) runLateDeletionWarnings(ctx context.Context) {
	tick := time.NewTicker(lateDeletionInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			w.warnOfLateDeletions(ctx, now)
		}
	}
}

// warnOfLateDeletions records an event on each cluster with the deletions that are late.
func (w *Works) warnOfLateDeletions(ctx context.Context, now time.Time) {
	for cluster, late := range w.collectLateDeletions(now) {
		record, err := w.getCluster(ctx, cluster)
		if err != nil || record == nil {
			continue
		}
		w.events.Eventf(record, nil, corev1.EventTypeWarning, reasonNotDeleted, "Delete", "%s", formatLateDeletions(late))
	}
}

// collectLateDeletions returns the deletions of which it is time to tell, by cluster.
func (w *Works) collectLateDeletions(now time.Time) map[string][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	late := map[string][]string{}
	for key, e := range w.tombstones {
		b := e.background
		if b == nil || now.Sub(b.startedAt) < lateDeletionAfter || now.Sub(b.warnedAt) < lateDeletionRepeat {
			continue
		}
		b.warnedAt = now
		said := b.progress
		if said == "" {
			said = "no answer"
		}
		late[key.Namespace] = append(late[key.Namespace], fmt.Sprintf("%s/%s (%s)", key.Dialect, key.Name, said))
	}
	return late
}

func formatLateDeletions(late []string) string {
	slices.Sort(late)
	total, more := len(late), ""
	if total > maxListedDeletions {
		more = fmt.Sprintf(" and %d more", total-maxListedDeletions)
		late = late[:maxListedDeletions]
	}
	text := fmt.Sprintf("%d works were deleted in the background, and after %s the cluster has not removed all that they applied%s: %s",
		total, lateDeletionAfter, more, strings.Join(late, ", "))
	return strings.ToValidUTF8(text[:min(len(text), maxEventNote)], "")
}
