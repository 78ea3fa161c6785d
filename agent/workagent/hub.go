// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/statuswriter"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// fieldManager is the field manager of what is written to the hub.
	fieldManager = "spokelet-agent"
	// writers bound how many works are written at once.
	writers = 16
)

// hub is the hub's side of an engine: it watches the works, and writes what is
// reported of them.
type hub struct {
	kinds []*kind
	store *workStore
	log   logr.Logger

	// reports has the works of which a report is to be written, finalizers those that are
	// to get theirs.
	reports    *statuswriter.Queue
	finalizers workqueue.TypedRateLimitingInterface[wire.WorkKey]
}

func newHub(cfg Config, registerer prometheus.Registerer) (*hub, error) {
	all, err := kinds(cfg)
	if err != nil {
		return nil, err
	}
	m, err := statuswriter.NewMetrics(registerer, statuswriter.Help{
		WriteLatency: "Time from a status to its write on the hub.",
		Latency:      "Time from an event in the spoke to the write of the status that tells of it.",
	})
	if err != nil {
		return nil, err
	}
	log := cfg.Logger.WithName("hub")
	return &hub{
		kinds: all, store: newWorkStore(), log: log, reports: statuswriter.NewQueue(m, log),
		finalizers: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[wire.WorkKey]()),
	}, nil
}

// run sends works to the engine until ctx ends, and writes what it reports.
func (h *hub) run(ctx context.Context, to resource.Receiver) error {
	h.store.start(to, len(h.kinds))
	var running sync.WaitGroup
	running.Go(func() { statuswriter.Run(ctx, h.reports, writers, h.writeReport) })
	running.Go(func() { statuswriter.Run(ctx, h.finalizers, writers, h.addFinalizer) })
	for _, k := range h.kinds {
		running.Go(func() { h.watchKind(ctx, k) })
	}
	running.Wait()
	return nil
}

// watchKind keeps the store up to date with one kind until ctx ends.
func (h *hub) watchKind(ctx context.Context, k *kind) {
	watched := &listWatcher{kind: k, log: h.log.WithValues("resource", k.resource.Resource, "namespace", k.namespace)}
	r := cache.NewReflectorWithOptions(watched, k.New().Object(), &reflectorStore{hub: h, kind: k}, cache.ReflectorOptions{Name: k.Name})
	r.RunWithContext(klog.NewContext(ctx, logr.Discard()))
}

// kind returns the kind of a key's works.
func (h *hub) kind(key wire.WorkKey) (*kind, bool) {
	for _, k := range h.kinds {
		if k.Name == key.Dialect && k.namespace == key.Namespace {
			return k, true
		}
	}
	return nil, false
}

// listWatcher lists and watches one kind. What goes wrong is logged once for each
// reason.
type listWatcher struct {
	kind *kind
	log  logr.Logger

	mu     sync.Mutex
	logged string // guarded by mu
}

func (s *listWatcher) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list := s.kind.NewList()
	err := s.request(o).Do(ctx).Into(list)
	s.logError(ctx, err)
	return list, err
}

func (s *listWatcher) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	w, err := s.request(o).Watch(ctx)
	s.logError(ctx, err)
	return w, err
}

func (s *listWatcher) List(o metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), o)
}

func (s *listWatcher) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), o)
}

func (s *listWatcher) request(o metav1.ListOptions) *rest.Request {
	r := s.kind.client.Get().Namespace(s.kind.namespace).Resource(s.kind.resource.Resource).VersionedParams(&o, metav1.ParameterCodec)
	if o.TimeoutSeconds != nil {
		r = r.Timeout(time.Duration(*o.TimeoutSeconds) * time.Second)
	}
	return r
}

func (s *listWatcher) logError(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if text != "" && text != s.logged {
		s.log.Error(err, "works of the hub cannot be read")
	}
	s.logged = text
}

// get reads a work from the API server and stores it.
func (h *hub) get(ctx context.Context, k *kind, name string) error {
	w := k.New()
	err := k.client.Get().Namespace(k.namespace).Resource(k.resource.Resource).Name(name).Do(ctx).Into(w.Object())
	if err != nil {
		return fmt.Errorf("get work: %w", err)
	}
	h.store.refresh(k.key(name), w)
	return nil
}

// patch sends a merge patch and stores the work that it made.
func (h *hub) patch(ctx context.Context, k *kind, name string, body []byte, subresource ...string) error {
	w := k.New()
	err := k.client.Patch(types.MergePatchType).Namespace(k.namespace).Resource(k.resource.Resource).Name(name).SubResource(subresource...).
		VersionedParams(&metav1.PatchOptions{FieldManager: fieldManager}, metav1.ParameterCodec).Body(body).Do(ctx).Into(w.Object())
	if err != nil {
		return fmt.Errorf("patch work: %w", err)
	}
	h.store.refresh(k.key(name), w)
	return nil
}
