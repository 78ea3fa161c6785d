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

// SetGroupSummary takes what a cluster says of a group of its nodes.
func (p *Provider) SetGroupSummary(name, group string, summary wire.NodeSummary) {
	p.mu.Lock()
	defer p.mu.Unlock()
	base := p.getOrCreateNode(name)
	n := base.groups[group]
	if n == nil && !p.makeRoomForGroup(base) {
		p.config.Logger.V(1).Info("cluster has too many groups of nodes", "cluster", name, "group", group)
		p.deleteIfUnknown(base)
		return
	}
	if n == nil {
		n = p.addGroup(base, group)
	}
	labelled := n.systemLabels()
	if known := n.setSummary(summary); !known {
		p.reconcileGroups(base)
	}
	if n.systemLabels() != labelled {
		p.requeueRecordPaced(name)
	}
}

// HasGroupSummary reports whether a summary of a group is held: what is not held has to be sent
// again.
func (p *Provider) HasGroupSummary(name, group string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.nodes[wire.NodeName(name, group)]
	if !ok || group == "" {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state.summary != nil
}

// NotifyGroupIdle reports that the last pod of a group's node may be deleted. It does not block.
func (p *Provider) NotifyGroupIdle() { notify(p.groupIdle) }

// reconcileAllGroups looks at all clusters that are in groups.
func (p *Provider) reconcileAllGroups() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, base := range slices.Collect(maps.Values(p.nodes)) {
		if len(base.groups) > 0 {
			p.reconcileGroups(base)
		}
	}
}

// maxKnownGroups bounds the groups of a cluster together with those that it names no
// more and whose Nodes pods keep, or that it has not named yet: it names no more than
// wire.NodeGroupsMax at a time, and as many have room beside those that are left.
const maxKnownGroups = 2 * wire.NodeGroupsMax

// makeRoomForGroup makes room for one more group of a cluster, if there is any: those that were
// told of and never named give way. p.mu is held.
func (p *Provider) makeRoomForGroup(base *virtualNode) bool {
	if len(base.groups) < maxKnownGroups {
		return true
	}
	for _, n := range slices.Collect(maps.Values(base.groups)) {
		n.mu.Lock()
		if !n.wanted && !n.running {
			n.state.summary = nil
		}
		n.mu.Unlock()
		p.deleteIfUnknown(n)
	}
	return len(base.groups) < maxKnownGroups
}

// addGroup makes what is known of a group; p.mu is held.
func (p *Provider) addGroup(base *virtualNode, group string) *virtualNode {
	n := newVirtualNode(p, base.name, group)
	n.semaphore = base.semaphore
	base.mu.Lock()
	n.state.cluster, n.state.link, n.state.wasConnected = base.state.cluster, base.state.link, base.state.wasConnected
	base.mu.Unlock()
	n.state.graceEnded = p.graceEnded
	if base.groups == nil {
		base.groups = map[string]*virtualNode{}
	}
	base.groups[group] = n
	p.nodes[n.name] = n
	return n
}

// adoptGroupNodes takes over the Nodes of a cluster's groups that an earlier process of the hub
// left: they are kept until the cluster has said which groups it has. They alone may
// have pods of before, and are expected. Any other Node of which nothing is known goes.
// p.mu is held.
func (p *Provider) adoptGroupNodes(base *virtualNode, cluster Cluster) {
	first := !base.adopted
	base.adopted = true
	nodes := p.cachedGroupNodes(base.name)
	delete(p.unlabelledNodes, base.name)
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
		n.update(func(v *nodeState) {
			n.wanted = ours
			// The Node is read by all of that, which may be before reconcileGroupsOf.
			v.cluster.ID, v.cluster.Labels, v.cluster.Consent = cluster.ID, cluster.Labels, cluster.Consent
		})
		if ours {
			p.config.Pods.ExpectNode(n.name)
		}
		p.ensureRunning(n)
	}
}

// expectGroupPods delays reports of absent pods until the pods of the cluster's groups are
// listed; p.mu is held.
func (p *Provider) expectGroupPods(base *virtualNode) {
	for _, n := range base.groups {
		n.mu.Lock()
		wanted := n.wanted
		n.mu.Unlock()
		if wanted {
			p.config.Pods.ExpectNode(n.name)
		}
	}
}

// cachedGroupNodes are the Nodes of a cluster's groups as the informer has them, and its
// strays; p.mu is held.
func (p *Provider) cachedGroupNodes(cluster string) []*corev1.Node {
	found, _ := p.informer.GetIndexer().ByIndex(indexGroups, cluster) // the index is there
	nodes := make([]*corev1.Node, 0, len(found))
	for _, obj := range found {
		if node, ok := obj.(*corev1.Node); ok {
			nodes = append(nodes, node)
		}
	}
	return append(nodes, p.unlabelledNodes[cluster]...)
}

// listUnlabelledNodes lists the Nodes of groups whose label, by which the informer chooses,
// somebody took away: their pods are not absent for that.
func (p *Provider) listUnlabelledNodes(ctx context.Context) error {
	strays := map[string][]*corev1.Node{}
	list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		return p.config.Client.CoreV1().Nodes().List(ctx, o)
	})
	err := list.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		node, ok := obj.(*corev1.Node)
		if !ok || ownerOf(node, "") == ownerForeign || p.cachedNode(node.Name) != nil {
			return nil
		}
		if cluster, group := wire.ParseNodeName(node.Name); group != "" {
			strays[cluster] = append(strays[cluster], trimmedNode(node))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("nodes cannot be listed: %w", err)
	}
	p.mu.Lock()
	p.unlabelledNodes = strays
	p.mu.Unlock()
	for cluster := range strays {
		p.requeueRecord(cluster)
	}
	return nil
}

// reconcileGroups brings the groups of a cluster that is accepted to what is known of it; p.mu
// is held.
func (p *Provider) reconcileGroups(base *virtualNode) {
	base.mu.Lock()
	wanted, cluster, summary := base.wanted, base.state.cluster, base.state.summary
	base.mu.Unlock()
	if wanted {
		p.reconcileGroupsOf(base, cluster, summary)
	}
}

func (p *Provider) reconcileGroupsOf(base *virtualNode, cluster Cluster, summary *wire.NodeSummary) {
	for _, n := range slices.Collect(maps.Values(base.groups)) {
		idle := p.config.Pods.IsIdle(n.name)
		n.update(func(*nodeState) {
			n.setCluster(cluster)
			n.decideGroup(idle, summary)
		})
		p.ensureGroupNode(n)
	}
}

// decideGroup whether the group of an accepted cluster shall have its Node; n.mu is held.
// idle: no pod is bound to it. summary is the cluster's, nil while that is not known.
// A group to whose label the record does not consent any more goes as one without nodes.
func (n *virtualNode) decideGroup(idle bool, summary *wire.NodeSummary) {
	v := &n.state
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

// removeNode deletes a Node that is not wanted. That of a group whose last pod has gone is
// wanted again if the API server has a pod that was bound to it a moment ago.
func (n *virtualNode) removeNode(ctx context.Context) error {
	n.mu.Lock()
	leaving := n.leaving
	n.mu.Unlock()
	if leaving {
		bound, err := n.hasBoundPods(ctx)
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
	return n.deleteOwnNode(ctx)
}

// hasBoundPods asks whether any pod is bound to the node.
func (n *virtualNode) hasBoundPods(ctx context.Context) (bool, error) {
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

// ensureGroupNode has a group's node run while there is something to do; p.mu is held.
func (p *Provider) ensureGroupNode(n *virtualNode) {
	n.mu.Lock()
	wanted := n.wanted
	n.mu.Unlock()
	if wanted || p.cachedNode(n.name) != nil {
		p.ensureRunning(n)
	}
	p.deleteIfUnknown(n)
}

// releaseGroup lets go of what was kept for the Node of a group; p.mu is held. A group that
// comes back gets a new summary.
func (p *Provider) releaseGroup(n *virtualNode) {
	p.config.Pods.RemoveNode(n.name)
	n.mu.Lock()
	if n.state.vanished {
		n.state.summary = nil
	}
	n.mu.Unlock()
	if p.enqueueAfter != nil {
		p.enqueueAfter(n.cluster, 0) // its name may have been taken, and that is no trouble any more
	}
}

// forEachNode calls f for a cluster's node and those of its groups; p.mu is held.
func (n *virtualNode) forEachNode(f func(*virtualNode)) {
	f(n)
	for _, group := range slices.Collect(maps.Values(n.groups)) {
		f(group)
	}
}

// registrationCondition returns whether a cluster has its nodes, and which Node it is that has
// the name of one.
func (p *Provider) registrationOf(cluster string) (r registration, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	base, ok := p.nodes[cluster]
	if !ok {
		return registrationUnknown, cluster
	}
	base.mu.Lock()
	r, name = base.registration, cluster
	base.mu.Unlock()
	base.forEachNode(func(n *virtualNode) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if r != nameTaken && n.wanted && n.registration == nameTaken {
			r, name = nameTaken, n.name
		}
	})
	return r, name
}

// consentedLabel returns the label that the record consents to, if a Node was made one of a
// group by it, until the cluster has reported it again.
func consentedLabel(node *corev1.Node, group string, cluster Cluster) string {
	label := cluster.Consent.SplitLabel
	if _, set := cluster.Labels[label]; label == "" || set || node.Labels[label] != group {
		return ""
	}
	return label
}

// hostnameLabel is a node's name as a label can have it.
func hostnameLabel(node string) string {
	if len(node) <= validation.LabelValueMaxLength {
		return node
	}
	sum := sha256.Sum256([]byte(node))
	suffix := "-" + hex.EncodeToString(sum[:8])
	return node[:validation.LabelValueMaxLength-len(suffix)] + suffix
}
