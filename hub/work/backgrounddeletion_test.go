// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/managedcluster"
)

func setBackgroundDeletion(o client.Object) {
	o.SetAnnotations(map[string]string{AnnotationDeletion: deletionBackground})
}

func addForeignFinalizer(o client.Object) {
	o.SetFinalizers(append(o.GetFinalizers(), "example.com/theirs"))
}

// isPublished makes the works of a cluster known to its agent.
func (r *rig) isPublished(t *testing.T) {
	t.Helper()
	if _, err := (clusterReconciler{r.Works}).Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: managed}}); err != nil {
		t.Fatal(err)
	}
}

// deleteWork deletes a work as its user does, and has the hub see that.
func (r *rig) deleteWork(t *testing.T, k *kind, work client.Object) (there bool) {
	t.Helper()
	last, _ := r.get(t, k, work)
	if err := r.client.Delete(t.Context(), last.Object()); err != nil {
		t.Fatal(err)
	}
	r.reconcile(t, k, work)
	return r.observeDeletion(t, k, last.Object())
}

// observeDeletion has the hub see that a work is gone, if it is.
func (r *rig) observeDeletion(t *testing.T, k *kind, last client.Object) (there bool) {
	t.Helper()
	if _, there = r.get(t, k, last); !there {
		r.sendDeleteEvent(t, k, last, false)
		r.reconcile(t, k, last)
	}
	return there
}

// countTombstones is how many keys are published, ends known and reports kept.
func (r *rig) countTombstones() int {
	return len(r.sync.Source(managed, wire.KindWork).Keys()) + len(r.tombstones) + r.queue.PendingCount()
}

func TestBackgroundDeletionRemovesWorkBeforeObjects(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		work, key := k.newWork(managed, "w", setBackgroundDeletion), k.Name+"/c1/w"
		r := newRig(t, clusterNamed(managed), work)
		r.isPublished(t)
		if r.deleteWork(t, k, work) {
			t.Fatal("the work waits for its cluster")
		}
		r.report(t, managed, key, "uid-w", newDeletingStatus("2 remain"))
		r.report(t, managed, key, "uid-other", wire.WorkStatus{Finalized: true})
		r.isPublished(t)
		if uid, sent, ok := r.loadWork(t, key); !ok || !sent.Deleting || uid != "uid-w" {
			t.Errorf("sent %t: %s, %+v", ok, uid, sent)
		}
		r.report(t, managed, key, "uid-w", wire.WorkStatus{Finalized: true})
		if r.countTombstones() != 0 {
			t.Errorf("nothing is left in the spoke, and %v, %v stay", r.sync.Source(managed, wire.KindWork).Keys(), r.tombstones)
		}
	})
}

func TestDeletionWaitsForClusterUnlessInBackground(t *testing.T) {
	const full = maxBackgroundDeletions
	option := func(policy workv1.DeletePropagationPolicyType) func(client.Object) {
		return func(o client.Object) {
			setBackgroundDeletion(o)
			if w, ok := o.(*workv1.ManifestWork); ok {
				w.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: policy}
			}
		}
	}
	annotated := func(key, value string) func(client.Object) {
		return func(o client.Object) {
			setBackgroundDeletion(o)
			o.GetAnnotations()[key] = value
		}
	}
	tests := map[string]struct {
		reason  string
		change  func(client.Object)
		cluster func(*clusterv1.ManagedCluster)
		ends    int
		waits   bool
	}{
		"asked for":           {reason: "its user wants it gone", change: setBackgroundDeletion},
		"foreground":          {reason: "an eviction deletes all, too", change: option(workv1.DeletePropagationPolicyTypeForeground)},
		"not asked for":       {reason: "as OCM does", change: func(client.Object) {}, waits: true},
		"another word":        {reason: "it is none that is known", change: annotated(AnnotationDeletion, "foreground"), waits: true},
		"objects stay":        {reason: "an eviction would delete them", change: option(workv1.DeletePropagationPolicyTypeOrphan), waits: true},
		"some objects stay":   {reason: "an eviction would delete them", change: option(workv1.DeletePropagationPolicyTypeSelectivelyOrphan), waits: true},
		"suspended":           {reason: "an eviction would not wait", change: annotated(wire.AnnotationSuspend, "true"), waits: true},
		"a cluster that goes": {reason: "detach waits for the works", change: setBackgroundDeletion, cluster: func(c *clusterv1.ManagedCluster) { managedcluster.MarkDetaching(c, time.Now()) }, waits: true},
		"no room":             {reason: "what is remembered is bounded", change: setBackgroundDeletion, ends: full, waits: true},
		"room for one":        {reason: "the bound is not reached", change: setBackgroundDeletion, ends: full - 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			k := manifestWorks(testHash, false)
			work, cluster := k.newWork(managed, "w", tc.change), clusterNamed(managed)
			if tc.cluster != nil {
				tc.cluster(cluster)
			}
			r := newRig(t, cluster, work)
			r.isPublished(t)
			for i := range tc.ends {
				r.tombstones[wire.WorkKey{Dialect: k.Name, Namespace: "c2", Name: strconv.Itoa(i)}] = tombstone{published: true}
			}
			if there := r.deleteWork(t, k, work); there != tc.waits {
				t.Errorf("%s: there %t", tc.reason, there)
			}
			if _, sent, ok := r.loadWork(t, "manifestwork/c1/w"); !ok || !sent.Deleting {
				t.Errorf("%s: sent %t, %+v", tc.reason, ok, sent)
			}
			r.report(t, managed, "manifestwork/c1/w", "uid-w", wire.WorkStatus{Finalized: true})
			if r.observeDeletion(t, k, k.newWork(managed, "w", tc.change)) {
				t.Errorf("%s: it is there when its objects are gone", tc.reason)
			}
		})
	}
}

func TestBackgroundAnnotationAppliesDuringDeletion(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		work := k.newWork(managed, "w")
		r := newRig(t, clusterNamed(managed), work)
		r.isPublished(t)
		if !r.deleteWork(t, k, work) {
			t.Fatal("the work does not wait")
		}
		waits, _ := r.get(t, k, work)
		setBackgroundDeletion(waits.Object())
		if err := r.client.Update(t.Context(), waits.Object()); err != nil {
			t.Fatal(err)
		}
		r.reconcile(t, k, work)
		if r.observeDeletion(t, k, waits.Object()) {
			t.Error("the work waits for its cluster")
		}
		if _, sent, ok := r.loadWork(t, k.Name+"/c1/w"); !ok || !sent.Deleting {
			t.Errorf("sent %t, %+v", ok, sent)
		}
	})
}

func TestBackgroundDeletionSurvivesReconnect(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		work := k.newWork(managed, "w", setBackgroundDeletion)
		r := newRig(t, clusterNamed(managed), work)
		r.isPublished(t)
		s := newSpoke(t)
		cut := r.connect(t, s)
		receive(t, s.works, "the work")
		cut()
		if r.deleteWork(t, k, work) { // while the cluster is away
			t.Fatal("the work waits for its cluster")
		}
		cut = r.connect(t, s)
		defer cut()
		told := receive(t, s.works, "its deletion")
		if sent, err := wire.DecodeWork(told.Body); err != nil || !sent.Deleting || told.UID != "uid-w" {
			t.Fatalf("sent %+v, %v", sent, err)
		}
		r.report(t, managed, told.Key, told.UID, wire.WorkStatus{Finalized: true})
		if key := receive(t, s.gone, "that the hub has forgotten it"); key != told.Key {
			t.Errorf("withdrawn: %s", key)
		}
	})
}

func TestNewWorkReplacesBackgroundDeletionOfSameName(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		work, key := k.newWork(managed, "w", setBackgroundDeletion), k.Name+"/c1/w"
		r := newRig(t, clusterNamed(managed), work)
		r.isPublished(t)
		r.deleteWork(t, k, work)
		next := k.newWork(managed, "w", setBackgroundDeletion, func(o client.Object) { o.SetUID("uid-next") })
		if err := r.client.Create(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		// The agent is done with the first before the hub has looked at the second.
		r.report(t, managed, key, "uid-w", wire.WorkStatus{Finalized: true})
		r.reconcile(t, k, next)
		r.report(t, managed, key, "uid-w", wire.WorkStatus{Finalized: true})
		if got, there := r.get(t, k, next); !there || got.Object().GetDeletionTimestamp() != nil {
			t.Fatalf("the second is there %t", there)
		}
		if uid, sent, ok := r.loadWork(t, key); !ok || uid != "uid-next" || sent.Deleting || len(r.tombstones) != 0 {
			t.Errorf("sent %t: %s, %+v, remembered %v", ok, uid, sent, r.tombstones)
		}
		r.deleteWork(t, k, next)
		r.report(t, managed, key, "uid-w", wire.WorkStatus{Finalized: true})
		if uid, sent, ok := r.loadWork(t, key); !ok || uid != "uid-next" || !sent.Deleting {
			t.Errorf("sent %t: %s, %+v", ok, uid, sent)
		}
	})
}

func TestBackgroundDeletionWithForeignFinalizerIsWithdrawnWhenObjectsAreGone(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		work, key := k.newWork(managed, "w", setBackgroundDeletion, addForeignFinalizer), k.Name+"/c1/w"
		r := newRig(t, clusterNamed(managed), work)
		r.isPublished(t)
		if !r.deleteWork(t, k, work) {
			t.Fatal("the finalizer of others is off")
		}
		r.reconcile(t, k, work)
		held, _ := r.get(t, k, work)
		if diff := cmp.Diff([]string{"example.com/theirs"}, held.Object().GetFinalizers()); diff != "" {
			t.Errorf("finalizers (-want +got):\n%s", diff)
		}
		if _, sent, ok := r.loadWork(t, key); !ok || !sent.Deleting || len(r.sync.Source(managed, wire.KindWork).Keys()) != 1 {
			t.Errorf("sent %t, %+v", ok, sent)
		}
		r.report(t, managed, key, "uid-w", wire.WorkStatus{Finalized: true})
		r.reconcile(t, k, work)
		if r.countTombstones() != 0 {
			t.Errorf("nothing is left in the spoke, and %v, %v stay", r.sync.Source(managed, wire.KindWork).Keys(), r.tombstones)
		}
		r.forceDelete(t, k, work)
		r.observeDeletion(t, k, held.Object())
		if r.countTombstones() != 0 {
			t.Errorf("the work is gone, and %v, %v stay", r.sync.Source(managed, wire.KindWork).Keys(), r.tombstones)
		}
	})
}

func TestBackgroundDeletionHandlesEventsDuringFinalizerPatch(t *testing.T) {
	tests := map[string]struct {
		reason string
		// meanwhile happens before the API server sees our write, which it answers.
		meanwhile func(t *testing.T, r *rig, k *kind, work client.Object) error
		kept      bool
	}{
		"the agent is done": {
			reason: "there is nobody left to wait for",
			meanwhile: func(t *testing.T, r *rig, k *kind, work client.Object) error {
				t.Helper()
				last, _ := r.get(t, k, work)
				r.report(t, managed, k.Name+"/c1/w", "uid-w", wire.WorkStatus{Finalized: true})
				r.sendDeleteEvent(t, k, last.Object(), false)
				return nil
			},
		},
		"the work is taken away, and its end seen": {
			reason: "its cluster knows of its deletion, as of one that somebody takes the finalizer off",
			meanwhile: func(t *testing.T, r *rig, k *kind, work client.Object) error {
				t.Helper()
				last, _ := r.get(t, k, work)
				r.forceDelete(t, k, work)
				r.sendDeleteEvent(t, k, last.Object(), false)
				return nil
			},
		},
		"the API server fails": {
			reason: "it is tried again", kept: true,
			meanwhile: func(*testing.T, *rig, *kind, client.Object) error { return errors.New("boom") },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k *kind) {
				work := k.newWork(managed, "w", setBackgroundDeletion)
				r := newRig(t, clusterNamed(managed), work)
				r.isPublished(t)
				if err := r.client.Delete(t.Context(), k.newWork(managed, "w")); err != nil {
					t.Fatal(err)
				}
				r.patching = func() error {
					r.patching = nil
					return tc.meanwhile(t, r, k, work)
				}
				for range 2 {
					_, _ = workReconciler{works: r.Works, kind: k}.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(work)})
				}
				if _, there := r.get(t, k, work); there {
					t.Errorf("%s: the work is there", tc.reason)
				}
				if kept := r.countTombstones() != 0; kept != tc.kept {
					t.Errorf("%s: %v and %v are remembered", tc.reason, r.sync.Source(managed, wire.KindWork).Keys(), r.tombstones)
				}
			})
		})
	}
}

func TestStaleCacheDoesNotRepublishDeletion(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		work, key := k.newWork(managed, "w", setBackgroundDeletion, addForeignFinalizer), k.Name+"/c1/w"
		for name, there := range map[string]bool{"of a work that others hold": true, "of a work that is gone": false} {
			t.Run(name, func(t *testing.T) {
				r := newRig(t, clusterNamed(managed), work)
				r.isPublished(t)
				if err := r.client.Delete(t.Context(), k.newWork(managed, "w")); err != nil {
					t.Fatal(err)
				}
				before, _ := r.get(t, k, work)
				r.reconcile(t, k, work)
				r.report(t, managed, key, "uid-w", wire.WorkStatus{Finalized: true})
				if !there {
					r.forceDelete(t, k, work)
				}
				r.lagging = before.Object()
				r.reconcile(t, k, work)
				r.lagging = nil
				if there {
					r.reconcile(t, k, work)
				} else {
					r.observeDeletion(t, k, before.Object())
				}
				if keys := r.sync.Source(managed, wire.KindWork).Keys(); len(keys) != 0 {
					t.Errorf("nothing is left in the spoke, and %v, %v stay", keys, r.tombstones)
				}
			})
		}
	})
}

func newDeletingStatus(message string) wire.WorkStatus {
	return wire.WorkStatus{ObservedGeneration: 1, Conditions: []metav1.Condition{{
		Type: conditionDeleting, Status: metav1.ConditionTrue, Reason: "WorkDeleting", Message: message, LastTransitionTime: metav1.Now(),
	}}}
}

func TestLateBackgroundDeletionIsReported(t *testing.T) {
	k := multicluster()
	objects := []client.Object{clusterNamed(managed)}
	for _, name := range []string{"a", "b", "done"} {
		objects = append(objects, k.newWork(managed, name, setBackgroundDeletion))
	}
	r := newRig(t, objects...)
	r.isPublished(t)
	for _, o := range objects[1:] {
		r.deleteWork(t, k, o)
	}
	r.report(t, managed, "multicluster/c1/a", "uid-a", newDeletingStatus("1 resources remain: boom"))
	r.report(t, managed, "multicluster/c1/done", "uid-done", wire.WorkStatus{Finalized: true})
	began := time.Now()
	const want = "Warning WorksNotDeleted 2 works were deleted in the background, and after 5m0s the cluster has not removed all that they applied: " +
		"multicluster/a (1 resources remain: boom), multicluster/b (no answer)"
	for _, at := range []struct {
		reason string
		after  time.Duration
		want   []string
	}{
		{reason: "most deletions take a moment", after: lateDeletionAfter - time.Minute},
		{reason: "it takes long", after: lateDeletionAfter + time.Minute, want: []string{want}},
		{reason: "it was told", after: lateDeletionAfter + 2*time.Minute},
		{reason: "events do not last", after: lateDeletionAfter + time.Minute + lateDeletionRepeat, want: []string{want}},
	} {
		r.warnOfLateDeletions(t.Context(), began.Add(at.after))
		if diff := cmp.Diff(at.want, r.drainEvents()); diff != "" {
			t.Errorf("after %s, %s (-want +got):\n%s", at.after, at.reason, diff)
		}
	}
}

// drainEvents are the events since the last call.
func (r *rig) drainEvents() (all []string) {
	for {
		select {
		case e := <-r.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

func TestLateDeletionsOfOneClusterShareOneEvent(t *testing.T) {
	var late []string
	for i := range 1000 {
		late = append(late, fmt.Sprintf("manifestwork/%03d%s (%s)", i, strings.Repeat("n", 60), strings.Repeat("\u00e4", maxProgressBytes/2)))
	}
	text := formatLateDeletions(late)
	if len(text) > maxEventNote || !strings.HasPrefix(text, "1000 works ") || !strings.Contains(text, "and 990 more: manifestwork/000n") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}

func TestReleaseNamesUnfinishedBackgroundDeletions(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		work := k.newWork(managed, "w", setBackgroundDeletion)
		r := newRig(t, clusterNamed(managed), work)
		r.isPublished(t)
		r.deleteWork(t, k, work)
		left, err := r.Release(t.Context(), managed)
		if diff := cmp.Diff([]string{k.Name + "/w"}, left); err != nil || diff != "" {
			t.Errorf("%v, left (-want +got):\n%s", err, diff)
		}
		if left, err = r.Release(t.Context(), managed); err != nil || len(left)+len(r.tombstones) != 0 {
			t.Errorf("a second call names %v, %v; remembered %v", left, err, r.tombstones)
		}
	})
}
