// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is Works over a fake API server.
type rig struct {
	*Works
	// lagging is the work as a cache that lags has it; nil reads what is.
	lagging  *v1alpha1.Work
	client   client.WithWatch
	sync     *resource.Hub
	events   *events.FakeRecorder
	writes   int
	conflict int
}

func newRig(t *testing.T, objects ...client.Object) *rig {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.Install, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	r := &rig{sync: resource.NewHub(), events: events.NewFakeRecorder(10)}
	r.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.Work{}).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				r.writes++
				if r.conflict > 0 {
					r.conflict--
					return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("works").GroupResource(), o.GetName(), errors.New("boom"))
				}
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		}).Build()
	cached := interceptor.NewClient(r.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if work, ok := o.(*v1alpha1.Work); ok && r.lagging != nil {
				r.lagging.DeepCopyInto(work)
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	w, err := New(Config{Sync: r.sync, Client: cached, Events: r.events})
	if err != nil {
		t.Fatal(err)
	}
	r.Works = w
	w.live = r.client
	t.Cleanup(w.queue.ShutDown)
	return r
}

const managed = "c1"

func clusterNamed(name string, change ...func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{annotationManaged: "true"}},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func workNamed(namespace, name string, change ...func(*v1alpha1.Work)) *v1alpha1.Work {
	w := &v1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name), Generation: 1}}
	w.Spec.Workload.Manifests = []v1alpha1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`)}}}
	for _, f := range change {
		f(w)
	}
	return w
}

func held(w *v1alpha1.Work) { w.Finalizers = []string{v1alpha1.WorkFinalizer} }
func deleting(w *v1alpha1.Work) {
	now := metav1.Now()
	w.DeletionTimestamp = &now
	held(w)
}

func (r *rig) reconcile(t *testing.T, w *v1alpha1.Work) {
	t.Helper()
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w)}); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) get(t *testing.T, w *v1alpha1.Work) (*v1alpha1.Work, bool) {
	t.Helper()
	var out v1alpha1.Work
	err := r.client.Get(t.Context(), client.ObjectKeyFromObject(w), &out)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return &out, err == nil
}

func TestWorksArePublished(t *testing.T) {
	tests := map[string]struct {
		reason  string
		cluster *clusterv1.ManagedCluster
		work    *v1alpha1.Work
		keys    []string
		held    bool
		event   bool
	}{
		"a new work": {
			reason: "the finalizer goes on before anything is sent", cluster: clusterNamed(managed),
			work: workNamed(managed, "w"), keys: []string{"multicluster/c1/w"}, held: true,
		},
		"a work that is going": {
			reason: "the spoke is asked to collect it", cluster: clusterNamed(managed),
			work: workNamed(managed, "w", deleting), keys: []string{"multicluster/c1/w"}, held: true,
		},
		"no cluster": {
			reason: "nobody would take it", cluster: clusterNamed("other"), work: workNamed(managed, "w"), event: true,
		},
		"a cluster that is not ours": {
			reason: "OCM may serve it", work: workNamed(managed, "w"), event: true,
			cluster: clusterNamed(managed, func(c *clusterv1.ManagedCluster) { c.Annotations = nil }),
		},
		"a cluster that is not accepted": {
			reason: "it has no session", work: workNamed(managed, "w"), event: true,
			cluster: clusterNamed(managed, func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false }),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tc.cluster, tc.work)
			r.reconcile(t, tc.work)
			r.reconcile(t, tc.work)
			if diff := cmp.Diff(tc.keys, r.sync.Source(managed, wire.KindWork).Keys()); diff != "" {
				t.Errorf("%s: published (-want +got):\n%s", tc.reason, diff)
			}
			got, _ := r.get(t, tc.work)
			if controllerutil.ContainsFinalizer(got, v1alpha1.WorkFinalizer) != tc.held {
				t.Errorf("%s: finalizers %v", tc.reason, got.Finalizers)
			}
			if n := len(r.events.Events); (n == 1) != tc.event || n > 1 {
				t.Errorf("%s: %d events", tc.reason, n)
			}
		})
	}
}

func TestWorkOfAVanishedClusterIsLetGo(t *testing.T) {
	w := workNamed(managed, "w", deleting)
	r := newRig(t, w)
	r.reconcile(t, w)
	if _, ok := r.get(t, w); ok {
		t.Error("the work waits for a cluster that is no more")
	}
}

func TestReleaseNamesWhatItLeaves(t *testing.T) {
	r := newRig(t, clusterNamed(managed), workNamed(managed, "a", held), workNamed(managed, "b"), workNamed(managed, "c", deleting), workNamed("other", "d", held))
	left, err := r.Release(t.Context(), managed)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "c"}, left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if left, err = r.Release(t.Context(), managed); err != nil || len(left) != 0 {
		t.Errorf("a second call releases %v, %v", left, err)
	}
	if other, _ := r.get(t, workNamed("other", "d")); !controllerutil.ContainsFinalizer(other, v1alpha1.WorkFinalizer) {
		t.Error("another cluster's work was released")
	}
}

func TestTooLargeWorkIsReported(t *testing.T) {
	w := workNamed(managed, "w", held)
	r := newRig(t, clusterNamed(managed), w)
	large := w.DeepCopy()
	large.Spec.Workload.Manifests[0].Raw = []byte(`{"data":"` + strings.Repeat("x", resource.MaxBody) + `"}`)
	if err := r.send(large); err != nil {
		t.Fatal(err)
	}
	r.next(t.Context())
	got, _ := r.get(t, w)
	c := meta.FindStatusCondition(got.Status.Conditions, "Applied")
	if c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "exceeds the limit") {
		t.Errorf("Applied = %+v", c)
	}
}

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
		r.next(t.Context())
	}
}

func TestAgentIsBelievedAboutItsOwnWorksAlone(t *testing.T) {
	tests := map[string]struct {
		reason, cluster, key, uid string
		written                   bool
	}{
		"its own work":            {reason: "that is its business", cluster: managed, key: "multicluster/c1/w", uid: "uid-w", written: true},
		"another cluster's work":  {reason: "a spoke is not trusted with others", cluster: "c2", key: "multicluster/c1/w", uid: "uid-w"},
		"an earlier work":         {reason: "the name was taken again", cluster: managed, key: "multicluster/c1/w", uid: "uid-before"},
		"another dialect":         {reason: "that is another object", cluster: managed, key: "ocm/c1/w", uid: "uid-w"},
		"a work that is not here": {reason: "what an agent makes us hold is bounded", cluster: managed, key: "multicluster/c1/x", uid: "uid-w"},
		"no key at all":           {reason: "garbage is dropped", cluster: managed, key: "c1", uid: "uid-w"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := workNamed(managed, "w", held)
			r := newRig(t, clusterNamed(managed), w)
			r.report(t, tc.cluster, tc.key, tc.uid, applied(1, metav1.ConditionTrue))
			got, _ := r.get(t, w)
			if (len(got.Status.Conditions) > 0) != tc.written {
				t.Errorf("%s: status %+v", tc.reason, got.Status)
			}
			if len(r.pending) != 0 {
				t.Errorf("%s: %d reports are kept", tc.reason, len(r.pending))
			}
		})
	}
}

func TestStatusIsWrittenWhenItChanges(t *testing.T) {
	w := workNamed(managed, "w", held)
	w.Status.Conditions = []metav1.Condition{{Type: "Theirs", Status: metav1.ConditionTrue, Reason: "X", LastTransitionTime: metav1.Now()}}
	r := newRig(t, clusterNamed(managed), w)
	tell := func(s wire.WorkStatus) { r.report(t, managed, "multicluster/c1/w", "uid-w", s) }

	tell(applied(2, metav1.ConditionTrue))
	first, _ := r.get(t, w)
	if r.writes != 1 || len(first.Status.Conditions) != 2 {
		t.Fatalf("%d writes, %+v", r.writes, first.Status)
	}
	later := applied(2, metav1.ConditionTrue)
	later.Conditions[0].LastTransitionTime = metav1.NewTime(time.Unix(1_000_000, 0))
	tell(later)
	if r.writes != 1 {
		t.Error("a write that changes only a time")
	}
	tell(applied(1, metav1.ConditionFalse))
	if got, _ := r.get(t, w); r.writes != 1 || observed(got.Status) != 2 {
		t.Errorf("an overtaken report is written: %+v", got.Status)
	}
	r.conflict = 1
	tell(applied(3, metav1.ConditionTrue))
	got, _ := r.get(t, w)
	if observed(got.Status) != 3 {
		t.Errorf("a conflict loses the report: %+v", got.Status)
	}
	before := meta.FindStatusCondition(first.Status.Conditions, "Applied").LastTransitionTime
	if now := meta.FindStatusCondition(got.Status.Conditions, "Applied").LastTransitionTime; !now.Equal(&before) {
		t.Errorf("the transition time moved from %s to %s", before, now)
	}
	if meta.FindStatusCondition(got.Status.Conditions, "Theirs") == nil {
		t.Error("somebody else's condition is gone")
	}
}

func TestReportThatTakesTheLastOneBackIsWritten(t *testing.T) {
	w := workNamed(managed, "w", held)
	r := newRig(t, clusterNamed(managed), w)
	tell := func(status metav1.ConditionStatus) {
		r.report(t, managed, "multicluster/c1/w", "uid-w", applied(1, status))
	}
	tell(metav1.ConditionTrue)
	r.lagging, _ = r.get(t, w)
	tell(metav1.ConditionFalse)
	tell(metav1.ConditionTrue)
	got, _ := r.get(t, w)
	if !meta.IsStatusConditionTrue(got.Status.Conditions, "Applied") {
		t.Error("the cache had not seen the last write yet, and the report beside it looked like no change")
	}
	r.lagging = nil
	tell(metav1.ConditionTrue)
	if len(r.written) != 0 {
		t.Errorf("the cache has caught up, and %v is still remembered", r.written)
	}
}

func TestWorkThatIsGoneIsForgotten(t *testing.T) {
	w := workNamed(managed, "w")
	r := newRig(t, clusterNamed(managed), w)
	r.reconcile(t, w)
	if len(r.written) != 1 {
		t.Fatalf("remembered %v, want the write of the finalizer", r.written)
	}
	got, _ := r.get(t, w)
	got.Finalizers = nil
	if err := r.client.Update(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	if err := r.client.Delete(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	r.reconcile(t, w)
	if len(r.written) != 0 {
		t.Errorf("the work is gone, and %v is still remembered", r.written)
	}
}

func TestFinalizedLetsTheWorkGo(t *testing.T) {
	gone, here := workNamed(managed, "gone", deleting), workNamed(managed, "here", held)
	r := newRig(t, clusterNamed(managed), gone, here)
	r.report(t, managed, "multicluster/c1/gone", "uid-gone", wire.WorkStatus{Finalized: true})
	if _, ok := r.get(t, gone); ok {
		t.Error("the work is still held")
	}
	r.report(t, managed, "multicluster/c1/here", "uid-here", wire.WorkStatus{Finalized: true})
	if got, _ := r.get(t, here); !controllerutil.ContainsFinalizer(got, v1alpha1.WorkFinalizer) {
		t.Error("a work that nobody deletes lost its finalizer")
	}
}

func TestManifestsAreMatchedByIdentity(t *testing.T) {
	id := func(ordinal int, name string) v1alpha1.ResourceIdentifier {
		return v1alpha1.ResourceIdentifier{Ordinal: ordinal, Kind: "ConfigMap", Name: name}
	}
	at := func(seconds int64) []metav1.Condition {
		return []metav1.Condition{{Type: "Applied", Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Unix(seconds, 0))}}
	}
	old := v1alpha1.WorkStatus{ManifestConditions: []v1alpha1.ManifestCondition{
		{Identifier: id(0, "a"), Conditions: at(1)}, {Identifier: id(1, "b"), Conditions: at(2)},
		{Identifier: id(2, "twice"), Conditions: at(3)}, {Identifier: id(3, "twice"), Conditions: at(4)},
	}}
	report := report{status: wire.WorkStatus{}}
	for i, name := range []string{"b", "a", "new", "twice", "twice"} {
		report.status.Manifests = append(report.status.Manifests, workv1.ManifestCondition{
			ResourceMeta: workv1.ManifestResourceMeta{Ordinal: int32(i), Kind: "ConfigMap", Name: name}, Conditions: at(99),
		})
	}
	now := metav1.NewTime(time.Unix(100, 0))
	var got []int64
	for _, m := range merge(old, report, now).ManifestConditions {
		got = append(got, m.Conditions[0].LastTransitionTime.Unix())
	}
	// The third manifest of the name "twice" has the ordinal of a former one.
	if diff := cmp.Diff([]int64{2, 1, 100, 4, 100}, got); diff != "" {
		t.Errorf("transition times (-want +got):\n%s", diff)
	}
}

func TestStatusIsTrimmedToWhatFits(t *testing.T) {
	w := workNamed(managed, "w")
	next := v1alpha1.WorkStatus{Conditions: []metav1.Condition{{Type: "Applied", Status: metav1.ConditionFalse, ObservedGeneration: 4}}}
	for i := range 10_000 {
		status := metav1.ConditionTrue
		if i == 9_999 {
			status = metav1.ConditionFalse
		}
		next.ManifestConditions = append(next.ManifestConditions, v1alpha1.ManifestCondition{
			Identifier: v1alpha1.ResourceIdentifier{Ordinal: i, Kind: "ConfigMap", Name: "some-name-of-usual-length"},
			Conditions: []metav1.Condition{{Type: "Applied", Status: status, Message: strings.Repeat("m", 100)}},
		})
	}
	trim(w, &next, metav1.Now())
	if n := size(next); n > maxStored {
		t.Errorf("status has %d bytes", n)
	}
	last := next.ManifestConditions[len(next.ManifestConditions)-1]
	if last.Identifier.Ordinal != 9_999 {
		t.Error("what failed is left out")
	}
	c := meta.FindStatusCondition(next.Conditions, trimmedType)
	if c == nil || c.ObservedGeneration != 4 || len(next.ManifestConditions) < 1000 {
		t.Errorf("%d manifests, condition %+v", len(next.ManifestConditions), c)
	}
}
