// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/workconvert"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// apiServer holds one ManifestWork.
type apiServer struct {
	t *testing.T

	mu      sync.Mutex
	work    *workv1.ManifestWork // guarded by mu; nil is none
	patches []string             // guarded by mu
	// refuses is what is refused in a patch, and how; guarded by mu.
	refuses string
	refusal metav1.Status
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if s.work == nil {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	if r.Method == http.MethodPatch && !s.patch(w, r) {
		return
	}
	_ = json.NewEncoder(w).Encode(s.work)
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: reason, Code: int32(code),
	})
}

// patch merges one, unless it is for another version.
func (s *apiServer) patch(w http.ResponseWriter, r *http.Request) bool {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	var patch map[string]any
	if err := utiljson.Unmarshal(body, &patch); err != nil {
		s.t.Error(err)
	}
	if s.refuses != "" && strings.Contains(string(body), s.refuses) {
		w.WriteHeader(int(s.refusal.Code))
		_ = json.NewEncoder(w).Encode(s.refusal)
		return false
	}
	wanted := patch["metadata"].(map[string]any)
	if wanted["resourceVersion"] != s.work.ResourceVersion || wanted["uid"] != string(s.work.UID) {
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict)
		return false
	}
	s.patches = append(s.patches, r.URL.Path[strings.Index(r.URL.Path, "manifestworks/")+len("manifestworks/"):])
	raw, _ := json.Marshal(s.work)
	var now map[string]any
	_ = utiljson.Unmarshal(raw, &now)
	mergeInto(now, patch)
	raw, _ = json.Marshal(now)
	next := &workv1.ManifestWork{}
	if err := json.Unmarshal(raw, next); err != nil {
		s.t.Error(err)
	}
	s.work = next
	s.touch()
	return true
}

func mergeInto(to, patch map[string]any) {
	for key, value := range patch {
		child, ok := value.(map[string]any)
		into, also := to[key].(map[string]any)
		switch {
		case value == nil:
			delete(to, key)
		case ok && also:
			mergeInto(into, child)
		default:
			to[key] = value
		}
	}
}

// touch gives the work the next version; s.mu is held.
func (s *apiServer) touch() {
	version, _ := strconv.Atoi(s.work.ResourceVersion)
	s.work.ResourceVersion = strconv.Itoa(version + 1)
}

// change does what somebody else does.
func (s *apiServer) change(do func(*workv1.ManifestWork)) *workv1.ManifestWork {
	s.mu.Lock()
	defer s.mu.Unlock()
	do(s.work)
	s.touch()
	return s.work.DeepCopy()
}

func (s *apiServer) stored() *workv1.ManifestWork {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.work.DeepCopy()
}

// rig is a hub whose queues are worked on by hand.
type rig struct {
	*hub
	server    *apiServer
	reflector *reflectorStore
	received  []string // by the engine
	wanted    map[string]wire.Work
}

func newRig(t *testing.T, name string) *rig {
	t.Helper()
	r := &rig{wanted: map[string]wire.Work{}}
	r.server = &apiServer{t: t, work: &workv1.ManifestWork{
		TypeMeta:   metav1.TypeMeta{APIVersion: workv1.GroupVersion.String(), Kind: "ManifestWork"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: name, UID: "u1", ResourceVersion: "1", Generation: 1},
	}}
	server := httptest.NewServer(r.server)
	cfg := Config{Hub: &rest.Config{Host: server.URL, QPS: -1}, Cluster: "c1"}
	t.Cleanup(func() {
		closeIdleConnections(cfg.Hub)
		server.Close()
	})
	var err error
	if r.hub, err = newHub(cfg, prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.reports.ShutDown)
	t.Cleanup(r.finalizers.ShutDown)
	r.reflector = &reflectorStore{hub: r.hub, kind: r.kinds[0]}
	r.store.start(resource.Receiver{
		Put: func(p resource.Resource) {
			body, err := wire.DecodeWork(p.Body)
			if err != nil {
				t.Error(err)
			}
			r.received = append(r.received, "put "+p.Key)
			r.wanted[p.Key] = body
		},
		Delete: func(key string) { r.received = append(r.received, "delete "+key) },
		Synced: func() { r.received = append(r.received, "synced") },
	}, 1)
	return r
}

// deliver has the watch tell what is stored.
func (r *rig) deliver(t *testing.T) {
	t.Helper()
	if err := r.reflector.Update(r.server.stored()); err != nil {
		t.Fatal(err)
	}
}

// work does what waits in the queues now.
func (r *rig) run(t *testing.T) {
	t.Helper()
	for r.finalizers.Len() > 0 {
		key, _ := r.finalizers.Get()
		r.addFinalizer(t.Context(), key)
		r.finalizers.Done(key)
	}
	for r.reports.Len() > 0 {
		key, _ := r.reports.Get()
		r.writeReport(t.Context(), key)
		r.reports.Done(key)
	}
}

// acceptWork has the work seen and held, and the engine told.
func (r *rig) acceptWork(t *testing.T) {
	t.Helper()
	r.deliver(t)
	r.run(t)
	r.deliver(t)
	r.server.patches = nil
}

func (r *rig) report(t *testing.T, s wire.WorkStatus) {
	t.Helper()
	body, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Put(resource.Resource{Key: "manifestwork/c1/w", UID: "u1", Generation: s.ObservedGeneration, Body: body}); err != nil {
		t.Fatal(err)
	}
}

func applied(generation int64, status metav1.ConditionStatus) wire.WorkStatus {
	return wire.WorkStatus{ObservedGeneration: generation, Conditions: []metav1.Condition{{
		Type: workv1.WorkApplied, Status: status, Reason: "AppliedManifestWorkComplete", Message: "Apply manifest work complete",
		ObservedGeneration: generation, LastTransitionTime: metav1.Now(),
	}}}
}

func TestFinalizerIsAddedBeforeEngineReceivesWork(t *testing.T) {
	r := newRig(t, "w")
	r.deliver(t)
	if r.received != nil {
		t.Errorf("the engine has heard %v of a work that nobody holds", r.received)
	}
	r.run(t)
	if diff := cmp.Diff([]string{workconvert.ManifestWorkFinalizer}, r.server.stored().Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
	r.deliver(t)
	r.deliver(t)
	r.run(t)
	if diff := cmp.Diff([]string{"put manifestwork/c1/w"}, r.received); diff != "" {
		t.Errorf("the engine has heard (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"w"}, r.server.patches); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if got := r.wanted["manifestwork/c1/w"]; got.HubHash != workconvert.HubHash(r.kinds[0].client.Get().URL().Scheme+"://"+r.kinds[0].client.Get().URL().Host) {
		t.Errorf("hash %s", got.HubHash)
	}
}

func TestEngineReceivesRelevantChangesOnly(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*workv1.ManifestWork)
		hears  bool
	}{
		"a new generation":     {"it is another spec", func(w *workv1.ManifestWork) { w.Generation++ }, true},
		"other labels":         {"the anchor bears them", func(w *workv1.ManifestWork) { w.Labels = map[string]string{"a": "b"} }, true},
		"its deletion":         {"everything goes", func(w *workv1.ManifestWork) { now := metav1.Now(); w.DeletionTimestamp = &now }, true},
		"another of that name": {"it begins anew", func(w *workv1.ManifestWork) { w.UID = "u2" }, true},
		"an annotation":        {"nothing in the spoke depends on it", func(w *workv1.ManifestWork) { w.Annotations = map[string]string{"a": "b"} }, false},
		"its suspension":       {"nothing may be done", func(w *workv1.ManifestWork) { w.Annotations = map[string]string{wire.AnnotationSuspend: "true"} }, true},
		"a report of drift":    {"nothing may be written", func(w *workv1.ManifestWork) { w.Annotations = map[string]string{wire.AnnotationDrift: "report"} }, true},
		"a status":             {"it is what we said ourselves", func(w *workv1.ManifestWork) { w.Status.Conditions = applied(1, "True").Conditions }, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "w")
			r.acceptWork(t)
			r.received = nil
			r.server.change(c.change)
			r.deliver(t)
			if (r.received != nil) != c.hears {
				t.Errorf("%s: it has heard %v", c.reason, r.received)
			}
		})
	}
}

func TestStatusIsWrittenOnlyWhenChanged(t *testing.T) {
	r := newRig(t, "w")
	r.acceptWork(t)
	for range 3 { // the latest replaces those before it
		r.report(t, applied(1, metav1.ConditionFalse))
		r.report(t, applied(1, metav1.ConditionTrue))
	}
	r.run(t)
	r.report(t, applied(1, metav1.ConditionTrue))
	r.run(t)
	if diff := cmp.Diff([]string{"w/status"}, r.server.patches); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if !meta.IsStatusConditionTrue(r.server.stored().Status.Conditions, workv1.WorkApplied) {
		t.Errorf("status %+v", r.server.stored().Status)
	}
	// The watch has not brought back our own write: it counts all the same.
	r.report(t, applied(1, metav1.ConditionFalse))
	r.run(t)
	if len(r.server.patches) != 2 || meta.IsStatusConditionTrue(r.server.stored().Status.Conditions, workv1.WorkApplied) {
		t.Errorf("what takes the last status back is lost: %v", r.server.patches)
	}
}

func TestConflictIsRetriedWithCurrentVersion(t *testing.T) {
	r := newRig(t, "w")
	r.acceptWork(t)
	r.server.change(func(w *workv1.ManifestWork) {
		w.Status.Conditions = []metav1.Condition{{Type: "Theirs", Status: "True", Reason: "R", LastTransitionTime: metav1.Now()}}
	})
	r.report(t, applied(1, metav1.ConditionTrue))
	r.run(t)
	got := r.server.stored().Status.Conditions
	if !meta.IsStatusConditionTrue(got, workv1.WorkApplied) || !meta.IsStatusConditionTrue(got, "Theirs") {
		t.Errorf("conditions %+v", got)
	}
	r.server.change(func(w *workv1.ManifestWork) { w.Finalizers = []string{"theirs"} })
	r.deliver(t)
	r.server.change(func(w *workv1.ManifestWork) { w.Labels = map[string]string{"a": "b"} })
	r.run(t)
	if diff := cmp.Diff([]string{"theirs", workconvert.ManifestWorkFinalizer}, r.server.stored().Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
}

func TestStaleReportsAreDropped(t *testing.T) {
	cases := map[string]struct {
		reason string
		before func(*rig)
		report wire.WorkStatus
	}{
		"of an earlier generation": {
			"the later one is known", func(r *rig) {
				r.server.change(func(w *workv1.ManifestWork) { w.Status.Conditions = applied(5, "True").Conditions })
			},
			applied(4, metav1.ConditionFalse),
		},
		"of another work": {
			"it had the same name", func(r *rig) { r.server.change(func(w *workv1.ManifestWork) { w.UID = "u2" }) }, applied(1, metav1.ConditionFalse),
		},
		"that it is finished, and it is wanted": {
			"it was deleted and created again", func(*rig) {}, wire.WorkStatus{Finalized: true},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "w")
			r.acceptWork(t)
			c.before(r)
			r.deliver(t)
			r.report(t, c.report)
			r.run(t)
			if r.server.patches != nil {
				t.Errorf("%s: %v", c.reason, r.server.patches)
			}
		})
	}
}

func TestOversizedReportIsRejected(t *testing.T) {
	r := newRig(t, "w")
	r.acceptWork(t)
	big := applied(1, metav1.ConditionTrue)
	for i := range 20000 {
		big.Manifests = append(big.Manifests, workv1.ManifestCondition{ResourceMeta: workv1.ManifestResourceMeta{Ordinal: int32(i), Name: "a-name-of-some-length"}})
	}
	body, _ := json.Marshal(big)
	err := r.Put(resource.Resource{Key: "manifestwork/c1/w", UID: "u1", Body: body})
	if !errors.Is(err, resource.ErrTooLarge) {
		t.Errorf("%d bytes: %v", len(body), err)
	}
}

func TestReportBeforeWorkIsWrittenLater(t *testing.T) {
	r := newRig(t, "w")
	r.report(t, applied(1, metav1.ConditionTrue))
	r.run(t)
	r.acceptWork(t)
	r.run(t)
	if !meta.IsStatusConditionTrue(r.server.stored().Status.Conditions, workv1.WorkApplied) {
		t.Errorf("it is lost: %+v", r.server.stored().Status)
	}
	// One about a work that does not come is not kept for ever.
	if err := r.Put(resource.Resource{Key: "manifestwork/c1/other", UID: "u", Body: []byte(`{"observedGeneration":1}`)}); err != nil {
		t.Fatal(err)
	}
	if err := r.reflector.Replace([]any{r.server.stored()}, "5"); err != nil {
		t.Fatal(err)
	}
	if r.reports.PendingCount() != 0 {
		t.Errorf("%d reports are kept", r.reports.PendingCount())
	}
}

func setDeleted(w *workv1.ManifestWork) {
	now := metav1.Now()
	w.DeletionTimestamp = &now
}

func TestFinalizedReportRemovesFinalizer(t *testing.T) {
	r := newRig(t, "w")
	r.acceptWork(t)
	r.server.change(func(w *workv1.ManifestWork) { w.Finalizers = append(w.Finalizers, "theirs"); setDeleted(w) })
	r.deliver(t)
	if !r.wanted["manifestwork/c1/w"].Deleting {
		t.Error("the engine does not know that it is deleted")
	}
	r.report(t, wire.WorkStatus{Finalized: true})
	r.run(t)
	if diff := cmp.Diff([]string{"theirs"}, r.server.stored().Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
	r.deliver(t)
	if diff := cmp.Diff([]string{"put manifestwork/c1/w", "put manifestwork/c1/w", "delete manifestwork/c1/w"}, r.received); diff != "" {
		t.Errorf("the engine has heard (-want +got):\n%s", diff)
	}
}

func TestDeletionContinuesWhenFinalizerIsRemoved(t *testing.T) {
	r := newRig(t, "w")
	r.acceptWork(t)
	gone := r.server.change(setDeleted)
	r.deliver(t)
	// Another agent of this cluster was faster.
	r.server.work = nil
	if err := r.reflector.Delete(gone); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(r.received, "delete manifestwork/c1/w") {
		t.Error("the engine was told that the work is unknown, and keeps its objects")
	}
	r.report(t, wire.WorkStatus{Finalized: true})
	if !slices.Contains(r.received, "delete manifestwork/c1/w") {
		t.Error("the engine keeps the work for ever")
	}
	r.run(t)
}

func TestWorkDeletedDuringFinalizerPatchIsDeletedInSpoke(t *testing.T) {
	r := newRig(t, "w")
	r.acceptWork(t)
	gone := r.server.stored()
	r.server.work = nil
	if err := r.reflector.Delete(gone); err != nil {
		t.Fatal(err)
	}
	if !r.wanted["manifestwork/c1/w"].Deleting || slices.Contains(r.received, "delete manifestwork/c1/w") {
		t.Errorf("its objects stay: the engine has heard %v", r.received)
	}
	r.report(t, wire.WorkStatus{Finalized: true})
	r.run(t)
	if !slices.Contains(r.received, "delete manifestwork/c1/w") || len(r.store.works)+len(r.store.sent)+r.reports.PendingCount() != 0 {
		t.Errorf("something of it is kept: the engine has heard %v", r.received)
	}
}

// With the work its annotation is gone, which nobody could take off then.
func TestRemovedSuspendedWorkIsWithdrawn(t *testing.T) {
	for name, change := range map[string]func(*workv1.ManifestWork){"deleted before": setDeleted, "deleted in that instant": func(*workv1.ManifestWork) {}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "w")
			r.acceptWork(t)
			r.server.change(func(w *workv1.ManifestWork) {
				w.Annotations = map[string]string{wire.AnnotationSuspend: "true"}
				change(w)
			})
			r.deliver(t)
			if !r.wanted["manifestwork/c1/w"].Suspended {
				t.Error("the engine does not know that it is suspended")
			}
			gone := r.server.stored()
			r.server.work = nil
			if err := r.reflector.Delete(gone); err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(r.received, "delete manifestwork/c1/w") || len(r.store.works)+len(r.store.sent) != 0 {
				t.Errorf("it waits for ever: the engine has heard %v", r.received)
			}
		})
	}
}

func TestRemovedWorkIsWithdrawn(t *testing.T) {
	r := newRig(t, "w")
	r.acceptWork(t)
	if err := r.reflector.Replace([]any{r.server.stored()}, "5"); err != nil {
		t.Fatal(err)
	}
	if err := r.reflector.Replace(nil, "6"); err != nil {
		t.Fatal(err)
	}
	if err := r.reflector.Replace(nil, "7"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"put manifestwork/c1/w", "synced", "delete manifestwork/c1/w"}, r.received); diff != "" {
		t.Errorf("the engine has heard (-want +got):\n%s", diff)
	}
	if len(r.store.works)+len(r.store.sent) != 0 {
		t.Error("something of it is kept")
	}
}

func TestLateResponseDoesNotRestoreRemovedWork(t *testing.T) {
	r := newRig(t, "w")
	r.acceptWork(t)
	gone := r.server.change(setDeleted)
	r.deliver(t)
	r.report(t, wire.WorkStatus{Finalized: true})
	if err := r.reflector.Delete(gone); err != nil {
		t.Fatal(err)
	}
	late, _ := r.kinds[0].wrap(r.server.change(func(*workv1.ManifestWork) {}))
	r.store.refresh(r.kinds[0].key("w"), late)
	if len(r.store.works)+len(r.store.sent)+r.reports.PendingCount() != 0 {
		t.Error("something of it is kept")
	}
}

func TestLateResponseDoesNotReplaceRecreatedWork(t *testing.T) {
	r := newRig(t, "w")
	r.acceptWork(t)
	gone := r.server.change(setDeleted)
	r.deliver(t)
	r.report(t, wire.WorkStatus{Finalized: true})
	late, _ := r.kinds[0].wrap(r.server.change(func(w *workv1.ManifestWork) { w.Finalizers = nil }))
	if err := r.reflector.Delete(gone); err != nil {
		t.Fatal(err)
	}
	r.server.change(func(w *workv1.ManifestWork) { w.UID, w.DeletionTimestamp = "u2", nil })
	r.deliver(t)
	r.store.refresh(r.kinds[0].key("w"), late)
	r.run(t)
	if !slices.Contains(r.server.stored().Finalizers, workconvert.ManifestWorkFinalizer) {
		t.Error("nobody holds the new work, so the engine never hears of it")
	}
}

func TestTooLongNameIsRefused(t *testing.T) {
	long := strings.Repeat("w", workconvert.MaxManifestWorkName+1)
	r := newRig(t, long)
	r.deliver(t)
	r.run(t)
	got := meta.FindStatusCondition(r.server.stored().Status.Conditions, workv1.WorkApplied)
	if got == nil || got.Status != metav1.ConditionFalse || !strings.Contains(got.Message, "189 characters") {
		t.Errorf("Applied: %+v", got)
	}
	if r.received != nil || r.server.stored().Finalizers != nil {
		t.Errorf("the engine has heard %v, finalizers %v", r.received, r.server.stored().Finalizers)
	}
	// Somebody else's agent, or policy, may have put the finalizer on.
	r.server.change(func(w *workv1.ManifestWork) {
		w.Finalizers = []string{workconvert.ManifestWorkFinalizer}
		setDeleted(w)
	})
	r.deliver(t)
	r.run(t)
	if len(r.server.stored().Finalizers) > 0 {
		t.Error("it cannot be deleted")
	}
}

func TestInvalidObjectsAndReportsAreErrors(t *testing.T) {
	r := newRig(t, "w")
	for name, err := range map[string]error{
		"an object of another kind":   r.reflector.Add(&metav1.Status{}),
		"one that is deleted":         r.reflector.Delete(&metav1.Status{}),
		"a list of them":              r.reflector.Replace([]any{&metav1.Status{}}, "1"),
		"a report without a key":      r.Put(resource.Resource{Key: "x"}),
		"a report without a status":   r.Put(resource.Resource{Key: "manifestwork/c1/w", Body: []byte("{")}),
		"a report of a bad condition": r.Put(resource.Resource{Key: "manifestwork/c1/w", Body: []byte(`{"conditions":[{"type":" "}]}`)}),
	} {
		if err == nil {
			t.Errorf("%s passes", name)
		}
	}
}
