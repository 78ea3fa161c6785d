// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

var errSpied = errors.New("spied")

// spy notes how long a request has.
type spy struct{ within time.Duration }

func (s *spy) note(ctx context.Context) error {
	deadline, ok := ctx.Deadline()
	if s.within = 0; ok {
		s.within = time.Until(deadline)
	}
	return errSpied
}

type spiedLeases struct {
	coordinationclient.LeaseInterface
	*spy
}

func (s spiedLeases) Get(ctx context.Context, _ string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	return &coordinationv1.Lease{}, s.note(ctx)
}

func (s spiedLeases) Create(ctx context.Context, _ *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return &coordinationv1.Lease{}, s.note(ctx)
}

func (s spiedLeases) Update(ctx context.Context, _ *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return &coordinationv1.Lease{}, s.note(ctx)
}

type spiedNodes struct {
	corev1client.NodeInterface
	*spy
}

func (s spiedNodes) Get(ctx context.Context, _ string, _ metav1.GetOptions) (*corev1.Node, error) {
	return &corev1.Node{}, s.note(ctx)
}

func (s spiedNodes) Create(ctx context.Context, _ *corev1.Node, _ metav1.CreateOptions) (*corev1.Node, error) {
	return &corev1.Node{}, s.note(ctx)
}

func (s spiedNodes) Patch(ctx context.Context, _ string, _ types.PatchType, _ []byte, _ metav1.PatchOptions, _ ...string) (*corev1.Node, error) {
	return &corev1.Node{}, s.note(ctx)
}

func TestLeaseRequestsAreBounded(t *testing.T) {
	seen := &spy{}
	leases := boundedLeases{spiedLeases{spy: seen}}
	nodes := &ownedNodes{NodeInterface: spiedNodes{spy: seen}, semaphore: newSemaphore()}
	for name, ask := range map[string]func(context.Context) error{
		"get lease":    func(ctx context.Context) error { _, err := leases.Get(ctx, "n", metav1.GetOptions{}); return err },
		"create lease": func(ctx context.Context) error { _, err := leases.Create(ctx, nil, metav1.CreateOptions{}); return err },
		"renew lease":  func(ctx context.Context) error { _, err := leases.Update(ctx, nil, metav1.UpdateOptions{}); return err },
		"get node":     func(ctx context.Context) error { _, err := nodes.Get(ctx, "n", metav1.GetOptions{}); return err },
		"create node": func(ctx context.Context) error {
			_, err := nodes.Create(ctx, &corev1.Node{}, metav1.CreateOptions{})
			return err
		},
		"write status": func(ctx context.Context) error {
			_, err := nodes.Patch(ctx, "n", types.StrategicMergePatchType, nil, metav1.PatchOptions{}, "status")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := ask(t.Context()); !errors.Is(err, errSpied) {
				t.Fatal(err)
			}
			// Two may fail before the lease runs out.
			if seen.within <= 0 || seen.within > leaseSeconds*time.Second/3 {
				t.Errorf("it may take %s of the %d s of a lease", seen.within, leaseSeconds)
			}
		})
	}
}

// busyNodes answers each request late, and counts those that wait for an answer.
type busyNodes struct {
	corev1client.NodeInterface
	waiting, most *int
}

func (b busyNodes) Get(context.Context, string, metav1.GetOptions) (*corev1.Node, error) {
	*b.waiting++
	*b.most = max(*b.most, *b.waiting)
	time.Sleep(requestTimeout * 2 / 5)
	*b.waiting--
	return nil, errSpied
}

func TestNodeRequestsOfClusterAreSerialized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewSimpleClientset())
		defer h.stop()
		h.split()
		waiting, most := 0, 0
		answers := make(chan error)
		for _, name := range []string{"spoke1", "spoke1.gpu", "spoke1.std", "spoke1", "spoke1"} {
			nodes := &ownedNodes{NodeInterface: busyNodes{waiting: &waiting, most: &most}, semaphore: h.provider.nodes[name].semaphore}
			go func() {
				_, err := nodes.Get(t.Context(), name, metav1.GetOptions{})
				answers <- err
			}()
		}
		late := 0
		for range 5 {
			if err := <-answers; errors.Is(err, errAcquireTimeout) {
				late++
			}
		}
		if most != 1 || late != 2 {
			t.Errorf("%d requests at once, %d of 5 gave up; want 1 at once, and that the last two give up", most, late)
		}
	})
}
