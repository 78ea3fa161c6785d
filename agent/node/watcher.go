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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/spokelet/spokelet/api/wire"
)

const versionTimeout = 10 * time.Second

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

// WatcherConfig configures a Watcher. All fields but Logger are needed.
type WatcherConfig struct {
	// Client may list and watch nodes.
	Client    kubernetes.Interface
	Version   VersionGetter
	Publisher Publisher
	Logger    logr.Logger
}

// Validate reports what is missing.
func (c WatcherConfig) Validate() error {
	if c.Client == nil || c.Version == nil || c.Publisher == nil {
		return errors.New("node watcher needs a client, a version getter and a publisher")
	}
	return nil
}

// Watcher publishes the summary of the spoke's nodes. It holds a trimmed copy
// of each Node and no other state of the cluster.
type Watcher struct {
	config   WatcherConfig
	informer cache.SharedIndexInformer

	// changed holds at most one token: however many events come while a summary
	// is made, one more summary covers them all.
	changed chan struct{}
}

// NewWatcher returns a Watcher that does nothing until Run.
func NewWatcher(config WatcherConfig) (*Watcher, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	w := &Watcher{
		config:   config,
		informer: informers.NewSharedInformerFactory(config.Client, 0).Core().V1().Nodes().Informer(),
		changed:  make(chan struct{}, 1),
	}
	if err := w.informer.SetTransform(trim); err != nil {
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
		if node, ok := object.(*corev1.Node); ok && !virtual(node) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// Run watches and publishes until ctx ends. It returns nil then.
func (w *Watcher) Run(ctx context.Context) error {
	registration, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { w.touch() },
		UpdateFunc: w.updated,
		DeleteFunc: func(any) { w.touch() },
	})
	if err != nil {
		return fmt.Errorf("nodes cannot be watched: %w", err)
	}
	// Run returns after the informer has: nothing of it outlives the caller.
	var group wait.Group
	defer group.Wait()
	group.Start(func() { w.informer.RunWithContext(ctx) })
	if !cache.WaitFor(ctx, "", registration.HasSyncedChecker()) {
		return nil
	}
	// A cluster without a node has no event to begin with.
	w.touch()
	w.publish(ctx)
	return nil
}

func (w *Watcher) updated(before, after any) {
	a, okA := before.(*corev1.Node)
	b, okB := after.(*corev1.Node)
	if okA && okB && same(a, b) {
		return
	}
	w.touch()
}

func (w *Watcher) touch() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *Watcher) publish(ctx context.Context) {
	var last []byte
	var serverVersion string
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
		}
		serverVersion = w.serverVersion(ctx, serverVersion)
		body, err := Summarise(w.Nodes(), serverVersion).Encode()
		if err != nil {
			w.config.Logger.Error(err, "cannot publish the node summary")
			continue
		}
		if !bytes.Equal(body, last) {
			last = body
			w.config.Publisher.Publish(body)
		}
	}
}

// serverVersion is asked for with each change of a node and never by the clock:
// an upgrade of a cluster changes its nodes. An API server that does not answer
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
