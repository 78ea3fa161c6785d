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

	"github.com/spokelet/spokelet/api/managedcluster"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// AnnotationDeletion is "background" on a work that leaves the hub as soon as it is
	// deleted, while its cluster has yet to remove what it applied.
	AnnotationDeletion = "spokelet.io/deletion"
	deletionBackground = "background"
	// maxBackground bounds the deletions that go on in the background. The other half is
	// for works that went in another way.
	maxBackground = maxEnds / 2
	// backgroundPatience is how long such a deletion may take before somebody is told,
	// backgroundAgain when that is said again: events are kept for an hour, by default.
	backgroundPatience = 5 * time.Minute
	backgroundAgain    = time.Hour
	backgroundLook     = time.Minute
	// maxListed deletions are named in an event, each with maxSaid bytes of what its
	// cluster says: the note of an event may have 1024 bytes.
	maxListed = 10
	maxSaid   = 200
	maxNote   = 1000

	conditionDeleting = "Deleting"
	reasonNotDeleted  = "WorksNotDeleted"
)

// background is a deletion that goes on although the hub has no work of it any more.
type background struct {
	since time.Time
	// said is what the agent last said of it, warned when that was last told.
	said   string
	warned time.Time
}

// sendDeletion has a work removed from its cluster. One that is deleted in the background
// is let go before that is done.
func (w *Works) sendDeletion(ctx context.Context, k *kind, it item) error {
	if err := w.send(ctx, k, it); err != nil {
		return err
	}
	goes, err := w.goesAtOnce(ctx, it)
	if err != nil || !goes {
		return err
	}
	added, kept, err := w.keepDeletion(k, it)
	if err != nil || !kept {
		return err
	}
	_, err = w.patchFinalizers(ctx, k, it.object(), controllerutil.RemoveFinalizer)
	// The cache lags. What was added for a work whose finalizer is off already may come
	// after the agent's last word; after any other error the finalizer may be off.
	if added && (apierrors.IsNotFound(err) || apierrors.IsConflict(err)) {
		w.unkeepDeletion(k.keyOf(it.object()))
	}
	return client.IgnoreNotFound(err)
}

// goesAtOnce tells whether a work that is deleted is not held until its cluster has
// removed its objects. What is remembered of it does not outlive this process: the
// cluster then evicts a work that the hub does not know, and that must come to the same.
// An eviction knows of no objects that are to stay, and waits for no end of a suspension.
func (w *Works) goesAtOnce(ctx context.Context, it item) (bool, error) {
	obj := it.object()
	annotations := obj.GetAnnotations()
	if annotations[AnnotationDeletion] != deletionBackground || leavesObjects(it.wire().Spec.DeleteOption) {
		return false, nil
	}
	if _, suspended := annotations[wire.AnnotationSuspend]; suspended {
		return false, nil
	}
	record, err := w.record(ctx, obj.GetNamespace())
	// Whoever detaches a cluster waits for its works: the tunnel is cut when there are none.
	return record != nil && managedcluster.Selectable(record), err
}

// leavesObjects tells whether objects of a work may stay when it is deleted.
func leavesObjects(option *workv1.DeleteOption) bool {
	return option != nil && option.PropagationPolicy != "" && option.PropagationPolicy != workv1.DeletePropagationPolicyTypeForeground
}

// keepDeletion remembers a deletion that is published, until the agent says that nothing
// is left. There may be no room for it.
func (w *Works) keepDeletion(k *kind, it item) (added, kept bool, err error) {
	deletion, err := k.encode(it)
	if err != nil {
		return false, false, err
	}
	obj := it.object()
	key := k.keyOf(obj)
	w.mu.Lock()
	defer w.mu.Unlock()
	if ref, published := w.source(key.Namespace).Ref(key.String()); !published || ref != resource.RefOf(deletion) {
		return false, false, nil
	}
	switch e, known := w.ends[key]; {
	case known && e.uid == obj.GetUID() && e.background != nil:
		return false, true, nil
	case !known && len(w.ends) >= maxBackground:
		return false, false, nil
	}
	w.ends[key] = end{uid: obj.GetUID(), deletion: &deletion, published: true, background: &background{
		since: time.Now(), said: deletingMessage(*it.conditions()),
	}}
	return true, true, nil
}

// unkeepDeletion makes of a deletion that was remembered the end of a work like any other.
// The event of that end may have come before this, and found it noted.
func (w *Works) unkeepDeletion(key wire.WorkKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e, ok := w.ends[key]; ok {
		e.background, e.published = nil, false
		w.ends[key] = e
	}
}

// inBackground tells whether the deletion of a work goes on without our finalizer.
func (w *Works) inBackground(key wire.WorkKey, obj client.Object) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, ok := w.ends[key]
	return ok && e.background != nil && e.uid == obj.GetUID()
}

// hear keeps what an agent says of a deletion in the background: there is no work to say
// it on.
func (w *Works) hear(key wire.WorkKey, uid string, status wire.WorkStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e, ok := w.ends[key]; ok && e.background != nil && string(e.uid) == uid {
		e.background.said = deletingMessage(status.Conditions)
	}
}

func deletingMessage(conditions []metav1.Condition) string {
	c := meta.FindStatusCondition(conditions, conditionDeleting)
	if c == nil {
		return ""
	}
	return strings.ToValidUTF8(c.Message[:min(len(c.Message), maxSaid)], "")
}

// abandon forgets the deletions in the background of a cluster that is going, and names
// them, as "<dialect>/<name>": what they would have removed stays.
func (w *Works) abandon(cluster string) (left []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, e := range w.ends {
		if key.Namespace == cluster && e.background != nil {
			left = append(left, key.Dialect+"/"+key.Name)
			delete(w.ends, key)
		}
	}
	slices.Sort(left)
	return left
}

// followBackground warns of deletions that take long, until ctx ends.
func (w *Works) followBackground(ctx context.Context) {
	tick := time.NewTicker(backgroundLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			w.warnOfBackground(ctx, now)
		}
	}
}

// warnOfBackground tells, on each cluster, which deletions it has not done in time.
func (w *Works) warnOfBackground(ctx context.Context, now time.Time) {
	for cluster, late := range w.late(now) {
		record, err := w.record(ctx, cluster)
		if err != nil || record == nil {
			continue
		}
		w.events.Eventf(record, nil, corev1.EventTypeWarning, reasonNotDeleted, "Delete", "%s", lateMessage(late))
	}
}

// late returns the deletions of which it is time to tell, by cluster.
func (w *Works) late(now time.Time) map[string][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	late := map[string][]string{}
	for key, e := range w.ends {
		b := e.background
		if b == nil || now.Sub(b.since) < backgroundPatience || now.Sub(b.warned) < backgroundAgain {
			continue
		}
		b.warned = now
		said := b.said
		if said == "" {
			said = "no answer"
		}
		late[key.Namespace] = append(late[key.Namespace], fmt.Sprintf("%s/%s (%s)", key.Dialect, key.Name, said))
	}
	return late
}

func lateMessage(late []string) string {
	slices.Sort(late)
	total, more := len(late), ""
	if total > maxListed {
		more = fmt.Sprintf(" and %d more", total-maxListed)
		late = late[:maxListed]
	}
	text := fmt.Sprintf("%d works were deleted in the background, and after %s the cluster has not removed all that they applied%s: %s",
		total, backgroundPatience, more, strings.Join(late, ", "))
	return strings.ToValidUTF8(text[:min(len(text), maxNote)], "")
}
