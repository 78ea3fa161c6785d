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
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// writers write statuses for all nodes together, eventWriters events, issuers
	// ask for tokens.
	writers      = 16
	eventWriters = 4
	issuers      = 8
	// requestTimeout bounds each request.
	requestTimeout = 10 * time.Second
	// firstRetry and lastRetry are the pauses between attempts at one write.
	firstRetry = 50 * time.Millisecond
	lastRetry  = time.Minute
)

// Replicator is the hub's end of Sync.
type Replicator interface {
	Publish(kind string, load resource.HubLoad)
	Mirror(kind string, r resource.HubReceiver)
	PublishAsked(kind string, load resource.HubLoad, asked resource.HubAsked)
	Source(cluster, kind string) *resource.Source
	Forget(cluster string)
}

// Config holds what a Keeper needs.
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

// Keeper keeps the pods of all virtual nodes. A virtual node is a cluster's, and has
// its name, or that of a group of its nodes (wire.NodeName).
type Keeper struct {
	config  Config
	metrics *metrics
	objects *objects
	// namespaces are the hub's, and those that agents made for its pods.
	namespaces *namespaces
	// queue holds the pods of which something may have to be written, eventQueue
	// the events.
	queue      workqueue.TypedRateLimitingInterface[ref]
	eventQueue workqueue.TypedRateLimitingInterface[eventRef]
	// tokenQueue holds the pods of which a token may be due.
	tokenQueue workqueue.TypedRateLimitingInterface[ref]
	// pace spaces the statuses of a pod that the spoke changes without end.
	pace ratelimit.Pacer[ref]
	// network is what the hub itself uses, and consents what the records allow.
	network  *address.Network
	consents consents
	// logLimiter bounds what is logged of what agents send.
	logLimiter ratelimit.LogLimiter
	// idle is told when a group's node may be idle; nil when nobody asks.
	idle func()

	mu    sync.Mutex // guards nodes; taken before a node's
	nodes map[string]*node
}

// ref names a pod of a cluster, by the name of its own node.
type ref struct {
	node string
	key  wire.PodKey
}

// retries space the attempts at one item, and leave those of others alone: a bucket
// for all would have a thousand pods wait for each other.
func retries[T comparable]() workqueue.TypedRateLimiter[T] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[T](firstRetry, lastRetry)
}

// New declares pods, statuses and events in Sync; Start writes.
func New(config Config) (*Keeper, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	k := &Keeper{
		config:     config,
		queue:      workqueue.NewTypedRateLimitingQueue(retries[ref]()),
		eventQueue: workqueue.NewTypedRateLimitingQueue(retries[eventRef]()),
		tokenQueue: workqueue.NewTypedRateLimitingQueue(retries[ref]()),
		nodes:      map[string]*node{},
	}
	k.network = address.NewNetwork(config.Address, k.reviewAddresses)
	k.objects = newObjects(config)
	k.namespaces = newNamespaces(config)
	var err error
	if k.metrics, err = newMetrics(config.Registerer, k.objects.count); err != nil {
		return nil, err
	}
	config.Sync.Publish(wire.KindPod, k.load)
	config.Sync.Publish(wire.KindPodObject, k.objects.load)
	config.Sync.Publish(wire.KindPodNamespaceGone, nil)
	config.Sync.Publish(wire.KindPodForced, nil)
	if config.Tokens.Issue {
		config.Sync.PublishAsked(wire.KindPodToken, k.loadTokens, k.asked)
	}
	config.Sync.Mirror(wire.KindPodStatus, resource.HubReceiver{
		Put: k.receive, Delete: k.withdrawn, Synced: k.synced, About: wire.KindPod, After: wire.KindPod,
	})
	config.Sync.Mirror(wire.KindPodEvent, resource.HubReceiver{
		Put: k.receiveEvent, Delete: k.eventWithdrawn, Known: k.knowsEvent, After: wire.KindPod,
	})
	config.Sync.Mirror(wire.KindPodNamespace, resource.HubReceiver{
		Put: k.receiveNamespace, Delete: k.namespaces.withdrawn, Synced: k.namespacesSynced, Known: k.namespaces.knows,
	})
	return k, nil
}

// Start watches objects and writes statuses and events until ctx ends.
func (k *Keeper) Start(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { k.objects.run(ctx) })
	namespaces := k.namespaceReflector()
	running.Go(func() { namespaces.RunWithContext(ctx) })
	k.followNetwork(ctx, &running)
	for range writers {
		running.Go(func() {
			for k.next(ctx) {
			}
		})
	}
	for range eventWriters {
		running.Go(func() {
			for k.nextEvent(ctx) {
			}
		})
	}
	for range issuers {
		running.Go(func() {
			for k.nextTokens(ctx) {
			}
		})
	}
	<-ctx.Done()
	k.queue.ShutDown()
	k.eventQueue.ShutDown()
	k.tokenQueue.ShutDown()
	running.Wait()
	return nil
}

// Watch follows the pods of a node until stop is called, as it must be before the
// node is watched again. What is known of them outlives stop: an agent that is
// connected may still be told of it.
func (k *Keeper) Watch(ctx context.Context, name string) (stop func()) {
	cluster, _ := wire.ParseNodeName(name)
	n := k.change(cluster, func(n *node) {
		n.watched++
		n.expect(name)
	})
	ctx, cancel := context.WithCancel(ctx)
	reflector := k.reflector(n, name)
	var running sync.WaitGroup
	running.Go(func() { reflector.RunWithContext(ctx) })
	return func() {
		cancel()
		running.Wait()
		n.mu.Lock()
		n.watched--
		n.mu.Unlock()
		k.drop(n)
	}
}

// Forget drops what is known of a cluster that is no more, in Sync too. A watch
// of its node that has not ended publishes nothing any more.
func (k *Keeper) Forget(cluster string) {
	k.consents.remove(cluster)
	n := k.find(cluster)
	if n == nil {
		k.namespaces.forget(cluster)
		k.config.Sync.Forget(cluster)
		return
	}
	n.mu.Lock()
	n.muted = true
	// First, for it keeps answers about objects from being published to whoever takes
	// the name next.
	k.objects.mute(n.audience)
	// Once the node is muted, no report of its agent is remembered any more.
	k.namespaces.forget(cluster)
	k.config.Sync.Forget(cluster)
	n.mu.Unlock()
	k.drop(n)
}

// Open tells that Sync has a stream to a cluster, until done is called.
func (k *Keeper) Open(cluster string) (done func()) {
	n := k.change(cluster, func(n *node) {
		n.streams++
		k.waitAnew(n)
	})
	return func() {
		n.mu.Lock()
		n.streams--
		if n.streams == 0 {
			n.live = false
			k.waitAnew(n)
		}
		n.mu.Unlock()
		k.drop(n)
	}
}

// Pod returns a pod that is bound to a node. It must not be changed.
func (k *Keeper) Pod(node, namespace, name string) (*corev1.Pod, bool) {
	cluster, _ := wire.ParseNodeName(node)
	n := k.find(cluster)
	if n == nil {
		return nil, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	h, ok := n.pods[wire.PodKey{Namespace: namespace, Name: name}]
	if !ok || h.pod.Spec.NodeName != node {
		return nil, false
	}
	return h.latest(), true
}

// Pods returns all pods that are bound to a node. They must not be changed.
func (k *Keeper) Pods(node string) []*corev1.Pod {
	cluster, _ := wire.ParseNodeName(node)
	n := k.find(cluster)
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	pods := make([]*corev1.Pod, 0, len(n.pods))
	for _, h := range n.pods {
		if h.pod.Spec.NodeName == node {
			pods = append(pods, h.latest())
		}
	}
	return pods
}
