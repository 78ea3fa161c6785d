// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/keymutex"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/managedcluster"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/internal/ratelimit"
	"github.com/spokelet/spokelet/internal/statuswriter"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// fieldOwner of what the hub writes to works.
	fieldOwner = client.FieldOwner("spokelet-hub")
	// reconcilers and writers bound what is done at once.
	reconcilers = 16
	writers     = 16
	// publishLocks are shared by the works: two of one lock wait for each other.
	publishLocks = 1024
	// maxWarned bounds the memory of which works a warning was given for.
	maxWarned = 10_000
)

// Replicator is the hub's end of Sync.
type Replicator interface {
	Publish(kind string, load resource.HubLoad)
	Mirror(kind string, r resource.HubReceiver)
	Source(cluster, kind string) *resource.Source
	Forget(cluster string)
}

// Config holds what Works needs.
type Config struct {
	// Sync replicates works and statuses. Required.
	Sync Replicator
	// Client reads works and ManagedClusters from the manager's cache, and
	// writes. Its rate must not be limited: priority and fairness is the limiter.
	Client client.Client
	// HubHash is the first part of the names of AppliedManifestWorks: 64 lower-case
	// hexadecimal digits. Required.
	HubHash string
	// Healthy gives every manifest of every ManifestWork the well-known condition
	// rule Healthy.
	Healthy bool
	// Writes bounds what is written because of what clusters report; nil has no bounds.
	Writes *quota.Writes
	// Events are reported on works.
	Events     events.EventRecorder
	Logger     logr.Logger
	Registerer prometheus.Registerer
}

var metricsHelp = statuswriter.Help{
	WriteLatency: "Time from the arrival of a status to its write.",
	Latency:      "Time from an event in the spoke to the write of the status that tells of it, less the one way over the network.",
}

var hubHashPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Validate tells what is missing or wrong.
func (c *Config) Validate() error {
	if c.Sync == nil || c.Client == nil || c.Events == nil {
		return errors.New("works need Sync, Client and Events")
	}
	if !hubHashPattern.MatchString(c.HubHash) {
		return fmt.Errorf("hub hash %.70q is not 64 lower-case hexadecimal digits", c.HubHash)
	}
	return nil
}

// Works reconciles the works in the namespaces of clusters.
type Works struct {
	kinds     []*kind
	sync      Replicator
	client    client.Client
	apiReader client.Reader
	events    events.EventRecorder
	log       logr.Logger
	// queue has the reports that are to be written, and spaces the statuses of a work that a
	// spoke changes without end. ownWrites has the versions that our writes of works made.
	queue     *statuswriter.Queue
	ownWrites statuswriter.OwnWrites[wire.WorkKey, struct{}]

	// writeQuota bounds the writes of all works of a cluster by their size.
	writeQuota *quota.Writes
	// renderings are of the works whose manifests refer to their cluster; following spaces
	// how often those of a cluster are made anew.
	renderings  renderings
	renderPacer ratelimit.KeyedLimiter[string]
	// logLimiter bounds what is logged of what agents send.
	logLimiter ratelimit.LogLimiter

	// keyLocks is locked, by key, from the look at a work until it is published.
	keyLocks keymutex.KeyMutex

	mu sync.Mutex
	// tombstones holds the works that are no more, until the reconciler has seen that, or
	// the agent has nothing of them left; guarded by mu.
	tombstones map[wire.WorkKey]tombstone
	// warnedUIDs holds the works that lie where no cluster is; guarded by mu.
	warnedUIDs map[types.UID]struct{}
}

// New declares works and their statuses in Sync; SetupWithManager starts the rest.
func New(c Config) (*Works, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	m, err := statuswriter.NewMetrics(c.Registerer, metricsHelp)
	if err != nil {
		return nil, err
	}
	w := &Works{
		kinds: []*kind{multicluster(), manifestWorks(c.HubHash, c.Healthy)},
		sync:  c.Sync, client: c.Client, apiReader: c.Client, events: c.Events, log: c.Logger, writeQuota: c.Writes,
		keyLocks:   keymutex.NewHashed(publishLocks),
		queue:      statuswriter.NewQueue(m, c.Logger),
		tombstones: map[wire.WorkKey]tombstone{},
		warnedUIDs: map[types.UID]struct{}{},
	}
	c.Sync.Publish(wire.KindWork, w.loadResource)
	c.Sync.Mirror(wire.KindWorkStatus, resource.HubReceiver{Put: w.receive, Keeps: true, About: wire.KindWork})
	return w, nil
}

// SetupWithManager adds the controllers and the writer of statuses.
func (w *Works) SetupWithManager(mgr ctrl.Manager) error {
	w.apiReader = mgr.GetAPIReader()
	for _, k := range w.kinds {
		err := ctrl.NewControllerManagedBy(mgr).Named("work-"+k.Name).
			Watches(k.New().Object(), &eventHandler{works: w, kind: k}, builder.WithPredicates(k.specChanged())).
			WithOptions(controller.Options{MaxConcurrentReconciles: reconcilers}).
			Complete(workReconciler{works: w, kind: k})
		if err != nil {
			return fmt.Errorf("controller of %s works: %w", k.Name, err)
		}
	}
	err := ctrl.NewControllerManagedBy(mgr).Named("work-cluster").
		For(&clusterv1.ManagedCluster{}, builder.WithPredicates(acceptanceChanged())).
		Complete(clusterReconciler{w})
	if err != nil {
		return fmt.Errorf("work cluster controller: %w", err)
	}
	if err := (valuesReconciler{w}).setup(mgr); err != nil {
		return fmt.Errorf("work values controller: %w", err)
	}
	if err := (expiryReconciler{w}).setup(mgr); err != nil {
		return fmt.Errorf("work expiry controller: %w", err)
	}
	return mgr.Add(w)
}

// specChanged passes what changes what a spoke is asked for; our own writes of
// statuses do not come back.
func (k *kind) specChanged() predicate.Predicate {
	all := []predicate.Predicate{
		predicate.GenerationChangedPredicate{},
		relevantAnnotationsChanged(),
		predicate.NewPredicateFuncs(func(o client.Object) bool {
			return o.GetDeletionTimestamp() != nil || !controllerutil.ContainsFinalizer(o, k.Finalizer)
		}),
	}
	if k.changes != nil {
		all = append(all, k.changes)
	}
	return predicate.Or(all...)
}

// acceptanceChanged passes what may change whether a cluster's works are sent.
func acceptanceChanged() predicate.Predicate {
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})
}

// kind returns the kind of a key's works.
func (w *Works) kind(key wire.WorkKey) (*kind, bool) {
	for _, k := range w.kinds {
		if k.Name == key.Dialect {
			return k, true
		}
	}
	return nil, false
}

// getCluster reads that of a cluster; nil is none.
func (w *Works) getCluster(ctx context.Context, cluster string) (*clusterv1.ManagedCluster, error) {
	var record clusterv1.ManagedCluster
	err := w.client.Get(ctx, types.NamespacedName{Name: cluster}, &record)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get cluster: %w", err)
	}
	return &record, nil
}

// clusterState tells whether a namespace is that of a cluster whose works are sent,
// and whether there is a record of such a cluster at all.
func (w *Works) clusterState(ctx context.Context, name string) (managed, known bool, err error) {
	record, err := w.getCluster(ctx, name)
	if err != nil || record == nil {
		return false, false, err
	}
	return managedcluster.IsAccepted(record), true, nil
}

// isManagedCluster tells whether a namespace is that of a cluster of this hub, accepted or not: what
// it said while it was is not said again.
func (w *Works) isManagedCluster(ctx context.Context, cluster string) (bool, error) {
	record, err := w.getCluster(ctx, cluster)
	return err == nil && record != nil && managedcluster.IsManaged(record), err
}

// clusterReconciler completes the source of a cluster once every work of it is published.
type clusterReconciler struct{ works *Works }

// Reconcile publishes the works of one cluster.
func (c clusterReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	record, err := c.works.getCluster(ctx, req.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	if record == nil || !managedcluster.IsManaged(record) {
		c.works.deleteClusterState(req.Name)
	}
	for _, k := range c.works.kinds {
		if result, err := c.publish(ctx, k, req.Name); err != nil || !result.IsZero() {
			return result, err
		}
	}
	if record != nil && managedcluster.IsAccepted(record) {
		c.works.source(req.Name).Complete()
	}
	return ctrl.Result{}, nil
}

func (c clusterReconciler) publish(ctx context.Context, k *kind, cluster string) (ctrl.Result, error) {
	names, err := c.works.listNames(ctx, k, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	for _, name := range names {
		if err := c.works.publish(ctx, k, name); err != nil {
			return requeueOnConflict(err)
		}
	}
	return ctrl.Result{}, nil
}
