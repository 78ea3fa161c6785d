// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	vknode "github.com/virtual-kubelet/virtual-kubelet/node"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/spokelet/spokelet/internal/ratelimit"
)

const (
	// pushSpacing keeps a cluster that comes and goes many times a second from
	// being as many writes. The first change is never held back.
	pushSpacing = 200 * time.Millisecond

	// reconnectBurst and reconnectEvery bound how often a node is Ready again: a cluster
	// that comes and goes without end has all its nodes written each time. That it is
	// gone is never held back.
	reconnectBurst = 5
	reconnectEvery = 10 * time.Second

	// driftSpacing is the same for what others write over ours.
	driftSpacing = time.Second

	// storedFactor is how many times what is written of a Node is stored: virtual-kubelet
	// keeps its last write in annotations, as JSON, and the API server who wrote what.
	storedFactor = 5
)

// statusPusher decides when the Node is written. It belongs to the goroutine of runController.
type statusPusher struct {
	node *virtualNode
	push func(*corev1.Node)

	last        *corev1.Node // what was pushed last
	lastAt      time.Time
	connected   bool // whether the cluster was connected then
	writeFailed bool // what was pushed last was not written
	timer       *time.Timer
	// reconnects has a token for each time that the cluster may be shown as reconnected.
	reconnects *rate.Limiter
}

// runController runs a NodeController until ctx ends, the node is no longer wanted
// for this cluster, or the Node is gone.
//
// NodeController's callback blocks while an earlier status is being written,
// and for ever once the controller has ended. So both calling it and ending the
// controller are done here, in one goroutine: the controller's context does not
// end with ctx, but when runController returns.
func (n *virtualNode) runController(ctx context.Context, cluster Cluster, retry *backoff) error {
	provider := &healthyNodeProvider{}
	first, connected := n.desiredNode()
	controller, err := n.newController(provider, first, cluster, retry)
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancel(log.WithLogger(context.WithoutCancel(ctx), vkLogger{logger: n.logger}))
	defer func() { <-controller.Done() }()
	defer cancel()
	n.drainSignals()
	go func() { _ = controller.Run(inner) }() // Err has it
	select {
	case <-ctx.Done():
		return nil
	case <-controller.Done():
		return fmt.Errorf("node %s cannot be registered: %w", n.name, controller.Err())
	case <-controller.Ready():
	}
	n.recordWritten(first)
	n.setRegistration(registered)
	stop := n.provider.config.Pods.Watch(ctx, n.name)
	defer stop()
	p := &statusPusher{
		node: n, push: provider.push, last: first, connected: connected, lastAt: time.Now(), timer: time.NewTimer(neverInterval),
		reconnects: rate.NewLimiter(rate.Every(reconnectEvery), reconnectBurst),
	}
	defer p.timer.Stop()
	return p.run(ctx, cluster, retry)
}

func (n *virtualNode) newController(provider vknode.NodeProvider, first *corev1.Node, cluster Cluster, retry *backoff) (*vknode.NodeController, error) {
	client := n.provider.config.Client
	nodes := &ownedNodes{
		NodeInterface: client.CoreV1().Nodes(),
		providerID:    cluster.providerID(n.group),
		onWrite:       retry.reset,
		semaphore:     n.semaphore,
	}
	leases := boundedLeases{client.CoordinationV1().Leases(corev1.NamespaceNodeLease)}
	controller, err := vknode.NewNodeController(provider, first.DeepCopy(), nodes,
		vknode.WithNodeEnableLeaseV1WithRenewInterval(leases, leaseSeconds, leaseRenewal),
		vknode.WithNodePingInterval(neverInterval),
		vknode.WithNodeStatusUpdateInterval(neverInterval),
		vknode.WithNodeStatusUpdateErrorHandler(n.handleStatusError),
	)
	if err != nil {
		return nil, fmt.Errorf("node %s has no controller: %w", n.name, err)
	}
	return controller, nil
}

// drainSignals drops signals about an earlier Node. It must come before the
// controller starts; changed stays, for it is about the state.
func (n *virtualNode) drainSignals() {
	for _, c := range []chan struct{}{n.nodeGone, n.nodeDrifted, n.writeFailed} {
		select {
		case <-c:
		default:
		}
	}
}

func (p *statusPusher) run(ctx context.Context, cluster Cluster, retry *backoff) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.node.nodeGone:
			return nil
		case <-p.node.changed:
			if !p.node.isWantedFor(cluster.ID) {
				return nil
			}
			p.writeAfter(pushSpacing)
		case <-p.node.nodeDrifted:
			p.writeAfter(driftSpacing)
		case <-p.node.writeFailed:
			p.writeFailed = true
			p.timer.Reset(retry.next())
		case <-p.timer.C:
			p.write()
		}
	}
}

// writeAfter writes now, or once the spacing since the last write has passed.
func (p *statusPusher) writeAfter(spacing time.Duration) {
	if wait := time.Until(p.lastAt.Add(spacing)); wait > 0 {
		p.timer.Reset(wait)
		return
	}
	p.write()
}

func (p *statusPusher) write() {
	node, connected := p.node.desiredNode()
	same, mend := sameNode(p.last, node), p.writeFailed || p.node.hasDrifted()
	if same && !mend {
		return
	}
	reconnected := connected && !p.connected
	if wait := ratelimit.TokenDelay(p.reconnects); reconnected && wait > 0 {
		p.timer.Reset(wait)
		return
	}
	writes := p.node.provider.config.Writes
	// What the cluster says of its nodes waits for what it has had written. What the hub
	// says of the cluster, and what others took from it, does not.
	if wait := writes.Wait(p.node.cluster); wait > 0 && connected == p.connected && !mend {
		p.timer.Reset(wait)
		return
	}
	writes.Spend(p.node.cluster, storedFactor*int64(node.Size()))
	if reconnected {
		p.reconnects.Allow()
	}
	p.writeFailed = false
	p.last, p.connected, p.lastAt = node, connected, time.Now()
	p.push(node.DeepCopy()) // the controller writes heartbeats into it
	p.node.recordWritten(node)
}

// recordWritten remembers what the Node says, for the times of transitions and for what
// the cluster does not say again. Of a cluster that is another by now that is nothing.
func (n *virtualNode) recordWritten(node *corev1.Node) {
	n.mu.Lock()
	if node.Spec.ProviderID == n.state.cluster.providerID(n.group) {
		n.state.lastStatus = ownStatus(node.Status)
	}
	n.mu.Unlock()
	c := findCondition(node.Status.Conditions, corev1.NodeReady)
	n.provider.ready.set(n.name, c != nil && c.Status == corev1.ConditionTrue)
}

// sameNode compares what a virtual node writes after its creation.
func sameNode(a, b *corev1.Node) bool {
	return equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Status, b.Status)
}

// detectDrift wakes run when somebody has changed what is ours. It may be mistaken,
// when a newer status has been pushed than the one that is seen: hasDrifted is
// asked again before anything is written.
func (n *virtualNode) detectDrift(node *corev1.Node) {
	if n.differs(node) {
		notify(n.nodeDrifted)
	}
}

func (n *virtualNode) hasDrifted() bool {
	node := n.provider.cachedNode(n.name)
	return node != nil && n.differs(node)
}

func (n *virtualNode) differs(node *corev1.Node) bool {
	n.mu.Lock()
	v := n.state
	n.mu.Unlock()
	return hasDrifted(node, v)
}

func hasDrifted(node *corev1.Node, v nodeState) bool {
	for name, value := range v.labels() {
		if node.Labels[name] != value {
			return true
		}
	}
	for _, want := range v.lastStatus.Conditions {
		have := findCondition(node.Status.Conditions, want.Type)
		if have == nil || have.Status != want.Status || have.Reason != want.Reason {
			return true
		}
	}
	return node.Status.DaemonEndpoints.KubeletEndpoint.Port != v.port ||
		!equality.Semantic.DeepEqual(node.Status.Capacity, v.lastStatus.Capacity) ||
		!equality.Semantic.DeepEqual(node.Status.Allocatable, v.lastStatus.Allocatable)
}
