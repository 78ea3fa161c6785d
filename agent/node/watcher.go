// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/spokelet/spokelet/api/wire"
)

const (
	versionTimeout = 10 * time.Second

	// podSpacing is the least between two summaries for the sake of pods alone: a
	// cluster that starts a thousand of them changes its node now and then. The
	// first change is never held back, and no change of a node is.
	podSpacing = time.Second
)

// Publisher takes an encoded wire.NodeSummary towards the hub; only the latest
// one counts. It must not block.
type Publisher interface {
	Publish(summary []byte)
}

// PublisherFunc is a Publisher.
type PublisherFunc func(summary []byte)

// Publish calls f.
func (f PublisherFunc) Publish(summary []byte) { f(summary) }

// VersionGetter asks the spoke's API server for its version; a discovery client
// is one.
type VersionGetter interface {
	ServerVersionWithContext(ctx context.Context) (*version.Info, error)
}

// WatcherConfig configures a Watcher. Client, Version and Publisher are needed, and
// Groups with SplitLabel.
type WatcherConfig struct {
	// Client may list and watch nodes, and pods in all namespaces. Without the
	// right to pods nothing is taken off what the nodes have.
	Client    kubernetes.Interface
	Version   VersionGetter
	Publisher Publisher
	// HubID tells the pods that are ours; when it is empty none is.
	HubID string
	// NamespacePrefix is what the spoke's namespaces of our pods begin with, and
	// the hub's do not.
	NamespacePrefix string
	// SplitLabel, when not empty, is the label by whose values the nodes are shown in
	// groups, of which Groups is told.
	SplitLabel string
	Groups     GroupPublisher
	Logger     logr.Logger
}

// Validate reports what is missing.
func (c WatcherConfig) Validate() error {
	if c.Client == nil || c.Version == nil || c.Publisher == nil {
		return errors.New("node watcher needs a client, a version getter and a publisher")
	}
	if c.SplitLabel != "" && c.Groups == nil {
		return errors.New("node watcher needs a publisher of groups to split by a label")
	}
	return nil
}

// Watcher publishes the summary of the spoke's nodes. It holds a trimmed copy
// of each Node, what each pod takes of it, and no other state of the cluster.
type Watcher struct {
	config   WatcherConfig
	informer cache.SharedIndexInformer
	pods     *podTable
	// listed is closed when the nodes have been listed.
	listed chan struct{}

	// nodesChanged and podsChanged hold at most one token each: however many
	// events come while a summary is made, one more summary covers them all.
	nodesChanged, podsChanged chan struct{}
}

// NewWatcher returns a Watcher that does nothing until Run.
func NewWatcher(config WatcherConfig) (*Watcher, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	w := &Watcher{
		config:       config,
		informer:     informers.NewSharedInformerFactory(config.Client, 0).Core().V1().Nodes().Informer(),
		listed:       make(chan struct{}),
		nodesChanged: make(chan struct{}, 1),
		podsChanged:  make(chan struct{}, 1),
	}
	w.pods = newPodTable(config, func() { notify(w.podsChanged) })
	if err := w.informer.SetTransform(trimNode(config.SplitLabel)); err != nil {
		return nil, fmt.Errorf("node cache cannot be trimmed: %w", err)
	}
	return w, nil
}

// Nodes returns the real nodes of the spoke, trimmed; they must not be changed.
// It is empty until Run has listed them.
func (w *Watcher) Nodes() []*corev1.Node {
	objects := w.informer.GetStore().List()
	nodes := make([]*corev1.Node, 0, len(objects))
	for _, object := range objects {
		if node, ok := object.(*corev1.Node); ok && !isVirtual(node) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// HubPod is Pods'. No pod is ours until Run has listed them.
func (w *Watcher) HubPod(namespace, name string) (key wire.PodKey, uid types.UID, ok bool) {
	return w.pods.hubPod(namespace, name)
}

// Run watches and publishes until ctx ends. It returns nil then.
func (w *Watcher) Run(ctx context.Context) error {
	registration, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { notify(w.nodesChanged) },
		UpdateFunc: w.handleUpdate,
		DeleteFunc: func(any) { notify(w.nodesChanged) },
	})
	if err != nil {
		return fmt.Errorf("nodes cannot be watched: %w", err)
	}
	// Run returns after what it runs has: nothing of it outlives the caller.
	var group wait.Group
	defer group.Wait()
	group.Start(func() { w.informer.RunWithContext(ctx) })
	group.Start(func() { w.pods.run(ctx, w.config.Client) })
	if !cache.WaitFor(ctx, "", registration.HasSyncedChecker()) {
		return nil
	}
	close(w.listed)
	if !cache.WaitFor(ctx, "", w.pods) {
		return nil
	}
	w.publishChanges(ctx)
	return nil
}

func (w *Watcher) handleUpdate(before, after any) {
	a, okA := before.(*corev1.Node)
	b, okB := after.(*corev1.Node)
	if okA && okB && equalNodes(a, b) {
		return
	}
	notify(w.nodesChanged)
}

func notify(changed chan struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}

// publishChanges publishes what there is, and then on every change until ctx ends.
func (w *Watcher) publishChanges(ctx context.Context) {
	for _, covered := range []chan struct{}{w.nodesChanged, w.podsChanged} {
		select {
		case <-covered:
		default:
		}
	}
	serverVersion := w.serverVersion(ctx, "")
	last := w.publish(nil, serverVersion)
	// pods is nil for podSpacing after a change of pods.
	pods, spacing := w.podsChanged, (<-chan time.Time)(nil)
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.nodesChanged:
			serverVersion = w.serverVersion(ctx, serverVersion)
		case <-pods:
			pods, spacing = nil, time.After(podSpacing)
		case <-spacing:
			pods, spacing = w.podsChanged, nil
			continue
		}
		last = w.publish(last, serverVersion)
	}
}

// publish publishes what differs from last, and returns what was published last.
func (w *Watcher) publish(last []byte, serverVersion string) []byte {
	body, err := w.clusterSummary(serverVersion).Encode()
	if err != nil {
		w.config.Logger.Error(err, "cannot publish the node summary")
		return last
	}
	if !bytes.Equal(body, last) {
		w.config.Publisher.Publish(body)
	}
	return body
}

// serverVersion is asked for with each change of a node, and not for pods or by
// the clock: an upgrade of a cluster changes its nodes. An API server that does not answer
// has the version that it had.
func (w *Watcher) serverVersion(ctx context.Context, last string) string {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	info, err := w.config.Version.ServerVersionWithContext(ctx)
	if err != nil {
		w.config.Logger.Error(err, "cannot read the version of the API server")
		return last
	}
	if !wire.IsVersion(info.GitVersion) {
		return last
	}
	return info.GitVersion
}
