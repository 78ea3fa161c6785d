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
	// idle holds a token when the node of a group may have lost its last pod.
	idle chan struct{}
	// group counts the goroutines of virtual nodes.
	group sync.WaitGroup

	mu sync.Mutex // guards what follows; taken before a virtualNode's
	// spawn runs a virtual node's goroutine, with a context that ends with
	// Start. It refuses once that has ended.
	spawn  func(run func(context.Context)) bool
	waited bool // the reconnect grace is over
	nodes  map[string]*virtualNode
	// strays are the Nodes of groups that were there at Start without their label,
	// by their clusters, until these are known.
	strays map[string][]*corev1.Node
	// requeue has a cluster's record looked at again; nil before a controller
	// has bound it.
	requeue func(cluster string, after time.Duration)
	// pace spaces what agents have the records looked at for.
	pace ratelimit.KeyedLimiter[string]
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
		config:  config,
		ports:   newPorts(config.PortMin, config.PortMax),
		ready:   ready,
		started: make(chan struct{}),
		idle:    make(chan struct{}, 1),
		nodes:   map[string]*virtualNode{},
	}
	p.informer = cache.NewSharedIndexInformer(
		nodesWhere(config.Client, metav1.ListOptions{LabelSelector: wire.LabelCluster}), &corev1.Node{}, 0, groupIndexers())
	if err := p.informer.SetTransform(trim); err != nil {
		return nil, fmt.Errorf("node cache cannot be trimmed: %w", err)
	}
	return p, nil
}

// nodesWhere lists and watches nodes by the selectors of where. A list is answered as
// of now, where a reflector would take what a cache of the API server has: what is
// said of absent pods rests on it.
func nodesWhere(client kubernetes.Interface, where metav1.ListOptions) cache.ListerWatcher {
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

// trim keeps of a virtual node what is compared and read back. Its annotations
// hold the whole object once more.
func trim(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	return trimmed(node), nil
}

func trimmed(node *corev1.Node) *corev1.Node {
	status := ours(node.Status)
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
		AddFunc:    func(obj any) { p.observed(obj) },
		UpdateFunc: func(_, obj any) { p.observed(obj) },
		DeleteFunc: p.deleted,
	})
	if err != nil {
		return fmt.Errorf("virtual nodes cannot be watched: %w", err)
	}
	var background sync.WaitGroup
	defer background.Wait()
	background.Go(func() { p.informer.RunWithContext(ctx) })
	if !cache.WaitFor(ctx, "", registration.HasSyncedChecker()) || !p.awaitStrays(ctx) {
		return nil
	}
	// Before any node takes a port of its own choice.
	for _, node := range p.existing() {
		p.ports.reserve(node.Name, node.Status.DaemonEndpoints.KubeletEndpoint.Port)
	}
	defer p.group.Wait()
	defer p.open(ctx)()
	defer p.config.Links.Subscribe(p.linkChanged)()
	grace := time.AfterFunc(p.config.ReconnectGrace, p.graceOver)
	defer grace.Stop()
	close(p.started)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.idle:
			p.idled()
		}
	}
}

// awaitStrays tries until it has found strays, or ctx has ended.
func (p *Provider) awaitStrays(ctx context.Context) bool {
	for retry := newBackoff(); ctx.Err() == nil; retry.wait(ctx) {
		err := p.findStrays(ctx)
		if err == nil {
			return true
		}
		p.config.Logger.Error(err, "virtual nodes without their label cannot be looked for")
	}
	return false
}

// open lets virtual nodes run until ctx ends. After shut no new one runs, and
// the group may be waited for.
func (p *Provider) open(ctx context.Context) (shut func()) {
	set := func(spawn func(func(context.Context)) bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.spawn = spawn
	}
	set(func(run func(context.Context)) bool {
		p.group.Go(func() { run(ctx) })
		return true
	})
	return func() {
		set(func(func(context.Context)) bool { return false })
	}
}

func (p *Provider) existing() []*corev1.Node {
	var nodes []*corev1.Node
	for _, obj := range p.informer.GetStore().List() {
		if node, ok := obj.(*corev1.Node); ok && ownerOf(node, "") != ownerForeign {
			nodes = append(nodes, node)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, strays := range p.strays {
		nodes = append(nodes, strays...)
	}
	return nodes
}

// present returns the virtual node of that name as the informer has it, or nil.
func (p *Provider) present(name string) *corev1.Node {
	obj, _, _ := p.informer.GetStore().GetByKey(name) // a map does not fail
	node, _ := obj.(*corev1.Node)
	return node
}

func (p *Provider) graceOver() {
	p.mu.Lock()
	p.waited = true
	nodes := slices.Collect(maps.Values(p.nodes))
	p.mu.Unlock()
	for _, n := range nodes {
		n.update(func(v *view) { v.waited = true })
	}
}

// Ensure gives an accepted cluster its node, or the node the cluster's new
// labels. It waits for Start and does not wait for the Node.
func (p *Provider) Ensure(ctx context.Context, cluster Cluster) error {
	if err := p.awaitStart(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.record(cluster.Name)
	p.config.Pods.SetConsent(cluster.Name, cluster.Consent)
	// The groups first: what is not expected when the cluster's own pods are listed
	// is taken for absent.
	p.adopt(n, cluster)
	n.mu.Lock()
	summary := n.view.summary
	n.mu.Unlock()
	p.settleAs(n, cluster, summary)
	n.update(func(*view) {
		n.wanted = true
		n.setCluster(cluster)
	})
	p.ensureRunning(n)
	return nil
}

// Remove takes away the nodes of a cluster that is not accepted, or no more.
// Removing what is not there does nothing.
func (p *Provider) Remove(ctx context.Context, name string) error {
	if err := p.awaitStart(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.nodes[name]; !ok && p.present(name) == nil && len(p.groupNodes(name)) == 0 {
		return nil
	}
	base := p.record(name)
	p.adopt(base, Cluster{})
	base.each(func(n *virtualNode) {
		n.update(func(*view) { n.wanted, n.leaving = false, false })
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
	p.pace.Forget(name)
	if base, ok := p.nodes[name]; ok {
		// Before any of its nodes begins anew.
		p.expectAgain(base)
		base.each(func(n *virtualNode) {
			n.update(func(v *view) {
				v.summary, v.clusterLabels, v.system = nil, nil, systemLabels{}
				n.forgotten = true
			})
			p.drop(n)
		})
		p.drop(base)
	}
}

// Summary takes what a cluster says of its nodes, or of the rest of them and of
// which groups there are.
func (p *Provider) Summary(name string, summary wire.NodeSummary) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.record(name)
	split, labelled := n.requestedSplit(), n.systemLabels()
	n.summaryChanged(summary)
	p.settle(n)
	if n.requestedSplit() != split || n.systemLabels() != labelled {
		p.reconsiderSpaced(name)
	}
}

func (p *Provider) awaitStart(ctx context.Context) error {
	select {
	case <-p.started:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// record returns what is known of a cluster; p.mu is held.
func (p *Provider) record(name string) *virtualNode {
	n, ok := p.nodes[name]
	if !ok {
		n = newVirtualNode(p, name, "")
		n.view.cluster.Name = name
		n.view.waited = p.waited
		p.nodes[name] = n
	}
	return n
}

// ensureRunning starts the node's goroutine; p.mu is held.
func (p *Provider) ensureRunning(n *virtualNode) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.running {
		n.running = p.spawn(n.run)
	}
}

// finished ends a node's goroutine unless the node is wanted again.
func (p *Provider) finished(n *virtualNode) bool {
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
		p.ended(n)
	}
	p.drop(n)
	return true
}

// drop forgets a node of whose cluster or group nothing is known any more; p.mu is
// held.
func (p *Provider) drop(n *virtualNode) {
	n.mu.Lock()
	unknown := !n.wanted && !n.running && n.view.summary == nil && len(n.groups) == 0
	unknown = unknown && (n.group != "" || !n.view.link.Up)
	n.mu.Unlock()
	if !unknown || p.nodes[n.name] != n {
		return
	}
	delete(p.nodes, n.name)
	if base, ok := p.nodes[n.cluster]; ok && n.group != "" {
		delete(base.groups, n.group)
		p.drop(base)
	}
}

func (p *Provider) linkChanged(link Link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	base := p.record(link.Cluster)
	base.each(func(n *virtualNode) { n.linkChanged(link) })
	p.drop(base)
}

func (p *Provider) observed(obj any) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return
	}
	p.mu.Lock()
	n, known := p.nodes[node.Name]
	again := p.requeue
	p.mu.Unlock()
	switch {
	case known:
		n.observe(node)
	case again != nil:
		cluster, _ := wire.ParseNodeName(node.Name)
		again(cluster, 0)
	}
}

func (p *Provider) deleted(obj any) {
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
		notify(n.gone)
	}
}

// awaitGone sends nil when there is no Node of that name, or one that is a
// virtual node. It follows this one object and no other.
func (p *Provider) awaitGone(ctx context.Context, name string) <-chan error {
	where := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
	done := make(chan error, 1)
	go func() {
		_, err := toolswatch.UntilWithSync(ctx, nodesWhere(p.config.Client, where), &corev1.Node{},
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
