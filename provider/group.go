// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"github.com/spokelet/spokelet/api/wire"
)

// A cluster may be shown in groups of its nodes. The cluster's own node, which stays
// for the rest, holds a virtualNode for each group; all follow one session. Which
// groups there are the cluster's summary says, and what each is like a summary of its
// own: in whatever order the two come, a group is shown once both are there. A group
// that is not named any more keeps its Node while pods are bound to that.

// indexGroups finds the Nodes of a cluster's groups. A cluster that is one node is not
// in it.
const indexGroups = "groups of a cluster"

func groupIndexers() cache.Indexers {
	return cache.Indexers{indexGroups: func(obj any) ([]string, error) {
		node, ok := obj.(*corev1.Node)
		if !ok || ownerOf(node, "") == ownerForeign {
			return nil, nil
		}
		if cluster, group := wire.ParseNodeName(node.Name); group != "" {
			return []string{cluster}, nil
		}
		return nil, nil
	}}
}

// Group takes what a cluster says of a group of its nodes.
func (p *Provider) Group(name, group string, summary wire.NodeSummary) {
	p.mu.Lock()
	defer p.mu.Unlock()
	base := p.record(name)
	n := base.groups[group]
	if n == nil && !p.room(base) {
		p.config.Logger.V(1).Info("cluster has too many groups of nodes", "cluster", name, "group", group)
		p.drop(base)
		return
	}
	if n == nil {
		n = p.addGroup(base, group)
	}
	labelled := n.systemLabels()
	if known := n.summaryChanged(summary); !known {
		p.settle(base)
	}
	if n.systemLabels() != labelled {
		p.reconsiderSpaced(name)
	}
}

// Knows reports whether a summary of a group is held: what is not held has to be sent
// again.
func (p *Provider) Knows(name, group string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.nodes[wire.NodeName(name, group)]
	if !ok || group == "" {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.view.summary != nil
}

// Idle tells that the last pod of a group's node may be gone. It does not block.
func (p *Provider) Idle() { notify(p.idle) }

// idled looks at all clusters that are in groups.
func (p *Provider) idled() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, base := range slices.Collect(maps.Values(p.nodes)) {
		if len(base.groups) > 0 {
			p.settle(base)
		}
	}
}

// heldGroupsMax bounds the groups of a cluster together with those that it names no
// more and whose Nodes pods keep, or that it has not named yet: it names no more than
// wire.NodeGroupsMax at a time, and as many have room beside those that are left.
const heldGroupsMax = 2 * wire.NodeGroupsMax

// room makes room for one more group of a cluster, if there is any: those that were
// told of and never named give way. p.mu is held.
func (p *Provider) room(base *virtualNode) bool {
	if len(base.groups) < heldGroupsMax {
		return true
	}
	for _, n := range slices.Collect(maps.Values(base.groups)) {
		n.mu.Lock()
		if !n.wanted && !n.running {
			n.view.summary = nil
		}
		n.mu.Unlock()
		p.drop(n)
	}
	return len(base.groups) < heldGroupsMax
}

// addGroup makes what is known of a group; p.mu is held.
func (p *Provider) addGroup(base *virtualNode, group string) *virtualNode {
	n := newVirtualNode(p, base.name, group)
	n.turn = base.turn
	base.mu.Lock()
	n.view.cluster, n.view.link, n.view.met = base.view.cluster, base.view.link, base.view.met
	base.mu.Unlock()
	n.view.waited = p.waited
	if base.groups == nil {
		base.groups = map[string]*virtualNode{}
	}
	base.groups[group] = n
	p.nodes[n.name] = n
	return n
}

// adopt takes over the Nodes of a cluster's groups that an earlier process of the hub
// left: they are kept until the cluster has said which groups it has. They alone may
// have pods of before, and are expected. Any other Node of which nothing is known goes.
// p.mu is held.
func (p *Provider) adopt(base *virtualNode, cluster Cluster) {
	first := !base.adopted
	base.adopted = true
	nodes := p.groupNodes(base.name)
	delete(p.strays, base.name)
	for _, node := range nodes {
		_, group := wire.ParseNodeName(node.Name)
		n, known := base.groups[group]
		if known && !first {
			continue
		}
		if !known {
			n = p.addGroup(base, group)
		}
		ours := first && ownerOf(node, cluster.providerID(group)) == ownerUs
		n.update(func(v *view) {
			n.wanted = ours
			// The Node is read by all of that, which may be before settleAs.
			v.cluster.ID, v.cluster.Labels, v.cluster.Consent = cluster.ID, cluster.Labels, cluster.Consent
		})
		if ours {
			p.config.Pods.ExpectNode(n.name)
		}
		p.ensureRunning(n)
	}
}

// expectAgain has nothing said of absence in what is known anew of a cluster before the
// pods of its groups are listed; p.mu is held.
func (p *Provider) expectAgain(base *virtualNode) {
	for _, n := range base.groups {
		n.mu.Lock()
		wanted := n.wanted
		n.mu.Unlock()
		if wanted {
			p.config.Pods.ExpectNode(n.name)
		}
	}
}

// groupNodes are the Nodes of a cluster's groups as the informer has them, and its
// strays; p.mu is held.
func (p *Provider) groupNodes(cluster string) []*corev1.Node {
	found, _ := p.informer.GetIndexer().ByIndex(indexGroups, cluster) // the index is there
	nodes := make([]*corev1.Node, 0, len(found))
	for _, obj := range found {
		if node, ok := obj.(*corev1.Node); ok {
			nodes = append(nodes, node)
		}
	}
	return append(nodes, p.strays[cluster]...)
}

// findStrays lists the Nodes of groups whose label, by which the informer chooses,
// somebody took away: their pods are not absent for that.
func (p *Provider) findStrays(ctx context.Context) error {
	strays := map[string][]*corev1.Node{}
	list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		return p.config.Client.CoreV1().Nodes().List(ctx, o)
	})
	err := list.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		node, ok := obj.(*corev1.Node)
		if !ok || ownerOf(node, "") == ownerForeign || p.present(node.Name) != nil {
			return nil
		}
		if cluster, group := wire.ParseNodeName(node.Name); group != "" {
			strays[cluster] = append(strays[cluster], trimmed(node))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("nodes cannot be listed: %w", err)
	}
	p.mu.Lock()
	p.strays = strays
	p.mu.Unlock()
	for cluster := range strays {
		p.reconsider(cluster)
	}
	return nil
}

// settle brings the groups of a cluster that is accepted to what is known of it; p.mu
// is held.
func (p *Provider) settle(base *virtualNode) {
	base.mu.Lock()
	wanted, cluster, summary := base.wanted, base.view.cluster, base.view.summary
	base.mu.Unlock()
	if wanted {
		p.settleAs(base, cluster, summary)
	}
}

func (p *Provider) settleAs(base *virtualNode, cluster Cluster, summary *wire.NodeSummary) {
	for _, n := range slices.Collect(maps.Values(base.groups)) {
		idle := p.config.Pods.IsIdle(n.name)
		n.update(func(*view) {
			n.setCluster(cluster)
			n.decide(idle, summary)
		})
		p.keep(n)
	}
}

// decide whether the group of an accepted cluster shall have its Node; n.mu is held.
// idle: no pod is bound to it. summary is the cluster's, nil while that is not known.
// A group to whose label the record does not consent any more goes as one without nodes.
func (n *virtualNode) decide(idle bool, summary *wire.NodeSummary) {
	v := &n.view
	consent := v.cluster.Consent.SplitLabel
	switch {
	case summary == nil && consent != "":
	case v.cluster.splits(summary) && slices.Contains(summary.Split.Groups, n.group):
		v.vanished, v.label, n.leaving = false, summary.Split.Label, false
		n.wanted = n.wanted || v.summary != nil
	default:
		// Of one that never had its Node here the API server is asked for pods. Those of
		// somebody else's Node are not ours to wait for.
		v.vanished = true
		goes := n.wanted && (idle || n.registration != registered)
		n.leaving = n.leaving || goes && n.registration != nameTaken
		n.wanted = n.wanted && !goes
	}
}

// vacate deletes a Node that is not wanted. That of a group whose last pod has gone is
// wanted again if the API server has a pod that was bound to it a moment ago.
func (n *virtualNode) vacate(ctx context.Context) error {
	n.mu.Lock()
	leaving := n.leaving
	n.mu.Unlock()
	if leaving {
		bound, err := n.bound(ctx)
		if err != nil {
			return err
		}
		n.mu.Lock()
		n.wanted = n.wanted || n.leaving && bound
		n.leaving = false
		stay := n.wanted
		n.mu.Unlock()
		if stay {
			return nil
		}
	}
	return n.erase(ctx)
}

// bound asks whether any pod is bound to the node.
func (n *virtualNode) bound(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	pods, err := n.provider.config.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", n.name).String(), Limit: 1,
	})
	if err != nil {
		return false, fmt.Errorf("pods of node %s cannot be listed: %w", n.name, err)
	}
	return len(pods.Items) > 0, nil
}

// keep has a group's node run while there is something to do; p.mu is held.
func (p *Provider) keep(n *virtualNode) {
	n.mu.Lock()
	wanted := n.wanted
	n.mu.Unlock()
	if wanted || p.present(n.name) != nil {
		p.ensureRunning(n)
	}
	p.drop(n)
}

// ended lets go of what was kept for the Node of a group; p.mu is held. A group that
// comes back is told of anew.
func (p *Provider) ended(n *virtualNode) {
	p.config.Pods.ForgetNode(n.name)
	n.mu.Lock()
	if n.view.vanished {
		n.view.summary = nil
	}
	n.mu.Unlock()
	if p.requeue != nil {
		p.requeue(n.cluster, 0) // its name may have been taken, and that is no trouble any more
	}
}

// each calls f for a cluster's node and those of its groups; p.mu is held.
func (n *virtualNode) each(f func(*virtualNode)) {
	f(n)
	for _, group := range slices.Collect(maps.Values(n.groups)) {
		f(group)
	}
}

// registrationOf tells whether a cluster has its nodes, and which Node it is that has
// the name of one.
func (p *Provider) registrationOf(cluster string) (r registration, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	base, ok := p.nodes[cluster]
	if !ok {
		return unsettled, cluster
	}
	base.mu.Lock()
	r, name = base.registration, cluster
	base.mu.Unlock()
	base.each(func(n *virtualNode) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if r != nameTaken && n.wanted && n.registration == nameTaken {
			r, name = nameTaken, n.name
		}
	})
	return r, name
}

// labelOf returns the label that the record consents to, if a Node was made one of a
// group by it, as long as the cluster has not said it again.
func labelOf(node *corev1.Node, group string, cluster Cluster) string {
	label := cluster.Consent.SplitLabel
	if _, set := cluster.Labels[label]; label == "" || set || node.Labels[label] != group {
		return ""
	}
	return label
}

// hostname is a node's name as a label can have it.
func hostname(node string) string {
	if len(node) <= validation.LabelValueMaxLength {
		return node
	}
	sum := sha256.Sum256([]byte(node))
	suffix := "-" + hex.EncodeToString(sum[:8])
	return node[:validation.LabelValueMaxLength-len(suffix)] + suffix
}
