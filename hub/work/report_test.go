// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/internal/statuswriter"
	"github.com/spokelet/spokelet/internal/workconvert"
	"github.com/spokelet/spokelet/tunnel/resource"
)

func statusBody(t *testing.T, s wire.WorkStatus) []byte {
	t.Helper()
	body, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func applied(generation int64, status metav1.ConditionStatus) wire.WorkStatus {
	c := metav1.Condition{
		Type: "Applied", Status: status, Reason: "AppliedWorkComplete", ObservedGeneration: generation,
		LastTransitionTime: metav1.NewTime(time.Unix(1, 0)),
	}
	m := workv1.ManifestCondition{ResourceMeta: workv1.ManifestResourceMeta{Version: "v1", Kind: "ConfigMap", Name: "a"}, Conditions: []metav1.Condition{c}}
	return wire.WorkStatus{ObservedGeneration: generation, Conditions: []metav1.Condition{c}, Manifests: []workv1.ManifestCondition{m}}
}

// report hands a status over as an agent does and writes what is pending.
func (r *rig) report(t *testing.T, cluster, key, uid string, s wire.WorkStatus) {
	t.Helper()
	r.receive(cluster, resource.Resource{Key: key, UID: uid, Body: statusBody(t, s)})
	for r.queue.Len() > 0 {
		r.handleNext(t.Context())
	}
}

func TestReportsOnForeignWorksAreRejected(t *testing.T) {
	tests := map[string]struct {
		reason, cluster, key, uid string
		written                   bool
	}{
		"its own work":            {reason: "that is its business", cluster: managed, key: "KIND/c1/w", uid: "uid-w", written: true},
		"another cluster's work":  {reason: "a spoke is not trusted with others", cluster: "c2", key: "KIND/c1/w", uid: "uid-w"},
		"an earlier work":         {reason: "the name was taken again", cluster: managed, key: "KIND/c1/w", uid: "uid-before"},
		"another dialect":         {reason: "that is another object", cluster: managed, key: "ocm/c1/w", uid: "uid-w"},
		"a work that is not here": {reason: "what an agent makes us hold is bounded", cluster: managed, key: "KIND/c1/x", uid: "uid-w"},
		"no key at all":           {reason: "garbage is dropped", cluster: managed, key: "c1", uid: "uid-w"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k *kind) {
				w := k.newWork(managed, "w", k.addFinalizer)
				r := newRig(t, clusterNamed(managed), w)
				r.report(t, tc.cluster, strings.Replace(tc.key, "KIND", k.Name, 1), tc.uid, applied(1, metav1.ConditionTrue))
				got, _ := r.get(t, k, w)
				if (len(*got.Conditions()) > 0) != tc.written {
					t.Errorf("%s: status %+v", tc.reason, got.Status())
				}
				if r.queue.PendingCount() != 0 {
					t.Errorf("%s: %d reports are kept", tc.reason, r.queue.PendingCount())
				}
			})
		})
	}
}

// observedGeneration is what the Applied of a work speaks of.
func observedGeneration(it workconvert.Work) int64 {
	return workconvert.ObservedGeneration(*it.Conditions())
}

func TestReportOnWorkNewerThanCacheIsWritten(t *testing.T) {
	tests := map[string]struct {
		reason  string
		lags    func(client.Object)
		deleted bool
		report  wire.WorkStatus
	}{
		"of a deletion":     {reason: "nobody says twice that nothing is left", lags: func(client.Object) {}, deleted: true, report: wire.WorkStatus{Finalized: true}},
		"of another work":   {reason: "nobody says twice what has not changed", lags: func(w client.Object) { w.SetUID("uid-before") }, report: applied(1, metav1.ConditionTrue)},
		"of neither of two": {reason: "what is not so is not written", lags: func(client.Object) {}, report: wire.WorkStatus{Finalized: true}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k *kind) {
				w := k.newWork(managed, "w", k.addFinalizer)
				r := newRig(t, clusterNamed(managed), w)
				r.lagging, _ = w.DeepCopyObject().(client.Object)
				tc.lags(r.lagging)
				if tc.deleted {
					if err := r.client.Delete(t.Context(), w.DeepCopyObject().(client.Object)); err != nil {
						t.Fatal(err)
					}
				}
				r.report(t, managed, k.Name+"/c1/w", "uid-w", tc.report)
				got, there := r.get(t, k, w)
				if there == tc.deleted {
					t.Errorf("%s: the work is there: %t", tc.reason, there)
				}
				if written := len(*got.Conditions()) > 0; written != (len(tc.report.Conditions) > 0) {
					t.Errorf("%s: status %+v", tc.reason, got.Status())
				}
				if r.queue.PendingCount() != 0 {
					t.Errorf("%s: %d reports are kept", tc.reason, r.queue.PendingCount())
				}
			})
		})
	}
}

func TestStatusIsWrittenOnlyWhenChanged(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		w := k.newWork(managed, "w", k.addFinalizer)
		theirs := []metav1.Condition{{Type: "Theirs", Status: metav1.ConditionTrue, Reason: "X", LastTransitionTime: metav1.Now()}}
		switch w := w.(type) {
		case *v1alpha1.Work:
			w.Status.Conditions = theirs
		case *workv1.ManifestWork:
			w.Status.Conditions = theirs
		}
		r := newRig(t, clusterNamed(managed), w)
		tell := func(s wire.WorkStatus) { r.report(t, managed, k.Name+"/c1/w", "uid-w", s) }

		tell(applied(2, metav1.ConditionTrue))
		first, _ := r.get(t, k, w)
		if r.writes != 1 || len(*first.Conditions()) != 2 {
			t.Fatalf("%d writes, %+v", r.writes, first.Status())
		}
		later := applied(2, metav1.ConditionTrue)
		later.Conditions[0].LastTransitionTime = metav1.NewTime(time.Unix(1_000_000, 0))
		tell(later)
		if r.writes != 1 {
			t.Error("a write that changes only a time")
		}
		tell(applied(1, metav1.ConditionFalse))
		if got, _ := r.get(t, k, w); r.writes != 1 || observedGeneration(got) != 2 {
			t.Errorf("an overtaken report is written: %+v", got.Status())
		}
		r.conflict = 1
		tell(applied(3, metav1.ConditionTrue))
		got, _ := r.get(t, k, w)
		if observedGeneration(got) != 3 {
			t.Errorf("a conflict loses the report: %+v", got.Status())
		}
		before := meta.FindStatusCondition(*first.Conditions(), "Applied").LastTransitionTime
		if now := meta.FindStatusCondition(*got.Conditions(), "Applied").LastTransitionTime; !now.Equal(&before) {
			t.Errorf("the transition time moved from %s to %s", before, now)
		}
		if meta.FindStatusCondition(*got.Conditions(), "Theirs") == nil {
			t.Error("somebody else's condition is gone")
		}
	})
}

func TestStatusPatchContainsOnlyChanges(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		w := k.newWork(managed, "w", k.addFinalizer)
		r := newRig(t, clusterNamed(managed), w)
		tell := func(s wire.WorkStatus) string {
			r.report(t, managed, k.Name+"/c1/w", "uid-w", s)
			return r.patches[len(r.patches)-1]
		}
		tell(applied(1, metav1.ConditionTrue))
		shared := applied(1, metav1.ConditionTrue)
		shared.Conditions = append(shared.Conditions, metav1.Condition{
			Type: workconvert.TypeSharedResources, Status: metav1.ConditionTrue, Reason: "X", LastTransitionTime: metav1.Now(),
		})
		if patch := tell(shared); strings.Contains(patch, "anifest") || !strings.Contains(patch, "resourceVersion") {
			t.Errorf("no manifest changed, and the patch is %s", patch)
		}
		shared.Manifests[0].Conditions[0].Status = metav1.ConditionFalse
		if patch := tell(shared); strings.Contains(patch, workconvert.TypeSharedResources) {
			t.Errorf("the work's conditions are as before, and the patch is %s", patch)
		}
		shared.Manifests = nil
		tell(shared)
		if got, _ := r.get(t, k, w); strings.Contains(string(mustJSON(t, got.Status())), "ConfigMap") {
			t.Errorf("no manifest is left, and the status is %+v", got.Status())
		}
	})
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// remembersWrite tells whether the version of our last write of a work is remembered.
func (r *rig) remembersWrite(k *kind, w client.Object) bool {
	_, ok := r.ownWrites.After(k.keyOf(w), "0")
	return ok
}

func TestReportThatRevertsOwnWriteIsWritten(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		w := k.newWork(managed, "w", k.addFinalizer)
		r := newRig(t, clusterNamed(managed), w)
		tell := func(status metav1.ConditionStatus) {
			r.report(t, managed, k.Name+"/c1/w", "uid-w", applied(1, status))
		}
		tell(metav1.ConditionTrue)
		cached, _ := r.get(t, k, w)
		r.lagging = cached.Object()
		tell(metav1.ConditionFalse)
		tell(metav1.ConditionTrue)
		got, _ := r.get(t, k, w)
		if !meta.IsStatusConditionTrue(*got.Conditions(), "Applied") {
			t.Error("the cache had not seen the last write yet, and the report beside it looked like no change")
		}
		r.lagging = nil
		tell(metav1.ConditionTrue)
		if r.remembersWrite(k, w) {
			t.Error("the cache has caught up, and the write is still remembered")
		}
	})
}

func TestDeletedWorkIsForgotten(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		w := k.newWork(managed, "w")
		r := newRig(t, clusterNamed(managed), w)
		r.reconcile(t, k, w)
		if !r.remembersWrite(k, w) {
			t.Fatal("the write of the finalizer is not remembered")
		}
		r.forceDelete(t, k, w)
		r.sendDeleteEvent(t, k, w, true)
		r.reconcile(t, k, w)
		if r.remembersWrite(k, w) || len(r.tombstones) != 0 || len(r.sync.Source(managed, wire.KindWork).Keys()) != 0 {
			t.Error("the work is gone, and is still remembered")
		}
	})
}

func TestFinalizedReportRemovesFinalizer(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		gone, here := k.newWork(managed, "gone", k.setDeleting), k.newWork(managed, "here", k.addFinalizer)
		r := newRig(t, clusterNamed(managed), gone, here)
		r.report(t, managed, k.Name+"/c1/gone", "uid-gone", wire.WorkStatus{Finalized: true})
		if _, ok := r.get(t, k, gone); ok {
			t.Error("the work is still held")
		}
		r.report(t, managed, k.Name+"/c1/here", "uid-here", wire.WorkStatus{Finalized: true})
		if got, _ := r.get(t, k, here); !controllerutil.ContainsFinalizer(got.Object(), k.Finalizer) {
			t.Error("a work that nobody deletes lost its finalizer")
		}
	})
}

func TestEventsAreRecordedOnConditionChanges(t *testing.T) {
	condition := func(status metav1.ConditionStatus, reason string) []metav1.Condition {
		return []metav1.Condition{{Type: "Applied", Status: status, Reason: reason, Message: "m"}}
	}
	tests := map[string]struct {
		reason        string
		before, after []metav1.Condition
		want          string
	}{
		"applied at once":     {reason: "as nearly all works are", after: condition("True", "Done")},
		"failed":              {reason: "somebody has to act", after: condition("False", "Bad"), want: "Warning Bad m"},
		"failed after all":    {reason: "it changed", before: condition("True", "Done"), after: condition("False", "Bad"), want: "Warning Bad m"},
		"still failing":       {reason: "said already", before: condition("False", "Bad"), after: condition("False", "Bad")},
		"failing otherwise":   {reason: "there is news", before: condition("False", "Bad"), after: condition("False", "Worse"), want: "Warning Worse m"},
		"mended":              {reason: "nobody has to act any more", before: condition("False", "Bad"), after: condition("True", "Done"), want: "Normal Done m"},
		"nothing of Applied":  {reason: "there is nothing to say", before: condition("True", "Done")},
		"unknown, then known": {reason: "it did not fail", before: condition("Unknown", "X"), after: condition("True", "Done")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.recordEvent(multicluster().newWork(managed, "w"), tc.before, tc.after)
			var got string
			if len(r.events.Events) > 0 {
				got = <-r.events.Events
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestOversizedStatusIsTrimmed(t *testing.T) {
	const all = 5_000 // of which a work has room for less than 4,200
	eachKind(t, func(t *testing.T, k *kind) {
		it := k.New()
		report := wire.WorkStatus{Conditions: []metav1.Condition{{Type: "Applied", Status: metav1.ConditionFalse, ObservedGeneration: 4}}}
		for i := range all {
			status := metav1.ConditionTrue
			if i == all-1 {
				status = metav1.ConditionFalse
			}
			report.Manifests = append(report.Manifests, workv1.ManifestCondition{
				ResourceMeta: workv1.ManifestResourceMeta{Ordinal: int32(i), Kind: "ConfigMap", Name: "some-name-of-usual-length"},
				Conditions:   []metav1.Condition{{Type: "Applied", Status: status, Message: strings.Repeat("m", 100)}},
			})
		}
		applyReport(it, newReport(report), nil, metav1.NewTime(time.Unix(1, 0)))
		if n := workconvert.JSONSize(it.Status()); n > statuswriter.MaxObjectBytes {
			t.Errorf("status has %d bytes", n)
		}
		text := string(mustJSON(t, it.Status()))
		if !strings.Contains(text, fmt.Sprintf(`"ordinal":%d`, all-1)) {
			t.Error("what failed is left out")
		}
		c := meta.FindStatusCondition(*it.Conditions(), conditionTrimmed)
		if left := strings.Count(text, `"ordinal"`); c == nil || c.ObservedGeneration != 4 || left < 1000 {
			t.Fatalf("%d manifests, condition %+v", left, c)
		}
		before := mustJSON(t, it.Status())
		applyReport(it, newReport(report), nil, metav1.NewTime(time.Unix(2, 0)))
		if again := mustJSON(t, it.Status()); !bytes.Equal(before, again) {
			t.Error("the same report changes the status")
		}
		report.Manifests = report.Manifests[:10]
		applyReport(it, newReport(report), nil, metav1.NewTime(time.Unix(3, 0)))
		if meta.FindStatusCondition(*it.Conditions(), conditionTrimmed) != nil {
			t.Error("everything fits, and the status says otherwise")
		}
	})
}

func newReport(s wire.WorkStatus) statuswriter.Report { return statuswriter.Report{Status: s} }

func TestReportOnUnknownWorkIsNotDecoded(t *testing.T) {
	k := multicluster()
	r := newRig(t, clusterNamed(managed), k.newWork(managed, "w", k.addFinalizer))
	bomb := []byte(`{"manifests":[{}` + strings.Repeat(",{}", 400_000) + `]}`)
	for name, tc := range map[string]struct {
		reason, cluster, key string
	}{
		"another cluster's": {reason: "a spoke is not trusted with others", cluster: "c2", key: "multicluster/c1/w"},
		"one that is not":   {reason: "names are made up", cluster: managed, key: "multicluster/c1/x"},
		"no key":            {reason: "so are keys", cluster: managed, key: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r.receive(tc.cluster, resource.Resource{Key: tc.key, UID: "uid-w", Body: bomb})
			runtime.ReadMemStats(&after)
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
				t.Errorf("%s: %d bytes were allocated", tc.reason, grown)
			}
		})
	}
}

func TestReportMemoryIsReleased(t *testing.T) {
	k := multicluster()
	r := newRig(t, clusterNamed(managed), k.newWork(managed, "w", k.addFinalizer))
	memory := quota.NewMemory(1000, 1000)
	receive := func(key string, body []byte) {
		account := memory.Account(managed)
		if err := account.Grow(100); err != nil {
			t.Fatal(err)
		}
		r.receive(managed, resource.Resource{Key: key, UID: "uid-w", Body: body, Account: account})
	}
	held := func(when string, want int64) {
		t.Helper()
		if got := memory.Held(); got != want {
			t.Errorf("%s: %d bytes are held, want %d", when, got, want)
		}
	}
	receive("multicluster/c1/x", statusBody(t, applied(1, metav1.ConditionTrue)))
	held("it is about no work", 0)
	receive("multicluster/c1/w", []byte("{"))
	held("it cannot be read", 0)
	receive("multicluster/c1/w", statusBody(t, applied(1, metav1.ConditionTrue)))
	held("it is to be written", 100)
	receive("multicluster/c1/w", statusBody(t, applied(1, metav1.ConditionFalse)))
	held("it takes the place of the one before", 100)
	r.conflict = 3
	r.handleNext(t.Context())
	held("it could not be written", 100)
	r.handleNext(t.Context())
	held("it is written", 0)
}

func TestInvalidReportsAreLoggedAtLimitedRate(t *testing.T) {
	k := multicluster()
	r := newRig(t, clusterNamed(managed), k.newWork(managed, "w", k.addFinalizer))
	lines := 0
	r.log = funcr.New(func(string, string) { lines++ }, funcr.Options{})
	for i := range 1000 {
		r.receive(managed, resource.Resource{Key: "multicluster/c1/w", UID: "uid-w", Body: []byte("{")})
		r.receive(managed, resource.Resource{Key: strconv.Itoa(i), UID: "uid-w"})
	}
	if lines == 0 || lines > 20 {
		t.Errorf("2000 mistakes made %d lines", lines)
	}
}
