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

// pusher decides when the Node is written. It belongs to control's goroutine.
type pusher struct {
	node *virtualNode
	push func(*corev1.Node)

	last      *corev1.Node // what was pushed last
	lastAt    time.Time
	connected bool // whether the cluster was connected then
	lost      bool // what was pushed last was not written
	timer     *time.Timer
	// reconnects has a token for each time that the cluster may be told to be back.
	reconnects *rate.Limiter
}

// control runs a NodeController until ctx ends, the node is no longer wanted
// for this cluster, or the Node is gone.
//
// NodeController's callback blocks while an earlier status is being written,
// and for ever once the controller has ended. So both calling it and ending the
// controller are done here, in one goroutine: the controller's context does not
// end with ctx, but when control returns.
func (n *virtualNode) control(ctx context.Context, cluster Cluster, retry *backoff) error {
	provider := &alwaysWell{}
	first, connected := n.now()
	controller, err := n.controller(provider, first, cluster, retry)
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancel(log.WithLogger(context.WithoutCancel(ctx), vkLogger{logger: n.logger}))
	defer func() { <-controller.Done() }()
	defer cancel()
	n.forgetTokens()
	go func() { _ = controller.Run(inner) }() // Err has it
	select {
	case <-ctx.Done():
		return nil
	case <-controller.Done():
		return fmt.Errorf("node %s cannot be registered: %w", n.name, controller.Err())
	case <-controller.Ready():
	}
	n.wrote(first)
	n.setRegistration(registered)
	stop := n.provider.config.Pods.Watch(ctx, n.name)
	defer stop()
	p := &pusher{
		node: n, push: provider.push, last: first, connected: connected, lastAt: time.Now(), timer: time.NewTimer(never),
		reconnects: rate.NewLimiter(rate.Every(reconnectEvery), reconnectBurst),
	}
	defer p.timer.Stop()
	return p.loop(ctx, cluster, retry)
}

func (n *virtualNode) controller(provider vknode.NodeProvider, first *corev1.Node, cluster Cluster, retry *backoff) (*vknode.NodeController, error) {
	client := n.provider.config.Client
	nodes := &guardedNodes{
		NodeInterface: client.CoreV1().Nodes(),
		providerID:    cluster.providerID(n.group),
		written:       retry.reset,
		turn:          n.turn,
	}
	leases := boundedLeases{client.CoordinationV1().Leases(corev1.NamespaceNodeLease)}
	controller, err := vknode.NewNodeController(provider, first.DeepCopy(), nodes,
		vknode.WithNodeEnableLeaseV1WithRenewInterval(leases, leaseSeconds, leaseRenewal),
		vknode.WithNodePingInterval(never),
		vknode.WithNodeStatusUpdateInterval(never),
		vknode.WithNodeStatusUpdateErrorHandler(n.statusFailed),
	)
	if err != nil {
		return nil, fmt.Errorf("node %s has no controller: %w", n.name, err)
	}
	return controller, nil
}

// forgetTokens drops what was said of an earlier Node. It must come before the
// controller starts; changed stays, for it is about the view.
func (n *virtualNode) forgetTokens() {
	for _, c := range []chan struct{}{n.gone, n.drifted, n.lost} {
		select {
		case <-c:
		default:
		}
	}
}

func (p *pusher) loop(ctx context.Context, cluster Cluster, retry *backoff) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.node.gone:
			return nil
		case <-p.node.changed:
			if !p.node.serves(cluster.ID) {
				return nil
			}
			p.after(pushSpacing)
		case <-p.node.drifted:
			p.after(driftSpacing)
		case <-p.node.lost:
			p.lost = true
			p.timer.Reset(retry.next())
		case <-p.timer.C:
			p.write()
		}
	}
}

// after writes now, or once the spacing since the last write has passed.
func (p *pusher) after(spacing time.Duration) {
	if wait := time.Until(p.lastAt.Add(spacing)); wait > 0 {
		p.timer.Reset(wait)
		return
	}
	p.write()
}

func (p *pusher) write() {
	node, connected := p.node.now()
	same, mend := sameNode(p.last, node), p.lost || p.node.hasDrifted()
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
	p.lost = false
	p.last, p.connected, p.lastAt = node, connected, time.Now()
	p.push(node.DeepCopy()) // the controller writes heartbeats into it
	p.node.wrote(node)
}

// wrote remembers what the Node says, for the times of transitions and for what
// the cluster does not say again. Of a cluster that is another by now that is nothing.
func (n *virtualNode) wrote(node *corev1.Node) {
	n.mu.Lock()
	if node.Spec.ProviderID == n.view.cluster.providerID(n.group) {
		n.view.base = ours(node.Status)
	}
	n.mu.Unlock()
	c := find(node.Status.Conditions, corev1.NodeReady)
	n.provider.ready.set(n.name, c != nil && c.Status == corev1.ConditionTrue)
}

// sameNode compares what a virtual node writes after its creation.
func sameNode(a, b *corev1.Node) bool {
	return equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Status, b.Status)
}

// observe wakes run when somebody has changed what is ours. It may be mistaken,
// when a newer status has been pushed than the one that is seen: hasDrifted is
// asked again before anything is written.
func (n *virtualNode) observe(node *corev1.Node) {
	if n.differs(node) {
		notify(n.drifted)
	}
}

func (n *virtualNode) hasDrifted() bool {
	node := n.provider.present(n.name)
	return node != nil && n.differs(node)
}

func (n *virtualNode) differs(node *corev1.Node) bool {
	n.mu.Lock()
	v := n.view
	n.mu.Unlock()
	return drifted(node, v)
}

func drifted(node *corev1.Node, v view) bool {
	for name, value := range v.labels() {
		if node.Labels[name] != value {
			return true
		}
	}
	for _, want := range v.base.Conditions {
		have := find(node.Status.Conditions, want.Type)
		if have == nil || have.Status != want.Status || have.Reason != want.Reason {
			return true
		}
	}
	return node.Status.DaemonEndpoints.KubeletEndpoint.Port != v.port ||
		!equality.Semantic.DeepEqual(node.Status.Capacity, v.base.Capacity) ||
		!equality.Semantic.DeepEqual(node.Status.Allocatable, v.base.Allocatable)
}
