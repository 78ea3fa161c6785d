// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// forceDelete takes a work from the API server, whatever holds it.
func (r *rig) forceDelete(t *testing.T, k *kind, work client.Object) {
	t.Helper()
	got, there := r.get(t, k, work)
	if !there {
		t.Fatal("the work is gone already")
	}
	if len(got.Object().GetFinalizers()) > 0 {
		got.Object().SetFinalizers(nil)
		if err := r.client.Update(t.Context(), got.Object()); err != nil {
			t.Fatal(err)
		}
	}
	// One that was being deleted goes with its last finalizer.
	if err := client.IgnoreNotFound(r.client.Delete(t.Context(), got.Object())); err != nil {
		t.Fatal(err)
	}
}

// sendDeleteEvent is the event of a work that is no more.
func (r *rig) sendDeleteEvent(t *testing.T, k *kind, work client.Object, missed bool) {
	t.Helper()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer q.ShutDown()
	(&eventHandler{works: r.Works, kind: k}).Delete(t.Context(), event.DeleteEvent{Object: work, DeleteStateUnknown: missed}, q)
	if q.Len() != 1 {
		t.Errorf("%d works are looked at", q.Len())
	}
}

// deleteWithoutTrace deletes a work that is published as an API server does that gives it its
// first finalizer in that instant.
func (r *rig) deleteWithoutTrace(t *testing.T, k *kind, work client.Object) {
	t.Helper()
	r.forceDelete(t, k, work)
	r.sendDeleteEvent(t, k, work, false)
	r.reconcile(t, k, work)
}

// loadWork is what the agent is sent under a key.
func (r *rig) loadWork(t *testing.T, key string) (uid string, w wire.Work, ok bool) {
	t.Helper()
	res, ok := r.loadResource(managed, key)
	if !ok {
		return "", w, false
	}
	w, err := wire.DecodeWork(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.UID, w, true
}

func setOrphanPolicy(o client.Object) {
	if w, ok := o.(*workv1.ManifestWork); ok {
		w.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	}
}

func TestWorkDeletedDuringFinalizerPatchIsDeletedInSpoke(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		work := k.newWork(managed, "w", setOrphanPolicy)
		r := newRig(t, clusterNamed(managed), work)
		r.reconcile(t, k, work)
		before, _ := r.sync.Source(managed, wire.KindWork).Ref(k.Name + "/c1/w")
		r.deleteWithoutTrace(t, k, work)

		after, published := r.sync.Source(managed, wire.KindWork).Ref(k.Name + "/c1/w")
		if !published || after.Hash == before.Hash || after.UID != before.UID || after.Generation != before.Generation {
			t.Errorf("published %t: %+v, before it %+v", published, after, before)
		}
		uid, sent, ok := r.loadWork(t, k.Name+"/c1/w")
		if !ok || !sent.Deleting || uid != "uid-w" || len(sent.Spec.Workload.Manifests) != 0 {
			t.Fatalf("sent %t: %s, %+v", ok, uid, sent)
		}
		if k.shared && (sent.Spec.DeleteOption == nil || sent.HubHash != testHash) {
			t.Errorf("the agent is not told how: %+v", sent)
		}
		if work.GetDeletionTimestamp() != nil {
			t.Error("the cache's own copy was written to")
		}
		tell := func(uid string, s wire.WorkStatus) { r.report(t, managed, k.Name+"/c1/w", uid, s) }
		tell("uid-w", applied(1, metav1.ConditionFalse))
		tell("uid-other", wire.WorkStatus{Finalized: true})
		if _, _, ok := r.loadWork(t, k.Name+"/c1/w"); !ok || r.queue.PendingCount() != 0 {
			t.Errorf("still sent %t, %d reports are kept", ok, r.queue.PendingCount())
		}
		r.reconcile(t, k, work)
		tell("uid-w", wire.WorkStatus{Finalized: true})
		if keys := r.sync.Source(managed, wire.KindWork).Keys(); len(keys)+len(r.tombstones)+r.queue.PendingCount() != 0 {
			t.Errorf("nothing is left in the spoke, and %v, %v stay", keys, r.tombstones)
		}
	})
}

func TestRemovedWorkIsWithdrawnUnlessDeletionWasSeen(t *testing.T) {
	tests := map[string]struct {
		reason string
		// change is what happened to the work before it went.
		change   func(*kind, client.Object)
		told     bool
		missed   bool
		cluster  func(*clusterv1.ManagedCluster)
		kept     bool
		deletion bool
	}{
		"deleted at once": {reason: "there was no time for a timestamp", change: func(*kind, client.Object) {}, kept: true, deletion: true},
		"deleted twice at once": {
			reason: "it was on its way for less than a moment", change: (*kind).setDeleting, kept: true, deletion: true,
		},
		"no longer held": {
			reason: "somebody took the finalizer off a work whose deletion the agent knows", change: (*kind).setDeleting, told: true,
		},
		"missed": {
			reason: "a list without it does not say why", change: func(*kind, client.Object) {}, missed: true,
		},
		"never sent": {
			reason: "the agent knows another work of that name", change: func(_ *kind, o client.Object) { o.SetUID("uid-unseen") },
		},
		"of a cluster that is going": {
			reason: "what it has stays", change: func(*kind, client.Object) {}, kept: true,
			cluster: func(c *clusterv1.ManagedCluster) { c.Annotations = nil },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k *kind) {
				work, record := k.newWork(managed, "w"), clusterNamed(managed)
				r := newRig(t, record, work)
				r.reconcile(t, k, work)
				if tc.told {
					if err := r.client.Delete(t.Context(), k.newWork(managed, "w")); err != nil {
						t.Fatal(err)
					}
					r.reconcile(t, k, work)
				}
				r.forceDelete(t, k, work)
				if tc.cluster != nil {
					tc.cluster(record)
					if err := r.client.Update(t.Context(), record); err != nil {
						t.Fatal(err)
					}
				}
				last := k.newWork(managed, "w", k.addFinalizer)
				tc.change(k, last)
				r.sendDeleteEvent(t, k, last, tc.missed)
				r.reconcile(t, k, work)
				if kept := len(r.sync.Source(managed, wire.KindWork).Keys()) > 0; kept != tc.kept {
					t.Errorf("%s: published %t", tc.reason, kept)
				}
				if _, sent, ok := r.loadWork(t, k.Name+"/c1/w"); ok != tc.deletion || sent.Deleting != tc.deletion {
					t.Errorf("%s: sent %t: %+v", tc.reason, ok, sent)
				}
				if remembered := len(r.tombstones) > 0; remembered != tc.deletion {
					t.Errorf("%s: remembered %v", tc.reason, r.tombstones)
				}
			})
		})
	}
}

// TestStaleReconcileDoesNotPublishDeletedWork has a work go while the
// controller of its cluster puts the finalizer on it, which the one of works would
// conclude meanwhile.
func TestStaleReconcileDoesNotPublishDeletedWork(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		work := k.newWork(managed, "w")
		r := newRig(t, clusterNamed(managed), work)
		concluded := make(chan struct{})
		r.Works.client = interceptor.NewClient(r.client, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				err := c.Patch(ctx, o, p, opts...)
				r.forceDelete(t, k, work)
				r.sendDeleteEvent(t, k, k.newWork(managed, "w", k.addFinalizer), false)
				go func() {
					defer close(concluded)
					_, _ = workReconciler{works: r.Works, kind: k}.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(work)})
				}()
				// Nothing tells that it waits, as it is to do.
				select {
				case <-concluded:
				case <-time.After(100 * time.Millisecond):
				}
				return err
			},
		})
		if _, err := (clusterReconciler{r.Works}).Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: managed}}); err != nil {
			t.Fatal(err)
		}
		<-concluded
		if _, sent, ok := r.loadWork(t, k.Name+"/c1/w"); !ok || !sent.Deleting {
			t.Errorf("published %v, sent %t: %+v", r.sync.Source(managed, wire.KindWork).Keys(), ok, sent)
		}
	})
}

func TestReconcileBeforeDeleteEventChangesNothing(t *testing.T) {
	k := manifestWorks(testHash, false)
	work := k.newWork(managed, "w")
	r := newRig(t, clusterNamed(managed), work)
	r.reconcile(t, k, work)
	r.forceDelete(t, k, work)
	r.reconcile(t, k, work) // the cache is ahead: it was for an earlier change
	if len(r.sync.Source(managed, wire.KindWork).Keys()) != 1 {
		t.Fatal("the agent is told that the work is unknown, and not that it was deleted")
	}
	r.sendDeleteEvent(t, k, work, false)
	r.reconcile(t, k, work)
	if _, sent, _ := r.loadWork(t, "manifestwork/c1/w"); !sent.Deleting {
		t.Errorf("sent %+v", sent)
	}
}

func TestNewWorkReplacesDeletionOfSameName(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		work := k.newWork(managed, "w")
		r := newRig(t, clusterNamed(managed), work)
		r.reconcile(t, k, work)
		r.deleteWithoutTrace(t, k, work)

		next := k.newWork(managed, "w", func(o client.Object) { o.SetUID("uid-next") })
		if err := r.client.Create(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		r.reconcile(t, k, next)
		if uid, sent, _ := r.loadWork(t, k.Name+"/c1/w"); uid != "uid-next" || sent.Deleting {
			t.Errorf("sent %s, %+v", uid, sent)
		}
		r.report(t, managed, k.Name+"/c1/w", "uid-w", wire.WorkStatus{Finalized: true})
		if keys := r.sync.Source(managed, wire.KindWork).Keys(); len(keys) != 1 || len(r.tombstones) != 0 {
			t.Errorf("published %v, remembered %v", keys, r.tombstones)
		}
		// It goes in an instant, too.
		r.deleteWithoutTrace(t, k, next)
		r.report(t, managed, k.Name+"/c1/w", "uid-w", wire.WorkStatus{Finalized: true})
		if uid, sent, _ := r.loadWork(t, k.Name+"/c1/w"); uid != "uid-next" || !sent.Deleting {
			t.Errorf("sent %s, %+v", uid, sent)
		}
		r.report(t, managed, k.Name+"/c1/w", "uid-next", wire.WorkStatus{Finalized: true})
		if len(r.tombstones) != 0 {
			t.Errorf("remembered %v", r.tombstones)
		}
	})
}

func TestUnpublishedWorkKeepsEarlierDeletion(t *testing.T) {
	k := multicluster()
	work := k.newWork(managed, "w")
	r := newRig(t, clusterNamed(managed), work)
	r.reconcile(t, k, work)
	r.forceDelete(t, k, work)
	r.sendDeleteEvent(t, k, work, false)
	unseen := k.newWork(managed, "w", func(o client.Object) { o.SetUID("uid-unseen") })
	r.sendDeleteEvent(t, k, unseen, false)
	r.reconcile(t, k, work)
	r.sendDeleteEvent(t, k, unseen, false)
	r.reconcile(t, k, work)
	if uid, sent, _ := r.loadWork(t, "multicluster/c1/w"); uid != "uid-w" || !sent.Deleting {
		t.Errorf("sent %s, %+v", uid, sent)
	}
}

func TestTombstonesAreBounded(t *testing.T) {
	k := manifestWorks(testHash, false)
	work := k.newWork(managed, "w")
	r := newRig(t, clusterNamed(managed), work)
	r.reconcile(t, k, work)
	for i := range maxTombstones {
		key := wire.WorkKey{Dialect: k.Name, Namespace: "c2", Name: strconv.Itoa(i)}
		r.tombstones[key] = tombstone{uid: types.UID(key.Name), published: true}
	}
	r.deleteWithoutTrace(t, k, work)
	if keys := r.sync.Source(managed, wire.KindWork).Keys(); len(keys) != 0 || len(r.tombstones) != maxTombstones {
		t.Errorf("published %v, %d are remembered", keys, len(r.tombstones))
	}
	if _, err := (clusterReconciler{r.Works}).Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "c2"}}); err != nil {
		t.Fatal(err)
	}
	if len(r.tombstones) != 0 {
		t.Errorf("the cluster is no more, and %d of its works are remembered", len(r.tombstones))
	}
}

// spoke is the agent's end of Sync, over HTTP/2 as in a session.
type spoke struct {
	session http.RoundTripper
	works   chan resource.Resource
	gone    chan string
	reports *resource.Source
}

func newSpoke(t *testing.T) *spoke {
	t.Helper()
	s := &spoke{works: make(chan resource.Resource, 10), gone: make(chan string, 10), reports: resource.NewSource(wire.KindWorkStatus)}
	s.reports.Complete()
	agent, err := resource.NewAgent([]*resource.Source{s.reports}, []*resource.Mirror{resource.NewMirror(wire.KindWork, resource.Receiver{
		Put: func(r resource.Resource) { s.works <- r }, Delete: func(key string) { s.gone <- key },
	})})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(agent)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	transport := &http.Transport{Protocols: server.Config.Protocols}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	s.session = hostTransport{transport, strings.TrimPrefix(server.URL, "http://")}
	return s
}

type hostTransport struct {
	http.RoundTripper

	host string
}

func (s hostTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Host = s.host
	return s.RoundTripper.RoundTrip(req)
}

// connect serves the spoke until the returned function is called.
func (r *rig) connect(t *testing.T, s *spoke) (cut func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.sync.Run(ctx, managed, s.session)
	}()
	return func() { cancel(); <-ended }
}

// receive reads from a channel, or fails.
func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(30 * time.Second):
		t.Fatalf("nothing comes: %s", what)
		panic("unreachable")
	}
}

func TestDeletionSurvivesReconnect(t *testing.T) {
	k := manifestWorks(testHash, false)
	work := k.newWork(managed, "w", setOrphanPolicy)
	r := newRig(t, clusterNamed(managed), work)
	if _, err := (clusterReconciler{r.Works}).Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: managed}}); err != nil {
		t.Fatal(err)
	}
	s := newSpoke(t)
	cut := r.connect(t, s)
	if first := receive(t, s.works, "the work"); first.UID != "uid-w" {
		t.Fatalf("sent %+v", first)
	}
	cut()
	r.deleteWithoutTrace(t, k, work) // while the cluster is away

	cut = r.connect(t, s)
	told := receive(t, s.works, "its deletion")
	if sent, err := wire.DecodeWork(told.Body); err != nil || !sent.Deleting || told.UID != "uid-w" {
		t.Fatalf("sent %+v, %v", sent, err)
	}
	cut()
	report := resource.Resource{Key: told.Key, UID: told.UID, Body: statusBody(t, wire.WorkStatus{Finalized: true})}
	if err := s.reports.Put(report); err != nil {
		t.Fatal(err)
	}
	cut = r.connect(t, s)
	defer cut()
	r.handleNext(t.Context()) // waits for the report
	if key := receive(t, s.gone, "that the hub has forgotten it"); key != told.Key {
		t.Errorf("withdrawn: %s", key)
	}
	if diff := cmp.Diff(map[wire.WorkKey]tombstone{}, r.tombstones, cmp.AllowUnexported(tombstone{})); diff != "" {
		t.Errorf("remembered (-want +got):\n%s", diff)
	}
}
