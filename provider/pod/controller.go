// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/internal/ratelimit"
	"github.com/spokelet/spokelet/provider/pod/address"
	"github.com/spokelet/spokelet/provider/pod/podobject"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// statusWriters write statuses for all nodes together, eventWriters events, issuers
	// ask for tokens.
	statusWriters = 16
	eventWriters  = 4
	tokenWorkers  = 8
	// requestTimeout bounds each request.
	requestTimeout = 10 * time.Second
	// minRetry and maxRetry are the pauses between attempts at one write.
	minRetry = 50 * time.Millisecond
	maxRetry = time.Minute
)

// Replicator is the hub's end of Sync.
type Replicator interface {
	Publish(kind string, load resource.HubLoad)
	Mirror(kind string, r resource.HubReceiver)
	PublishAsked(kind string, load resource.HubLoad, asked resource.HubAsked)
	Source(cluster, kind string) *resource.Source
	Forget(cluster string)
}

// Config holds what a Controller needs.
type Config struct {
	// Client is the hub's API server. Its rate must not be limited: priority and
	// fairness is the limiter.
	Client kubernetes.Interface
	// Sync replicates pods and statuses.
	Sync Replicator
	// DaemonSets has the pods of DaemonSets run in the clusters too.
	DaemonSets bool
	// Objects says whose ConfigMaps and Secrets pods may have.
	Objects ObjectPolicy
	// Address is the hub's own, which no pod of a cluster has.
	Address netip.Addr
	// Writes bounds what is written because of what clusters report; nil has no bounds.
	Writes *quota.Writes
	// Tokens says for which pods the hub issues tokens of its service accounts.
	Tokens     TokenPolicy
	Logger     logr.Logger
	Registerer prometheus.Registerer
}

// Validate tells what is missing.
func (c Config) Validate() error {
	if c.Client == nil || c.Sync == nil || c.Registerer == nil {
		return errors.New("pods need a client, Sync and a registerer")
	}
	return nil
}

// Controller keeps the pods of all virtual nodes. A virtual node is a cluster's, and has
// its name, or that of a group of its nodes (wire.NodeName).
type Controller struct {
	*clusterTable

	config  Config
	metrics *metrics
	objects *podobject.Publisher
	// namespaces are the hub's, and those that agents made for its pods.
	namespaces *namespaceTracker
	events     *eventWriter
	tokens     *tokenIssuer
	// queue holds the pods of which something may have to be written.
	queue workqueue.TypedRateLimitingInterface[podRef]
	// statusPacer spaces the statuses of a pod that the spoke changes without end.
	statusPacer ratelimit.KeyedLimiter[podRef]
	// network is what the hub itself uses, and consents what the records allow.
	network     *address.Network
	consents    consents
	agentErrors *agentErrorLog
	// onIdle is told when a group's node may be idle; nil when nobody asks.
	onIdle func()
}

// podRef names a pod of a cluster, by the name of its own node.
type podRef struct {
	cluster string
	key     wire.PodKey
}

// newRateLimiter spaces the attempts at one item, and leave those of others alone: a bucket
// for all would have a thousand pods wait for each other.
func newRateLimiter[T comparable]() workqueue.TypedRateLimiter[T] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[T](minRetry, maxRetry)
}

func newQueue[T comparable]() workqueue.TypedRateLimitingInterface[T] {
	return workqueue.NewTypedRateLimitingQueue(newRateLimiter[T]())
}

// New returns a controller that is known to Sync; Start writes.
func New(config Config) (*Controller, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	c := &Controller{
		clusterTable: &clusterTable{clusters: map[string]*clusterState{}},
		config:       config,
		objects:      podobject.NewPublisher(config.Client, config.Sync, config.Logger),
		namespaces:   newNamespaceTracker(config),
		queue:        newQueue[podRef](),
		agentErrors:  &agentErrorLog{logger: config.Logger},
	}
	c.network = address.NewNetwork(config.Address, c.recheckAddresses)
	var err error
	if c.metrics, err = newMetrics(config.Registerer, c.objects.Count); err != nil {
		return nil, err
	}
	c.events = &eventWriter{
		clusters: c.clusterTable, client: config.Client, writes: config.Writes, agentErrors: c.agentErrors,
		queue: newQueue[eventRef](),
	}
	c.tokens = &tokenIssuer{
		clusters: c.clusterTable, client: config.Client, sync: config.Sync, policy: config.Tokens,
		events: c.events, metrics: c.metrics, logger: config.Logger,
		queue: newQueue[podRef](), enqueueStatus: c.queue.Add,
	}
	c.connect(config.Sync)
	return c, nil
}

// connect declares pods, statuses and events in Sync.
func (c *Controller) connect(r Replicator) {
	r.Publish(wire.KindPod, c.loadPod)
	r.Publish(wire.KindPodObject, c.objects.Load)
	r.Publish(wire.KindPodNamespaceGone, nil)
	r.Publish(wire.KindPodForced, nil)
	if c.config.Tokens.Issue {
		r.PublishAsked(wire.KindPodToken, c.tokens.loadTokens, c.startIssuing)
	}
	r.Mirror(wire.KindPodStatus, resource.HubReceiver{
		Put: c.handleStatus, Delete: c.deleteStatus, Synced: c.handleSynced, About: wire.KindPod, After: wire.KindPod,
	})
	r.Mirror(wire.KindPodEvent, resource.HubReceiver{
		Put: c.handleEvent, Delete: c.events.deleteEvent, Known: c.events.acceptsEvent, After: wire.KindPod,
	})
	r.Mirror(wire.KindPodNamespace, resource.HubReceiver{
		Put: c.handleNamespace, Delete: c.namespaces.handleRemoved, Synced: c.handleNamespacesSynced, Known: c.namespaces.accepts,
	})
}

// Start watches objects and writes statuses and events until ctx ends.
func (c *Controller) Start(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { c.objects.Run(ctx) })
	running.Go(func() { c.watchNamespaces(ctx) })
	c.watchNetwork(ctx, &running)
	runWorkers(ctx, &running, statusWriters, c.processNextStatus)
	runWorkers(ctx, &running, eventWriters, c.events.processNext)
	runWorkers(ctx, &running, tokenWorkers, c.tokens.processNext)
	<-ctx.Done()
	c.queue.ShutDown()
	c.events.queue.ShutDown()
	c.tokens.queue.ShutDown()
	running.Wait()
	return nil
}

// runWorkers has n goroutines process items until there are no more.
func runWorkers(ctx context.Context, running *sync.WaitGroup, n int, processNext func(context.Context) bool) {
	for range n {
		running.Go(func() {
			for processNext(ctx) {
			}
		})
	}
}

// Watch follows the pods of a node until stop is called, as it must be before the
// node is watched again. What is known of them outlives stop: an agent that is
// connected may still be told of it.
func (c *Controller) Watch(ctx context.Context, name string) (stop func()) {
	cluster, _ := wire.ParseNodeName(name)
	n := c.updateCluster(cluster, func(n *clusterState) {
		n.watches++
		n.expectNode(name)
	})
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { c.watchPods(ctx, n, name) })
	return func() {
		cancel()
		running.Wait()
		n.mu.Lock()
		n.watches--
		n.mu.Unlock()
		c.deleteIfUnused(n)
	}
}

// RemoveCluster drops what is known of a cluster that is no more, in Sync too. A watch
// of its node that has not ended publishes nothing any more.
func (c *Controller) RemoveCluster(cluster string) {
	c.consents.remove(cluster)
	n := c.getCluster(cluster)
	if n == nil {
		c.namespaces.removeCluster(cluster)
		c.config.Sync.Forget(cluster)
		return
	}
	n.mu.Lock()
	n.forgotten = true
	// First, for it keeps answers about objects from being published to whoever takes
	// the name next.
	c.objects.RemoveSubscriber(n.subscriber)
	// Once the node is muted, no report of its agent is remembered any more.
	c.namespaces.removeCluster(cluster)
	c.config.Sync.Forget(cluster)
	n.mu.Unlock()
	c.deleteIfUnused(n)
}

// Open tells that Sync has a stream to a cluster, until done is called.
func (c *Controller) Open(cluster string) (done func()) {
	n := c.updateCluster(cluster, func(n *clusterState) {
		n.streams++
		c.restartResponseTimer(n)
	})
	return func() {
		n.mu.Lock()
		n.streams--
		if n.streams == 0 {
			n.reportsComplete = false
			c.restartResponseTimer(n)
		}
		n.mu.Unlock()
		c.deleteIfUnused(n)
	}
}

// Pod returns a pod that is bound to a node. It must not be changed.
func (c *Controller) Pod(node, namespace, name string) (*corev1.Pod, bool) {
	cluster, _ := wire.ParseNodeName(node)
	n := c.getCluster(cluster)
	if n == nil {
		return nil, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	p, ok := n.pods[wire.PodKey{Namespace: namespace, Name: name}]
	if !ok || p.pod.Spec.NodeName != node {
		return nil, false
	}
	return p.latest(), true
}

// Pods returns all pods that are bound to a node. They must not be changed.
func (c *Controller) Pods(node string) []*corev1.Pod {
	cluster, _ := wire.ParseNodeName(node)
	n := c.getCluster(cluster)
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	pods := make([]*corev1.Pod, 0, len(n.pods))
	for _, p := range n.pods {
		if p.pod.Spec.NodeName == node {
			pods = append(pods, p.latest())
		}
	}
	return pods
}
