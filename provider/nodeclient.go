// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// requestTimeout bounds each request for a Node or a Lease. It is less than the
// lease lasts, and it is what bounds the NodeController's callback.
const requestTimeout = 10 * time.Second

// errForeign is returned when a Node of the cluster's name belongs to somebody
// else.
var errForeign = errors.New("node is not a virtual node of this cluster")

// owner is whose a Node is. The providerID decides: it cannot be changed
// once it is set, while anyone who may label nodes can set a label.
type owner int

const (
	ownerForeign owner = iota
	ownerStale         // a virtual node of an earlier cluster of that name
	ownerUs
)

func ownerOf(node *corev1.Node, providerID string) owner {
	switch {
	case !strings.HasPrefix(node.Spec.ProviderID, providerIDScheme):
		return ownerForeign
	case node.Spec.ProviderID == providerID:
		return ownerUs
	default:
		return ownerStale
	}
}

// ownedNodes is the client that the NodeController gets for one node. It sees
// no Node but ours, so that it writes to no other, and calls onWrite after each
// write.
type ownedNodes struct {
	corev1client.NodeInterface
	providerID string
	onWrite    func()
	semaphore  semaphore
}

// semaphore is shared by the nodes of one cluster, of which one asks the API server at a
// time: a cluster that is split into many nodes and comes and goes must not have it
// answer nobody else.
type semaphore chan struct{}

func newSemaphore() semaphore { return make(semaphore, 1) }

var errAcquireTimeout = errors.New("requests for the nodes of the cluster take too long")

// acquire waits for the semaphore. The context that it returns bounds the wait and the
// request together; release ends both.
func (t semaphore) acquire(ctx context.Context) (bounded context.Context, end func(), err error) {
	bounded, cancel := context.WithTimeoutCause(ctx, requestTimeout, errAcquireTimeout)
	select {
	case t <- struct{}{}:
		return bounded, func() {
			cancel()
			<-t
		}, nil
	case <-bounded.Done():
		cancel()
		return nil, nil, context.Cause(bounded)
	}
}

// Get returns errForeign in place of a Node that is not ours.
func (g *ownedNodes) Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Node, error) {
	ctx, end, err := g.semaphore.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	node, err := withoutManagedFields(g.NodeInterface.Get(ctx, name, opts))
	if err != nil {
		return nil, err
	}
	if ownerOf(node, g.providerID) != ownerUs {
		return nil, fmt.Errorf("node %s: %w", name, errForeign)
	}
	return node, nil
}

// Create bounds the request, and writes down on the Node what it is made with, as
// virtual-kubelet does with each change: else a label that the Node is made with, such as
// that of a group, could not be taken away by the first change.
func (g *ownedNodes) Create(ctx context.Context, node *corev1.Node, opts metav1.CreateOptions) (*corev1.Node, error) {
	ctx, end, err := g.semaphore.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	said, err := withLastApplied(node)
	if err != nil {
		return nil, err
	}
	created, err := withoutManagedFields(g.NodeInterface.Create(ctx, said, opts))
	if err != nil {
		return nil, err
	}
	g.onWrite()
	return created, nil
}

func withLastApplied(node *corev1.Node) (*corev1.Node, error) {
	meta, err := json.Marshal(metav1.ObjectMeta{Name: node.Name, Labels: node.Labels})
	if err != nil {
		return nil, fmt.Errorf("metadata of node %s cannot be encoded: %w", node.Name, err)
	}
	status, err := json.Marshal(node.Status)
	if err != nil {
		return nil, fmt.Errorf("status of node %s cannot be encoded: %w", node.Name, err)
	}
	said := node.DeepCopy()
	metav1.SetMetaDataAnnotation(&said.ObjectMeta, annotationLastMeta, string(meta))
	metav1.SetMetaDataAnnotation(&said.ObjectMeta, annotationLastStatus, string(status))
	return said, nil
}

// Patch acquires the semaphore and bounds the request.
func (g *ownedNodes) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*corev1.Node, error) {
	ctx, end, err := g.semaphore.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	node, err := withoutManagedFields(g.NodeInterface.Patch(ctx, name, kind, data, opts, subresources...))
	if err != nil {
		return nil, err
	}
	g.onWrite()
	return node, nil
}

// withoutManagedFields is an answer of the API server without the part that nobody reads and
// that is most of what the controllers keep of it for each node. An object that
// is written without it keeps what it has there.
func withoutManagedFields[T metav1.Object](object T, err error) (T, error) {
	if err == nil {
		object.SetManagedFields(nil)
	}
	return object, err
}

// boundedLeases bounds the requests of the lease controller, whose loop waits
// for each of them.
type boundedLeases struct {
	coordinationclient.LeaseInterface
}

func (b boundedLeases) Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return withoutManagedFields(b.LeaseInterface.Get(ctx, name, opts))
}

func (b boundedLeases) Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return withoutManagedFields(b.LeaseInterface.Create(ctx, lease, opts))
}

func (b boundedLeases) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return withoutManagedFields(b.LeaseInterface.Update(ctx, lease, opts))
}
