// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/events"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/testing/livetest"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// running is Works in a manager on a real API server.
type running struct {
	*Works

	admin  client.Client
	source func(cluster string) *resource.Source
}

// runLive does so with what wrap makes of the manager's client. It sees these namespaces
// alone, and the ManagedCluster of the first: others are those of tests that run at the same
// time.
func runLive(t *testing.T, admin liveHub, namespaces []string, wrap ...func(client.Client) client.Client) running {
	t.Helper()
	own := map[string]cache.Config{}
	for _, name := range namespaces {
		own[name] = cache.Config{}
	}
	record := cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, namespaces[0])}
	mgr, err := ctrl.NewManager(admin.config, ctrl.Options{
		Scheme: admin.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
		Cache:      cache.Options{DefaultNamespaces: own, ByObject: map[client.Object]cache.ByObject{&clusterv1.ManagedCluster{}: record}},
	})
	if err != nil {
		t.Fatal(err)
	}
	hub, writer := resource.NewHub(), mgr.GetClient()
	for _, f := range wrap {
		writer = f(writer)
	}
	w, err := New(Config{Sync: hub, Client: writer, Events: events.NewFakeRecorder(1000), HubHash: testHash})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Errorf("manager: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		ended.Wait()
	})
	return running{Works: w, admin: admin, source: func(cluster string) *resource.Source { return hub.Source(cluster, wire.KindWork) }}
}

// cluster makes a namespace and its ManagedCluster, which is ours.
func (h liveHub) cluster(t *testing.T) string {
	t.Helper()
	name := liveNamespace(t, h, nil)
	record := clusterNamed(name)
	if err := h.Create(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Delete(context.WithoutCancel(t.Context()), record) })
	return name
}

func (r running) create(t *testing.T, namespace, name string, change ...func(client.Object)) *workv1.ManifestWork {
	t.Helper()
	work := manifestWorks(testHash, false).newWork(namespace, name, change...).(*workv1.ManifestWork)
	work.UID = ""
	if err := r.admin.Create(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = r.admin.Delete(ctx, work)
		_ = r.admin.Patch(ctx, work, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
	})
	return work
}

// await reads a work until it is as it should be.
func (r running) await(t *testing.T, work *workv1.ManifestWork, what string, ready func(*workv1.ManifestWork) bool) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("%s: %+v", what, work)
		}
	}()
	livetest.Eventually(t, what, func() bool {
		if err := r.admin.Get(t.Context(), client.ObjectKeyFromObject(work), work); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return ready(work)
	})
}

func (r running) awaitGone(t *testing.T, work *workv1.ManifestWork) {
	t.Helper()
	livetest.Eventually(t, "the work is gone", func() bool {
		err := r.admin.Get(t.Context(), client.ObjectKeyFromObject(work), work)
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return err != nil
	})
}

// report is what the agent says of a work.
func (r running) report(t *testing.T, work *workv1.ManifestWork, s wire.WorkStatus) {
	t.Helper()
	key := "manifestwork/" + work.Namespace + "/" + work.Name
	r.receive(work.Namespace, resource.Resource{Key: key, UID: string(work.UID), Body: statusBody(t, s)})
}

// receiveWork is what the agent is told of a work.
func (r running) receiveWork(t *testing.T, work *workv1.ManifestWork) wire.Work {
	t.Helper()
	res, ok := r.loadResource(work.Namespace, "manifestwork/"+work.Namespace+"/"+work.Name)
	if !ok {
		t.Fatal("nothing is sent")
	}
	decoded, err := wire.DecodeWork(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return decoded
}

func hasFinalizer(work *workv1.ManifestWork) bool {
	return controllerutil.ContainsFinalizer(work, workv1.ManifestWorkFinalizer)
}

// newAppliedStatus is an agent's report on a work of one ConfigMap.
func newAppliedStatus(generation int64, values ...workv1.FeedbackValue) wire.WorkStatus {
	condition := func(kind string, generation int64) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "R", ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(time.Unix(1, 0))}
	}
	return wire.WorkStatus{
		ObservedGeneration: generation,
		Conditions:         []metav1.Condition{condition("Applied", generation), condition("Available", generation)},
		Manifests: []workv1.ManifestCondition{{
			ResourceMeta:    workv1.ManifestResourceMeta{Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Name: "a", Namespace: "default"},
			Conditions:      []metav1.Condition{condition("Applied", generation), condition("Available", 0), condition("StatusFeedbackSynced", 0)},
			StatusFeedbacks: workv1.StatusFeedbackResult{Values: values},
		}},
	}
}

func TestLiveManifestWorkIsPublishedReportedAndDeleted(t *testing.T) {
	t.Parallel()
	admin := liveClient(t)
	others, cluster := liveNamespace(t, admin, nil), admin.cluster(t)
	r := runLive(t, admin, []string{cluster, others})
	foreign := r.create(t, others, "foreign")
	work := r.create(t, cluster, "w", func(o client.Object) { o.SetLabels(map[string]string{"a": "b"}) })

	r.await(t, work, "it has its finalizer", hasFinalizer)
	key := "manifestwork/" + work.Namespace + "/w"
	livetest.Eventually(t, "the work is published", func() bool { return slices.Contains(r.source(work.Namespace).Keys(), key) })
	if sent := r.receiveWork(t, work); sent.HubHash != testHash || sent.Labels["a"] != "b" || len(sent.Spec.Workload.Manifests) != 1 {
		t.Errorf("sent %+v", sent)
	}

	raw := `{"b":1}`
	r.report(t, work, newAppliedStatus(1, workv1.FeedbackValue{Name: "json", Value: workv1.FieldValue{Type: workv1.JsonRaw, JsonRaw: &raw}}))
	applied := func(generation int64) func(*workv1.ManifestWork) bool {
		return func(w *workv1.ManifestWork) bool {
			c := meta.FindStatusCondition(w.Status.Conditions, "Applied")
			return c != nil && c.ObservedGeneration == generation
		}
	}
	r.await(t, work, "it is applied", applied(1))
	if diff := cmp.Diff([]string{"Applied", "Available", "StatusFeedbackSynced"}, conditionTypes(work)); diff != "" {
		t.Errorf("conditions of the manifest (-want +got):\n%s", diff)
	}

	orphan := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"deleteOption":{"propagationPolicy":"Orphan"}}}`))
	if err := r.admin.Patch(t.Context(), work, orphan); err != nil {
		t.Fatal(err)
	}
	r.report(t, work, newAppliedStatus(2, workv1.FeedbackValue{Name: "json", Value: workv1.FieldValue{Type: workv1.JsonRaw, JsonRaw: &raw}}))
	r.await(t, work, "it is applied anew", applied(2))
	if diff := cmp.Diff([]string{"Available", "StatusFeedbackSynced", "Applied"}, conditionTypes(work)); diff != "" {
		t.Errorf("conditions of the manifest after a change (-want +got):\n%s", diff)
	}
	if got := *work.Status.ResourceStatus.Manifests[0].StatusFeedbacks.Values[0].Value.JsonRaw; got != raw {
		t.Errorf("value %s", got)
	}

	if err := r.admin.Delete(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	livetest.Eventually(t, "the agent is asked to collect", func() bool { return r.receiveWork(t, work).Deleting })
	if sent := r.receiveWork(t, work); sent.Spec.DeleteOption == nil || len(sent.Spec.Workload.Manifests) != 0 {
		t.Errorf("sent %+v", sent)
	}
	r.report(t, work, wire.WorkStatus{ObservedGeneration: 3, Finalized: true})
	r.awaitGone(t, work)

	version := foreign.ResourceVersion
	r.await(t, foreign, "it is there", func(*workv1.ManifestWork) bool { return true })
	if foreign.ResourceVersion != version || len(r.source(foreign.Namespace).Keys()) != 0 {
		t.Errorf("a work where no cluster of ours is was touched: %+v", foreign)
	}
}

func conditionTypes(work *workv1.ManifestWork) []string {
	var out []string
	for _, m := range work.Status.ResourceStatus.Manifests {
		for _, c := range m.Conditions {
			out = append(out, c.Type)
		}
	}
	return out
}

func TestLiveFinishedManifestWorkIsDeleted(t *testing.T) {
	t.Parallel()
	admin := liveClient(t)
	cluster := admin.cluster(t)
	r := runLive(t, admin, []string{cluster})
	ttl := func(seconds int64) func(client.Object) {
		return func(o client.Object) {
			o.(*workv1.ManifestWork).Spec.DeleteOption = &workv1.DeleteOption{
				PropagationPolicy: workv1.DeletePropagationPolicyTypeForeground, TTLSecondsAfterFinished: &seconds,
			}
		}
	}
	soon, later := r.create(t, cluster, "soon", ttl(2)), r.create(t, cluster, "later", ttl(3600))
	report := newAppliedStatus(1)
	done := report.Conditions[0]
	done.Type, done.Reason = workv1.WorkComplete, "ConditionRulesAggregated"
	report.Conditions = append(report.Conditions, done)
	for _, work := range []*workv1.ManifestWork{soon, later} {
		r.await(t, work, "it has its finalizer", hasFinalizer)
		r.report(t, work, report)
	}
	r.await(t, soon, "it is deleted", func(w *workv1.ManifestWork) bool { return w.DeletionTimestamp != nil })
	finished := meta.FindStatusCondition(soon.Status.Conditions, workv1.WorkComplete).LastTransitionTime
	if early := finished.Add(2 * time.Second).Sub(soon.DeletionTimestamp.Time); early > 0 {
		t.Errorf("deleted %s before its time", early)
	}
	r.report(t, soon, wire.WorkStatus{ObservedGeneration: 2, Finalized: true})
	r.awaitGone(t, soon)
	r.await(t, later, "it stays", func(w *workv1.ManifestWork) bool { return w.DeletionTimestamp == nil })
}

func TestLiveManifestWorksOfDeletedClusterAreReleased(t *testing.T) {
	t.Parallel()
	admin := liveClient(t)
	cluster := admin.cluster(t)
	r := runLive(t, admin, []string{cluster})
	work := r.create(t, cluster, "w")
	r.await(t, work, "it has its finalizer", hasFinalizer)
	record := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
	if err := r.admin.Delete(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	// Until the cache has seen that, the finalizer comes back.
	livetest.Eventually(t, "the record is gone from the cache", func() bool {
		managed, _, err := r.clusterState(t.Context(), cluster)
		if err != nil {
			t.Fatal(err)
		}
		return !managed
	})
	left, err := r.Release(t.Context(), cluster)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"manifestwork/w"}, left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	r.await(t, work, "it is released", func(w *workv1.ManifestWork) bool { return !hasFinalizer(w) })
}

func TestLiveAdmissionPolicyAddsFinalizers(t *testing.T) {
	t.Parallel()
	admin := liveClient(t)
	r := newRig(t)
	r.Works.client = admin
	if err := r.installPolicy(t.Context()); err != nil {
		t.Fatal(err)
	}
	ns := liveNamespace(t, admin, map[string]string{"spokelet.io/created-by": "spokelet-hub"})
	eachKind(t, func(t *testing.T, k *kind) {
		// The API server takes a moment to learn of a policy.
		livetest.Eventually(t, "works of a cluster's namespace are made with their finalizer", func() bool {
			work := k.newWork(ns, "")
			work.SetUID("")
			work.SetGenerateName("w-")
			work.SetFinalizers([]string{"example.com/theirs"})
			if err := admin.Create(t.Context(), work); err != nil {
				t.Fatal(err)
			}
			finalizers := work.GetFinalizers()
			if err := admin.Patch(t.Context(), work, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
				t.Fatal(err)
			}
			return cmp.Equal(finalizers, []string{"example.com/theirs", k.Finalizer})
		})
	})
}
