// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/ratelimit"
)

// Provider keeps the virtual nodes of a hub.
type Provider struct {
	config   Config
	ports    *ports
	ready    readyGauge
	informer cache.SharedIndexInformer

	// started is closed when the nodes that are there have been seen.
	started chan struct{}
	// groupIdle holds a token when the node of a group may have lost its last pod.
	groupIdle chan struct{}
	// nodeGoroutines counts the goroutines of virtual nodes.
	nodeGoroutines sync.WaitGroup

	mu sync.Mutex // guards what follows; taken before a virtualNode's
	// startNode runs a virtual node's goroutine, with a context that ends with
	// Start. It refuses once that has ended.
	startNode  func(run func(context.Context)) bool
	graceEnded bool // the reconnect grace is over
	nodes      map[string]*virtualNode
	// unlabelledNodes are the Nodes of groups that were there at Start without their label,
	// by their clusters, until these are known.
	unlabelledNodes map[string][]*corev1.Node
	// enqueueAfter has a cluster's record looked at again; nil before a controller
	// has bound it.
	enqueueAfter func(cluster string, after time.Duration)
	// requeuePacer spaces what agents have the records looked at for.
	requeuePacer ratelimit.KeyedLimiter[string]
}

// New returns a Provider that does nothing until Start.
func New(config Config) (*Provider, error) {
	config = config.Default()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	ready, err := newReadyGauge(config.Registerer)
	if err != nil {
		return nil, err
	}
	p := &Provider{
		config:    config,
		ports:     newPorts(config.PortMin, config.PortMax),
		ready:     ready,
		started:   make(chan struct{}),
		groupIdle: make(chan struct{}, 1),
		nodes:     map[string]*virtualNode{},
	}
	p.informer = cache.NewSharedIndexInformer(
		nodeListerWatcher(config.Client, metav1.ListOptions{LabelSelector: wire.LabelCluster}), &corev1.Node{}, 0, groupIndexers())
	if err := p.informer.SetTransform(trimNode); err != nil {
		return nil, fmt.Errorf("node cache cannot be trimmed: %w", err)
	}
	return p, nil
}

// nodeListerWatcher lists and watches nodes by the selectors of where. A list is answered as
// of now, where a reflector would take what a cache of the API server has: reports
// of absent pods depend on it.
func nodeListerWatcher(client kubernetes.Interface, where metav1.ListOptions) cache.ListerWatcher {
	narrow := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector, o.FieldSelector = where.LabelSelector, where.FieldSelector
		return o
	}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.ResourceVersion == "0" {
				o.ResourceVersion = ""
			}
			return client.CoreV1().Nodes().List(ctx, narrow(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Nodes().Watch(ctx, narrow(o))
		},
	}, client)
}

// trimNode keeps of a virtual node what is compared and read back. Its annotations
// hold the whole object once more.
func trimNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	return trimmedNode(node), nil
}

func trimmedNode(node *corev1.Node) *corev1.Node {
	status := ownStatus(node.Status)
	status.NodeInfo = corev1.NodeSystemInfo{}
	for i := range status.Conditions {
		c := &status.Conditions[i]
		*c = corev1.NodeCondition{Type: c.Type, Status: c.Status, Reason: c.Reason}
	}
	status.DaemonEndpoints = node.Status.DaemonEndpoints
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: node.Labels,
		},
		Spec:   corev1.NodeSpec{ProviderID: node.Spec.ProviderID},
		Status: status,
	}
}

// Start keeps the nodes until ctx ends. Then they stay as they are: their leases
// run out unless another hub process renews them.
func (p *Provider) Start(ctx context.Context) error {
	registration, err := p.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { p.handleNodeUpdate(obj) },
		UpdateFunc: func(_, obj any) { p.handleNodeUpdate(obj) },
		DeleteFunc: p.handleNodeDelete,
	})
	if err != nil {
		return fmt.Errorf("virtual nodes cannot be watched: %w", err)
	}
	var background sync.WaitGroup
	defer background.Wait()
	background.Go(func() { p.informer.RunWithContext(ctx) })
	if !cache.WaitFor(ctx, "", registration.HasSyncedChecker()) || !p.retryListUnlabelled(ctx) {
		return nil
	}
	// Before any node takes a port of its own choice.
	for _, node := range p.cachedNodes() {
		p.ports.reserve(node.Name, node.Status.DaemonEndpoints.KubeletEndpoint.Port)
	}
	defer p.nodeGoroutines.Wait()
	defer p.acceptNodes(ctx)()
	defer p.config.Links.Subscribe(p.handleLink)()
	grace := time.AfterFunc(p.config.ReconnectGrace, p.endReconnectGrace)
	defer grace.Stop()
	close(p.started)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.groupIdle:
			p.reconcileAllGroups()
		}
	}
}

// retryListUnlabelled tries until it has listed them, or ctx has ended.
func (p *Provider) retryListUnlabelled(ctx context.Context) bool {
	for retry := newBackoff(); ctx.Err() == nil; retry.wait(ctx) {
		err := p.listUnlabelledNodes(ctx)
		if err == nil {
			return true
		}
		p.config.Logger.Error(err, "virtual nodes without their label cannot be looked for")
	}
	return false
}

// acceptNodes lets virtual nodes run until ctx ends. After stop no new one runs, and
// the group may be waited for.
func (p *Provider) acceptNodes(ctx context.Context) (stop func()) {
	set := func(spawn func(func(context.Context)) bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.startNode = spawn
	}
	set(func(run func(context.Context)) bool {
		p.nodeGoroutines.Go(func() { run(ctx) })
		return true
	})
	return func() {
		set(func(func(context.Context)) bool { return false })
	}
}

func (p *Provider) cachedNodes() []*corev1.Node {
	var nodes []*corev1.Node
	for _, obj := range p.informer.GetStore().List() {
		if node, ok := obj.(*corev1.Node); ok && ownerOf(node, "") != ownerForeign {
			nodes = append(nodes, node)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, strays := range p.unlabelledNodes {
		nodes = append(nodes, strays...)
	}
	return nodes
}

// cachedNode returns the virtual node of that name as the informer has it, or nil.
func (p *Provider) cachedNode(name string) *corev1.Node {
	obj, _, _ := p.informer.GetStore().GetByKey(name) // a map does not fail
	node, _ := obj.(*corev1.Node)
	return node
}

func (p *Provider) endReconnectGrace() {
	p.mu.Lock()
	p.graceEnded = true
	nodes := slices.Collect(maps.Values(p.nodes))
	p.mu.Unlock()
	for _, n := range nodes {
		n.update(func(v *nodeState) { v.graceEnded = true })
	}
}

// Ensure gives an accepted cluster its node, or the node the cluster's new
// labels. It waits for Start and does not wait for the Node.
func (p *Provider) Ensure(ctx context.Context, cluster Cluster) error {
	if err := p.waitForStart(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.getOrCreateNode(cluster.Name)
	p.config.Pods.SetConsent(cluster.Name, cluster.Consent)
	// The groups first: what is not expected when the cluster's own pods are listed
	// is taken for absent.
	p.adoptGroupNodes(n, cluster)
	n.mu.Lock()
	summary := n.state.summary
	n.mu.Unlock()
	p.reconcileGroupsOf(n, cluster, summary)
	n.update(func(*nodeState) {
		n.wanted = true
		n.setCluster(cluster)
	})
	p.ensureRunning(n)
	return nil
}

// Remove takes away the nodes of a cluster that is not accepted, or no more.
// Removing what is not there does nothing.
func (p *Provider) Remove(ctx context.Context, name string) error {
	if err := p.waitForStart(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.nodes[name]; !ok && p.cachedNode(name) == nil && len(p.cachedGroupNodes(name)) == 0 {
		return nil
	}
	base := p.getOrCreateNode(name)
	p.adoptGroupNodes(base, Cluster{})
	base.forEachNode(func(n *virtualNode) {
		n.update(func(*nodeState) { n.wanted, n.leaving = false, false })
		p.ensureRunning(n)
	})
	return nil
}

// Forget drops the last summary of a cluster whose record is deleted. It goes
// with forgetting the cluster in Sync, which sends a summary again only when
// the cluster is new to it. A node that is wanted again by then begins anew: what
// was published of its pods is forgotten too.
func (p *Provider) Forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requeuePacer.Forget(name)
	if base, ok := p.nodes[name]; ok {
		// Before any of its nodes begins anew.
		p.expectGroupPods(base)
		base.forEachNode(func(n *virtualNode) {
			n.update(func(v *nodeState) {
				v.summary, v.clusterLabels, v.system = nil, nil, systemLabels{}
				n.forgotten = true
			})
			p.deleteIfUnknown(n)
		})
		p.deleteIfUnknown(base)
	}
}

// SetSummary takes what a cluster says of its nodes, or of the rest of them and of
// which groups there are.
func (p *Provider) SetSummary(name string, summary wire.NodeSummary) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.getOrCreateNode(name)
	split, labelled := n.requestedSplit(), n.systemLabels()
	n.setSummary(summary)
	p.reconcileGroups(n)
	if n.requestedSplit() != split || n.systemLabels() != labelled {
		p.requeueRecordPaced(name)
	}
}

func (p *Provider) waitForStart(ctx context.Context) error {
	select {
	case <-p.started:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// getOrCreateNode returns what is known of a cluster; p.mu is held.
func (p *Provider) getOrCreateNode(name string) *virtualNode {
	n, ok := p.nodes[name]
	if !ok {
		n = newVirtualNode(p, name, "")
		n.state.cluster.Name = name
		n.state.graceEnded = p.graceEnded
		p.nodes[name] = n
	}
	return n
}

// ensureRunning starts the node's goroutine; p.mu is held.
func (p *Provider) ensureRunning(n *virtualNode) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.running {
		n.running = p.startNode(n.run)
	}
}

// stopUnlessWanted ends a node's goroutine unless the node is wanted again.
func (p *Provider) stopUnlessWanted(n *virtualNode) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n.mu.Lock()
	wanted := n.wanted
	n.running = wanted
	n.mu.Unlock()
	if wanted {
		return false
	}
	p.ports.release(n.name)
	p.ready.delete(n.name)
	if n.group != "" {
		p.releaseGroup(n)
	}
	p.deleteIfUnknown(n)
	return true
}

// deleteIfUnknown forgets a node of whose cluster or group nothing is known any more; p.mu is
// held.
func (p *Provider) deleteIfUnknown(n *virtualNode) {
	n.mu.Lock()
	unknown := !n.wanted && !n.running && n.state.summary == nil && len(n.groups) == 0
	unknown = unknown && (n.group != "" || !n.state.link.Up)
	n.mu.Unlock()
	if !unknown || p.nodes[n.name] != n {
		return
	}
	delete(p.nodes, n.name)
	if base, ok := p.nodes[n.cluster]; ok && n.group != "" {
		delete(base.groups, n.group)
		p.deleteIfUnknown(base)
	}
}

func (p *Provider) handleLink(link Link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	base := p.getOrCreateNode(link.Cluster)
	base.forEachNode(func(n *virtualNode) { n.setLink(link) })
	p.deleteIfUnknown(base)
}

func (p *Provider) handleNodeUpdate(obj any) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return
	}
	p.mu.Lock()
	n, known := p.nodes[node.Name]
	again := p.enqueueAfter
	p.mu.Unlock()
	switch {
	case known:
		n.detectDrift(node)
	case again != nil:
		cluster, _ := wire.ParseNodeName(node.Name)
		again(cluster, 0)
	}
}

func (p *Provider) handleNodeDelete(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	node, ok := obj.(*corev1.Node)
	if !ok {
		return
	}
	p.mu.Lock()
	n, known := p.nodes[node.Name]
	p.mu.Unlock()
	if known {
		notify(n.nodeGone)
	}
}

// waitForDeletion sends nil when there is no Node of that name, or one that is a
// virtual node. It follows this one object and no other.
func (p *Provider) waitForDeletion(ctx context.Context, name string) <-chan error {
	where := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
	done := make(chan error, 1)
	go func() {
		_, err := toolswatch.UntilWithSync(ctx, nodeListerWatcher(p.config.Client, where), &corev1.Node{},
			func(store cache.Store) (bool, error) {
				_, exists, err := store.GetByKey(name)
				return !exists, err
			},
			func(e watch.Event) (bool, error) {
				node, ok := e.Object.(*corev1.Node)
				return e.Type == watch.Deleted || ok && ownerOf(node, "") != ownerForeign, nil
			})
		if ctx.Err() != nil {
			err = nil
		}
		done <- err
	}()
	return done
}
