// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/spokelet/spokelet/api/crds"
	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	"github.com/spokelet/spokelet/internal/testing/livetest"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// liveHub is a client of the hub's real API server, and what it is made of.
type liveHub struct {
	client.WithWatch

	config *rest.Config
	pool   *http.Client
}

// liveClient is of the hub's real API server, with our definitions in place.
func liveClient(t *testing.T) liveHub {
	t.Helper()
	cfg := livetest.Config(t, "SPOKELET_HUB_KUBECONFIG")
	pool, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := dynamic.NewForConfigAndClient(cfg, pool)
	if err != nil {
		t.Fatal(err)
	}
	if err := crds.Install(t.Context(), definitions, crds.Hub()); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), workv1.Install(scheme), clusterv1.Install(scheme)); err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme, HTTPClient: pool})
	if err != nil {
		t.Fatal(err)
	}
	return liveHub{WithWatch: c, config: cfg, pool: pool}
}

// liveNamespace makes a namespace that goes with the test.
func liveNamespace(t *testing.T, admin client.Client, labels map[string]string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "work-", Labels: labels}}
	if err := admin.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), ns) })
	return ns.Name
}

// conflictingWriter writes the work whenever a status is on its way, so that the API server
// refuses it.
type conflictingWriter struct {
	kind     *kind
	active   atomic.Bool
	attempts atomic.Int64
}

func (v *conflictingWriter) getBetween(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	v.attempts.Add(1)
	if v.active.Load() {
		theirs := v.kind.New().Object()
		theirs.SetNamespace(o.GetNamespace())
		theirs.SetName(o.GetName())
		annotation := `{"metadata":{"annotations":{"rival":"` + time.Now().Format(time.RFC3339Nano) + `"}}}`
		if err := c.Patch(ctx, theirs, client.RawPatch("application/merge-patch+json", []byte(annotation))); err != nil {
			return err
		}
	}
	return c.SubResource(sub).Patch(ctx, o, p, opts...)
}

func TestLiveConflictsAreRetriedWithoutErrors(t *testing.T) {
	eachKind(t, testConflicts)
}

func testConflicts(t *testing.T, k *kind) {
	t.Helper()
	admin := liveClient(t)
	ns := admin.cluster(t)
	stored := k.newWork(ns, "w")
	stored.SetUID("")
	if err := admin.Create(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	enemy, recorder := &conflictingWriter{kind: k}, events.NewFakeRecorder(10)
	w, err := New(Config{
		Sync: resource.NewHub(), Events: recorder, HubHash: testHash,
		Client: interceptor.NewClient(admin.WithWatch, interceptor.Funcs{SubResourcePatch: enemy.getBetween}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = w.Start(ctx) })
	defer running.Wait()
	defer cancel()

	const storm, calm = 4 * time.Second, 40
	enemy.active.Store(true)
	key := k.keyOf(stored).String()
	// Not False: the last write of it may succeed when the rival has ended, and would be an event.
	w.receive(ns, resource.Resource{Key: key, UID: string(stored.GetUID()), Body: statusBody(t, applied(1, metav1.ConditionUnknown))})
	<-time.After(storm)
	livetest.Eventually(t, "some writes were refused", func() bool { return enemy.attempts.Load() >= 4 })
	w.receive(ns, resource.Resource{Key: key, UID: string(stored.GetUID()), Body: statusBody(t, applied(1, metav1.ConditionTrue))})
	if got := enemy.attempts.Load(); got > calm {
		t.Errorf("%d writes in %s of conflicts, want at most %d", got, storm, calm)
	}
	enemy.active.Store(false)
	got := k.New()
	livetest.Eventually(t, "the last status is there", func() bool {
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(stored), got.Object()); err != nil {
			t.Fatal(err)
		}
		return meta.IsStatusConditionTrue(*got.Conditions(), "Applied")
	})
	if len(recorder.Events) != 0 {
		t.Errorf("a conflict is no event: %s", <-recorder.Events)
	}
}
