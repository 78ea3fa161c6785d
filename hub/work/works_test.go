// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/managedcluster"
	"github.com/spokelet/spokelet/internal/statuswriter"
	"github.com/spokelet/spokelet/internal/workconvert"
	"github.com/spokelet/spokelet/tunnel/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const managed = "c1"

var testHash = workconvert.HubHash("https://hub")

// rig is Works over a fake API server.
type rig struct {
	*Works

	// lagging is the work as a cache that lags has it; nil reads what is.
	lagging  client.Object
	client   client.WithWatch
	sync     *resource.Hub
	events   *events.FakeRecorder
	patches  []string
	writes   int
	conflict int
	// refusing is what the API server says of a patch of a status, if anything.
	refusing func(patch string) error
	// patching runs before a work is patched; what it returns is the answer.
	patching func() error
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.Install, v1alpha1.AddToScheme, workv1.Install} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

func newRig(t *testing.T, objects ...client.Object) *rig {
	t.Helper()
	r := &rig{sync: resource.NewHub(), events: events.NewFakeRecorder(1000)}
	scheme := newScheme(t)
	// Nothing is applied here: a tracker without field managers is many times faster.
	tracker := clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	r.client = fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.Work{}, &workv1.ManifestWork{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if r.patching != nil {
					if err := r.patching(); err != nil {
						return err
					}
				}
				return c.Patch(ctx, o, p, opts...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				r.writes++
				if r.conflict > 0 {
					r.conflict--
					return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("works").GroupResource(), o.GetName(), errors.New("boom"))
				}
				patch, err := p.Data(o)
				if r.refusing != nil {
					if refusal := r.refusing(string(patch)); refusal != nil {
						return refusal
					}
				}
				r.patches = append(r.patches, string(patch))
				return errors.Join(err, c.SubResource(sub).Patch(ctx, o, p, opts...))
			},
		}).Build()
	cached := interceptor.NewClient(r.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if r.lagging != nil && reflect.TypeOf(o) == reflect.TypeOf(r.lagging) {
				reflect.ValueOf(o).Elem().Set(reflect.ValueOf(r.lagging.DeepCopyObject()).Elem())
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	w, err := New(Config{Sync: r.sync, Client: cached, Events: r.events, HubHash: testHash})
	if err != nil {
		t.Fatal(err)
	}
	r.Works = w
	w.apiReader = r.client
	t.Cleanup(w.queue.ShutDown)
	return r
}

// handleNext writes the report on one work. It returns false once the queue is shut down.
func (r *rig) handleNext(ctx context.Context) bool {
	return statuswriter.HandleNext(ctx, r.queue, r.writeNext)
}

func clusterNamed(name string, change ...func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{managedcluster.AnnotationManaged: "true"}},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

// eachKind runs a test for the works of every API.
func eachKind(t *testing.T, test func(*testing.T, *kind)) {
	t.Helper()
	for _, k := range []*kind{multicluster(), manifestWorks(testHash, false)} {
		t.Run(k.Name, func(t *testing.T) { test(t, k) })
	}
}

// newWork makes a work of one ConfigMap.
func (k *kind) newWork(namespace, name string, change ...func(client.Object)) client.Object {
	raw := runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`)}
	var obj client.Object
	switch k.Name {
	case wire.DialectMulticluster:
		w := &v1alpha1.Work{}
		w.Spec.Workload.Manifests = []v1alpha1.Manifest{{RawExtension: raw}}
		obj = w
	default:
		w := &workv1.ManifestWork{}
		w.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: raw}}
		obj = w
	}
	obj.SetNamespace(namespace)
	obj.SetName(name)
	obj.SetUID(types.UID("uid-" + name))
	obj.SetGeneration(1)
	for _, f := range change {
		f(obj)
	}
	return obj
}

// addFinalizer and deleting change a work of the kind.
func (k *kind) addFinalizer(o client.Object) { o.SetFinalizers([]string{k.Finalizer}) }
func (k *kind) setDeleting(o client.Object) {
	now := metav1.Now()
	o.SetDeletionTimestamp(&now)
	k.addFinalizer(o)
}

func (r *rig) reconcile(t *testing.T, k *kind, w client.Object) {
	t.Helper()
	if _, err := (workReconciler{works: r.Works, kind: k}).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w)}); err != nil {
		t.Fatal(err)
	}
}

// get reads a work from the API server.
func (r *rig) get(t *testing.T, k *kind, w client.Object) (workconvert.Work, bool) {
	t.Helper()
	it := k.New()
	err := r.client.Get(t.Context(), client.ObjectKeyFromObject(w), it.Object())
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return it, err == nil
}

func TestConfigValidate(t *testing.T) {
	sync, recorder := resource.NewHub(), events.NewFakeRecorder(1)
	c := fake.NewClientBuilder().Build()
	tests := map[string]struct {
		reason string
		config Config
		bad    bool
	}{
		"all":             {reason: "as the hub does", config: Config{Sync: sync, Client: c, Events: recorder, HubHash: testHash}},
		"no Sync":         {reason: "works must travel", config: Config{Client: c, Events: recorder, HubHash: testHash}, bad: true},
		"no hub hash":     {reason: "anchors need names", config: Config{Sync: sync, Client: c, Events: recorder}, bad: true},
		"upper-case hash": {reason: "no agent would take it", config: Config{Sync: sync, Client: c, Events: recorder, HubHash: strings.ToUpper(testHash)}, bad: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if err := tc.config.Validate(); (err != nil) != tc.bad {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}

func TestReconcilePublishesWorks(t *testing.T) {
	tests := map[string]struct {
		reason  string
		cluster *clusterv1.ManagedCluster
		work    func(*kind, client.Object)
		sent    bool
		event   bool
	}{
		"a new work": {
			reason: "the finalizer goes on before anything is sent", cluster: clusterNamed(managed),
			work: func(*kind, client.Object) {}, sent: true,
		},
		"a work that is going": {
			reason: "the spoke is asked to collect it", cluster: clusterNamed(managed),
			work: (*kind).setDeleting, sent: true,
		},
		"no cluster": {
			reason: "nobody would take it", cluster: clusterNamed("other"), work: func(*kind, client.Object) {}, event: true,
		},
		"a cluster that is not ours": {
			reason: "OCM may serve it", work: func(*kind, client.Object) {}, event: true,
			cluster: clusterNamed(managed, func(c *clusterv1.ManagedCluster) { c.Annotations = nil }),
		},
		"a cluster that is not accepted": {
			reason: "it has no session", work: func(*kind, client.Object) {}, event: true,
			cluster: clusterNamed(managed, func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false }),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k *kind) {
				work := k.newWork(managed, "w")
				tc.work(k, work)
				r := newRig(t, tc.cluster, work)
				r.reconcile(t, k, work)
				r.reconcile(t, k, work)
				var keys []string
				if tc.sent {
					keys = []string{k.Name + "/c1/w"}
				}
				if diff := cmp.Diff(keys, r.sync.Source(managed, wire.KindWork).Keys()); diff != "" {
					t.Errorf("%s: published (-want +got):\n%s", tc.reason, diff)
				}
				got, _ := r.get(t, k, work)
				if controllerutil.ContainsFinalizer(got.Object(), k.Finalizer) != tc.sent {
					t.Errorf("%s: finalizers %v", tc.reason, got.Object().GetFinalizers())
				}
				// Nothing is said of a ManifestWork that may be somebody else's.
				if n := len(r.events.Events); (n == 1) != (tc.event && !k.shared) || n > 1 {
					t.Errorf("%s: %d events", tc.reason, n)
				}
			})
		})
	}
}

func TestClusterReconcilePublishesWorksOfAllKinds(t *testing.T) {
	sig, ocm := multicluster(), manifestWorks(testHash, false)
	r := newRig(t, clusterNamed(managed), sig.newWork(managed, "a"), sig.newWork(managed, "b"), ocm.newWork(managed, "a"), ocm.newWork("c2", "x"))
	if _, err := (clusterReconciler{r.Works}).Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: managed}}); err != nil {
		t.Fatal(err)
	}
	want := []string{"manifestwork/c1/a", "multicluster/c1/a", "multicluster/c1/b"}
	if diff := cmp.Diff(want, r.sync.Source(managed, wire.KindWork).Keys()); diff != "" {
		t.Errorf("published (-want +got):\n%s", diff)
	}
}

func TestPredicatePassesRelevantChangesOnly(t *testing.T) {
	tests := map[string]struct {
		reason string
		change func(client.Object)
		wanted func(*kind) bool
	}{
		"a status":          {reason: "that is what we write ourselves", change: func(client.Object) {}, wanted: func(*kind) bool { return false }},
		"a generation":      {reason: "the spec changed", change: func(o client.Object) { o.SetGeneration(2) }, wanted: func(*kind) bool { return true }},
		"no finalizer":      {reason: "nothing is sent that nobody holds", change: func(o client.Object) { o.SetFinalizers(nil) }, wanted: func(*kind) bool { return true }},
		"labels":            {reason: "the anchor of a ManifestWork bears them", change: func(o client.Object) { o.SetLabels(map[string]string{"a": "b"}) }, wanted: func(k *kind) bool { return k.shared }},
		"a suspension":      {reason: "the spoke has to pause", change: withAnnotation(wire.AnnotationSuspend, "true"), wanted: func(*kind) bool { return true }},
		"a report of drift": {reason: "the spoke has to compare and not to write", change: withAnnotation(wire.AnnotationDrift, "report"), wanted: func(*kind) bool { return true }},
		"an annotation":     {reason: "it stays on the hub", change: func(o client.Object) { o.SetAnnotations(map[string]string{"a": "b"}) }, wanted: func(*kind) bool { return false }},
		"that it is going":  {reason: "the spoke has to collect", change: func(o client.Object) { o.SetDeletionTimestamp(new(metav1.Now())) }, wanted: func(*kind) bool { return true }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k *kind) {
				before, after := k.newWork(managed, "w", k.addFinalizer), k.newWork(managed, "w", k.addFinalizer)
				tc.change(after)
				if got := k.specChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.wanted(k) {
					t.Errorf("%s: wanted %t", tc.reason, got)
				}
			})
		})
	}
}

func TestFinalizerIsRemovedWhenClusterIsGone(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		w := k.newWork(managed, "w", k.setDeleting)
		r := newRig(t, w)
		r.reconcile(t, k, w)
		if _, still := r.get(t, k, w); still != k.shared {
			t.Errorf("the work is there: %t; a ManifestWork may be held by somebody else", still)
		}
	})
}

func TestEncodedWorkHasFieldsOfItsDialect(t *testing.T) {
	k := manifestWorks(testHash, true)
	work := k.newWork(managed, "w", k.addFinalizer, func(o client.Object) { o.SetLabels(map[string]string{"a": "b"}) })
	r := newRig(t, clusterNamed(managed), work)
	r.kinds = []*kind{k}
	sent, ok := r.loadResource(managed, "manifestwork/c1/w")
	if !ok {
		t.Fatal("the work is not there")
	}
	got, err := wire.DecodeWork(sent.Body)
	if err != nil {
		t.Fatal(err)
	}
	got.Spec = workv1.ManifestWorkSpec{}
	want := wire.Work{Generation: 1, HubHash: testHash, Healthy: true, Labels: map[string]string{"a": "b"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if sent.UID != "uid-w" || sent.Generation != 1 {
		t.Errorf("UID %s, generation %d", sent.UID, sent.Generation)
	}
}

func TestReleaseNamesReleasedWorks(t *testing.T) {
	objects := []client.Object{clusterNamed(managed)}
	var want []string
	for _, k := range []*kind{multicluster(), manifestWorks(testHash, false)} {
		objects = append(objects, k.newWork(managed, "a", k.addFinalizer), k.newWork(managed, "b"), k.newWork(managed, "c", k.setDeleting), k.newWork("other", "d", k.addFinalizer))
		want = append(want, k.Name+"/a", k.Name+"/c")
	}
	r := newRig(t, objects...)
	left, err := r.Release(t.Context(), managed)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if left, err = r.Release(t.Context(), managed); err != nil || len(left) != 0 {
		t.Errorf("a second call releases %v, %v", left, err)
	}
	eachKind(t, func(t *testing.T, k *kind) {
		if other, _ := r.get(t, k, k.newWork("other", "d")); !controllerutil.ContainsFinalizer(other.Object(), k.Finalizer) {
			t.Error("another cluster's work was released")
		}
	})
}

func TestTooLargeWorkIsReportedAsFailed(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		w := k.newWork(managed, "w", k.addFinalizer)
		r := newRig(t, clusterNamed(managed), w)
		large, _ := r.get(t, k, w)
		raw := []byte(`{"data":"` + strings.Repeat("x", resource.MaxBody) + `"}`)
		switch l := large.Object().(type) {
		case *v1alpha1.Work:
			l.Spec.Workload.Manifests[0].Raw = raw
		case *workv1.ManifestWork:
			l.Spec.Workload.Manifests[0].Raw = raw
		}
		if err := r.publishCurrent(t.Context(), k, large); err != nil {
			t.Fatal(err)
		}
		r.handleNext(t.Context())
		got, _ := r.get(t, k, w)
		c := meta.FindStatusCondition(*got.Conditions(), "Applied")
		if c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "exceeds the limit") {
			t.Errorf("Applied = %+v", c)
		}
		if len(r.events.Events) != 1 {
			t.Errorf("%d events", len(r.events.Events))
		}
	})
}

func TestManifestWorkWithTooLongNameIsRefused(t *testing.T) {
	k := manifestWorks(testHash, false)
	long := strings.Repeat("n", workconvert.MaxManifestWorkName+1)
	tests := map[string]struct {
		reason string
		work   client.Object
		sent   bool
		told   string
		gone   bool
	}{
		"as long as may be": {reason: "the anchor has 253 characters", work: k.newWork(managed, long[1:]), sent: true},
		"too long": {
			reason: "nothing is ever applied, and the status says so", work: k.newWork(managed, long),
			told: "Failed to apply manifest work: its name has 189 characters, more than 188 leave no room for the hub's hash in the name of its AppliedManifestWork",
		},
		"too long and going": {reason: "no spoke has anything of it", work: k.newWork(managed, long, k.setDeleting), gone: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, clusterNamed(managed), tc.work)
			r.reconcile(t, k, tc.work)
			for r.queue.Len() > 0 {
				r.handleNext(t.Context())
			}
			if sent := len(r.sync.Source(managed, wire.KindWork).Keys()) > 0; sent != tc.sent {
				t.Errorf("%s: sent %t", tc.reason, sent)
			}
			got, there := r.get(t, k, tc.work)
			if there == tc.gone {
				t.Errorf("%s: there %t", tc.reason, there)
			}
			var told string
			if c := meta.FindStatusCondition(*got.Conditions(), "Applied"); c != nil {
				told = c.Message
			}
			if diff := cmp.Diff(tc.told, told); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
