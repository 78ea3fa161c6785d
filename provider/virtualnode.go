// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	vknode "github.com/virtual-kubelet/virtual-kubelet/node"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/wire"
)

const (
	leaseSeconds = 40
	leaseRenewal = 10 * time.Second

	// neverInterval is the interval of what happens on events instead: NodeController's
	// pings of a provider that is always well, and its repeated status writes.
	neverInterval = 10 * 365 * 24 * time.Hour
)

// virtualNode keeps one Node of the hub equal to its state.
type virtualNode struct {
	name string
	// cluster is whose node it is, and group of which of its groups; empty for its own.
	cluster, group string
	provider       *Provider
	logger         logr.Logger
	semaphore      semaphore

	// groups are those of a cluster's own node, and adopted is true once the Nodes of
	// groups that were there have been seen. Both are guarded by the provider's mu.
	groups  map[string]*virtualNode
	adopted bool

	mu sync.Mutex // guards what follows
	// wanted is false when the cluster is not accepted, or no more: then the
	// Node must not exist.
	wanted bool
	// leaving: it is not wanted because its group has no nodes any more, nor it pods.
	leaving bool
	// forgotten: what is published of the cluster was dropped since run began to
	// serve it.
	forgotten bool
	state     nodeState
	// registration is whether the Node could be had.
	registration registration
	// running is true while run is, from before its start until it has decided
	// to end.
	running bool

	// changed and nodeGone hold at most one token each. changed: the state, or
	// wanted, may be new. nodeGone: the Node may have been deleted or replaced.
	changed, nodeGone chan struct{}
	// nodeDrifted: somebody has written over what is ours. writeFailed: a write failed.
	nodeDrifted, writeFailed chan struct{}
}

// registration says whether a cluster has its Node.
type registration int

const (
	registrationUnknown registration = iota // not known yet
	registered
	nameTaken // by a Node that is not ours
)

func newVirtualNode(p *Provider, cluster, group string) *virtualNode {
	name := wire.NodeName(cluster, group)
	return &virtualNode{
		name:        name,
		cluster:     cluster,
		group:       group,
		provider:    p,
		logger:      p.config.Logger.WithValues("node", name),
		semaphore:   newSemaphore(),
		state:       nodeState{group: group, address: p.config.Address.String()},
		changed:     make(chan struct{}, 1),
		nodeGone:    make(chan struct{}, 1),
		nodeDrifted: make(chan struct{}, 1),
		writeFailed: make(chan struct{}, 1),
	}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// update changes the state and wakes run.
func (n *virtualNode) update(change func(*nodeState)) {
	n.mu.Lock()
	change(&n.state)
	n.decideSystemLabels()
	n.mu.Unlock()
	notify(n.changed)
}

func (n *virtualNode) setLink(link Link) {
	n.update(func(v *nodeState) {
		v.link = link
		v.wasConnected = v.wasConnected || link.Up
	})
}

// setSummary reports whether there was a summary before.
func (n *virtualNode) setSummary(s wire.NodeSummary) (known bool) {
	n.update(func(v *nodeState) {
		known = v.summary != nil
		v.summary = &s
	})
	return known
}

// desiredNode returns the Node that the hub should have, and whether its cluster is connected.
func (n *virtualNode) desiredNode() (node *corev1.Node, connected bool) {
	n.mu.Lock()
	v := n.state
	n.mu.Unlock()
	return v.node(metav1.Now()), v.link.Up
}

// isWantedFor reports whether the node is still wanted for the cluster of that id, and
// the cluster was not forgotten meanwhile.
func (n *virtualNode) isWantedFor(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.wanted && !n.forgotten && n.state.cluster.ID == id
}

// run keeps the Node until ctx ends, or until the Node is neither wanted nor
// there.
func (n *virtualNode) run(ctx context.Context) {
	retry := newBackoff()
	for ctx.Err() == nil {
		var err error
		if cluster, wanted := n.wantedCluster(); wanted {
			err = n.reconcileNode(ctx, cluster, retry)
		} else if err = n.removeNode(ctx); err == nil && n.provider.stopUnlessWanted(n) {
			return
		}
		if err == nil {
			retry.reset()
			continue
		}
		if ctx.Err() == nil {
			n.logger.Error(err, "virtual node failed")
			retry.wait(ctx)
		}
	}
}

// setRegistration has the cluster's record looked at again on a change.
func (n *virtualNode) setRegistration(r registration) {
	n.mu.Lock()
	changed := n.registration != r
	n.registration = r
	n.mu.Unlock()
	if changed {
		n.provider.requeueRecord(n.cluster)
	}
}

func (n *virtualNode) wantedCluster() (Cluster, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forgotten = false
	return n.state.cluster, n.wanted
}

// reconcileNode keeps the Node of one cluster until something about its identity
// changes: the cluster, or the Node itself. Then run looks again.
func (n *virtualNode) reconcileNode(ctx context.Context, cluster Cluster, retry *backoff) error {
	found, err := n.getNode(ctx)
	if err != nil {
		return err
	}
	if found != nil {
		switch ownerOf(found, cluster.providerID(n.group)) {
		case ownerForeign:
			return n.waitUntilNameIsFree(ctx, cluster)
		case ownerStale:
			return n.deleteNode(ctx, found)
		case ownerUs:
		}
	}
	if err := n.adoptNode(ctx, cluster, found); err != nil {
		return err
	}
	defer n.provider.config.Endpoints.Close(n.name)
	return n.runController(ctx, cluster, retry)
}

func (n *virtualNode) getNode(ctx context.Context) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	found, err := n.provider.config.Client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("node %s cannot be read: %w", n.name, err)
	}
	return found, nil
}

// setCluster changes what the record says; n.mu is held. What the Node says of another
// cluster of that name is dropped.
func (n *virtualNode) setCluster(cluster Cluster) {
	v := &n.state
	if v.cluster.ID != cluster.ID {
		v.lastStatus, v.clusterLabels, v.system = corev1.NodeStatus{}, nil, systemLabels{}
	}
	v.cluster = cluster
}

// adoptNode takes over what the Node already says, and opens its endpoint. A Node
// that is there and a Node that was deleted a moment ago are treated alike: the
// last known status is the base. What the Node of another cluster says is no base: the
// name may have become that one's meanwhile.
func (n *virtualNode) adoptNode(ctx context.Context, cluster Cluster, found *corev1.Node) error {
	if found != nil {
		n.provider.ports.reserve(n.name, found.Status.DaemonEndpoints.KubeletEndpoint.Port)
	}
	port, err := n.listen(ctx)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.state.port = port
	if found != nil && n.state.cluster.ID == cluster.ID {
		n.state.lastStatus, n.state.clusterLabels = ownStatus(found.Status), lastClusterLabels(found)
		if n.state.hadSystemLabels() {
			n.state.system = systemLabels{applied: true, known: true}
		}
		if n.group != "" && n.state.label == "" {
			n.state.label = consentedLabel(found, n.group, n.state.cluster)
		}
	}
	return nil
}

// listenTries bounds the search for a port that nobody else in the pod has.
const listenTries = 8

func (n *virtualNode) listen(ctx context.Context) (int32, error) {
	port, err := n.provider.ports.allocate(n.name)
	for range listenTries {
		if err != nil {
			return 0, fmt.Errorf("node %s has no kubelet endpoint: %w", n.name, err)
		}
		if err = n.provider.config.Endpoints.Open(ctx, n.name, port); err == nil {
			return port, nil
		}
		n.logger.Error(err, "cannot open the kubelet endpoint", "port", port)
		port, err = n.provider.ports.reallocate(n.name)
	}
	return 0, fmt.Errorf("node %s has no kubelet endpoint: %d ports could not be opened", n.name, listenTries)
}

// waitUntilNameIsFree reports that the name is taken and waits until it is not.
func (n *virtualNode) waitUntilNameIsFree(ctx context.Context, cluster Cluster) error {
	n.setRegistration(nameTaken)
	n.provider.ready.set(n.name, false)
	// The pods of somebody else's Node are not waited for.
	n.provider.config.Pods.RemoveNode(n.name)
	if n.group == "" {
		defer n.provider.config.Pods.ExpectNode(n.name)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	waiting := n.provider.waitForDeletion(ctx, n.name)
	for {
		select {
		case err := <-waiting:
			return err
		case <-n.changed:
			if !n.isWantedFor(cluster.ID) {
				cancel()
				<-waiting //nolint:errcheck // it was cancelled, and reports nothing
				return nil
			}
		}
	}
}

func (n *virtualNode) deleteNode(ctx context.Context, found *corev1.Node) error {
	if found.DeletionTimestamp != nil {
		return fmt.Errorf("node %s cannot be deleted: its finalizers hold it", found.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := n.provider.config.Client.CoreV1().Nodes().Delete(ctx, found.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(found.UID)),
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("node %s cannot be deleted: %w", found.Name, err)
	}
	return nil
}

// deleteOwnNode deletes the Node if it is a virtual one.
func (n *virtualNode) deleteOwnNode(ctx context.Context) error {
	found, err := n.getNode(ctx)
	if err != nil || found == nil {
		return err
	}
	if ownerOf(found, "") == ownerForeign {
		return nil
	}
	return n.deleteNode(ctx, found)
}

// NodeProvider's two methods. The node is always well, because the lease speaks
// for this process; what the cluster is like is in the status.
type healthyNodeProvider struct {
	push func(*corev1.Node)
}

func (a *healthyNodeProvider) Ping(context.Context) error { return nil }

func (a *healthyNodeProvider) NotifyNodeStatus(_ context.Context, push func(*corev1.Node)) {
	a.push = push
}

var _ vknode.NodeProvider = (*healthyNodeProvider)(nil)

// handleStatusError sees every status write that failed; NodeController itself would
// try again at its next interval, which is never.
func (n *virtualNode) handleStatusError(_ context.Context, err error) error {
	if apierrors.IsNotFound(err) || errors.Is(err, errForeign) {
		notify(n.nodeGone)
	} else {
		notify(n.writeFailed)
	}
	return err
}
