// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/spokelet/spokelet/api/crds"
	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// liveClient is of the hub's real API server, with our definitions in place.
func liveClient(t *testing.T) client.WithWatch {
	t.Helper()
	file := os.Getenv("SPOKELET_HUB_KUBECONFIG")
	if file == "" {
		t.Skip("needs a hub: SPOKELET_HUB_KUBECONFIG names no kubeconfig")
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	pool, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(pool.Transport) })
	definitions, err := dynamic.NewForConfigAndClient(cfg, pool)
	if err != nil {
		t.Fatal(err)
	}
	if err := crds.Install(t.Context(), definitions, crds.Hub()); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme, HTTPClient: pool})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// rival writes the work whenever a status is on its way, so that the API server
// refuses it.
type rival struct {
	active   atomic.Bool
	attempts atomic.Int64
}

func (v *rival) getBetween(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	v.attempts.Add(1)
	if v.active.Load() {
		theirs := &v1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()}}
		annotation := `{"metadata":{"annotations":{"rival":"` + time.Now().Format(time.RFC3339Nano) + `"}}}`
		if err := c.Patch(ctx, theirs, client.RawPatch("application/merge-patch+json", []byte(annotation))); err != nil {
			return err
		}
	}
	return c.SubResource(sub).Patch(ctx, o, p, opts...)
}

func TestAStormOfRealConflictsIsWaitedOutInSilence(t *testing.T) {
	admin := liveClient(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "storm-"}}
	if err := admin.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), ns) })
	stored := &v1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "w"}}
	if err := admin.Create(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	enemy, recorder := &rival{}, events.NewFakeRecorder(10)
	w, err := New(Config{
		Sync: resource.NewHub(), Events: recorder,
		Client: interceptor.NewClient(admin, interceptor.Funcs{SubResourcePatch: enemy.getBetween}),
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
	key := keyOf(client.ObjectKeyFromObject(stored)).String()
	w.receive(ns.Name, resource.Resource{Key: key, UID: string(stored.UID), Body: statusBody(t, applied(1, metav1.ConditionFalse))})
	<-time.After(storm)
	w.receive(ns.Name, resource.Resource{Key: key, UID: string(stored.UID), Body: statusBody(t, applied(1, metav1.ConditionTrue))})
	if got := enemy.attempts.Load(); got < 4 || got > calm {
		t.Errorf("%d writes in %s of conflicts, want some and at most %d", got, storm, calm)
	}
	enemy.active.Store(false)
	var got v1alpha1.Work
	err = wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := admin.Get(ctx, client.ObjectKeyFromObject(stored), &got)
		return meta.IsStatusConditionTrue(got.Status.Conditions, "Applied"), err
	})
	if err != nil {
		t.Errorf("the last status is not there: %v: %+v", err, got.Status)
	}
	if len(recorder.Events) != 0 {
		t.Errorf("a conflict is no event: %s", <-recorder.Events)
	}
}
