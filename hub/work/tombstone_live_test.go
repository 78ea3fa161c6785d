// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// deletingClient has every work deleted while the hub puts the finalizer on it.
type deletingClient struct {
	client.Client

	other client.Client
	// held are the works that got their finalizer.
	held chan string
}

func (h *deletingClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	var deleting sync.WaitGroup
	// The answer to the patch is decoded into obj meanwhile.
	work := &workv1.ManifestWork{}
	work.SetNamespace(obj.GetNamespace())
	work.SetName(obj.GetName())
	deleting.Go(func() { _ = h.other.Delete(ctx, work) })
	err := h.Client.Patch(ctx, obj, patch, opts...)
	deleting.Wait()
	if err == nil {
		h.held <- obj.GetName()
	}
	return err
}

// TestLiveWorkDeletedDuringFinalizerPatchIsDeletedInSpoke tries until an API
// server has deleted a work at once that has its finalizer: one of five times.
func TestLiveWorkDeletedDuringFinalizerPatchIsDeletedInSpoke(t *testing.T) {
	const most = 200
	t.Parallel()
	admin, held := liveClient(t), make(chan string, most)
	cluster := admin.cluster(t) // somebody made its namespace: no policy is for it
	r := runLive(t, admin, []string{cluster}, func(c client.Client) client.Client { return &deletingClient{Client: c, other: admin, held: held} })
	for i := range most {
		work := r.create(t, cluster, "w"+strconv.Itoa(i), setOrphanPolicy)
		if r.isDeletedAtOnce(t, work, held) {
			r.isDeletedInTheSpoke(t, work)
			return
		}
	}
	t.Fatalf("of %d works none went as it got its finalizer", most)
}

// isDeletedAtOnce tells whether a work got its finalizer and is gone all the same.
func (r running) isDeletedAtOnce(t *testing.T, work *workv1.ManifestWork, held <-chan string) (so bool) {
	t.Helper()
	var there workv1.ManifestWork
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, livetest.Patience, true, func(ctx context.Context) (bool, error) {
		select {
		case name := <-held:
			so = name == work.Name
		default:
		}
		err := r.admin.Get(ctx, client.ObjectKeyFromObject(work), &there)
		gone := apierrors.IsNotFound(err)
		return gone || there.DeletionTimestamp != nil, client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Fatalf("work %s is not deleted: %v", work.Name, err)
	}
	if there.DeletionTimestamp != nil {
		return false
	}
	select {
	case name := <-held:
		so = name == work.Name
	default:
	}
	return so
}

// isDeletedInTheSpoke plays the agent of the work's cluster.
func (r running) isDeletedInTheSpoke(t *testing.T, work *workv1.ManifestWork) {
	t.Helper()
	key := "manifestwork/" + work.Namespace + "/" + work.Name
	var sent wire.Work
	livetest.Eventually(t, "the agent is told of the deletion of "+key, func() bool {
		res, ok := r.loadResource(work.Namespace, key)
		if !ok || res.UID != string(work.UID) {
			return false
		}
		var err error
		if sent, err = wire.DecodeWork(res.Body); err != nil {
			t.Fatal(err)
		}
		return sent.Deleting
	})
	if option := sent.Spec.DeleteOption; option == nil || option.PropagationPolicy != workv1.DeletePropagationPolicyTypeOrphan {
		t.Errorf("sent %+v", sent)
	}
	r.report(t, work, wire.WorkStatus{ObservedGeneration: 1, Finalized: true})
	livetest.Eventually(t, "a work of which the agent has nothing is no longer published", func() bool {
		return !slices.Contains(r.source(work.Namespace).Keys(), key)
	})
}
