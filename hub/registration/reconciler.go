// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/spokelet/spokelet/internal/clustername"
	"github.com/spokelet/spokelet/internal/managedcluster"
	"github.com/spokelet/spokelet/internal/ratelimit"
	"github.com/spokelet/spokelet/tunnel/identity"
)

// Reconciler keeps the records of our clusters: id, namespace, conditions,
// summary, and their end.
type Reconciler struct {
	config Config
	store  *observedStore
	// pacer spaces what a cluster has us do by what it sends.
	pacer ratelimit.KeyedLimiter[string]

	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request] // guarded by mu; nil until started
	started time.Time                                               // guarded by mu
}

// enqueue asks for a reconcile. It never blocks: the queue holds each name once.
func (r *Reconciler) enqueue(cluster string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Before the start there is nothing to lose: every record is reconciled then.
	if r.queue != nil {
		r.queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: cluster}})
	}
}

// enqueuePaced asks for a reconcile at the wish of a cluster: at once, unless
// there were many. The reconcile reads what came last.
func (r *Reconciler) enqueuePaced(cluster string) {
	wait := r.pacer.Delay(cluster)
	if wait == 0 {
		r.pacer.Spend(cluster, 0)
		r.enqueue(cluster)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queue != nil {
		r.queue.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: cluster}}, wait)
	}
}

// start is the source of the requests that come from the tunnel.
func (r *Reconciler) start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue, r.started = queue, r.config.Now()
	return nil
}

// Reconcile brings one record up to date.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	record := &clusterv1.ManagedCluster{}
	err := r.config.Client.Get(ctx, client.ObjectKey{Name: request.Name}, record)
	if apierrors.IsNotFound(err) {
		// Also where a session was opened in the moment its record went away.
		r.config.Disconnect(request.Name, ErrDetached)
		r.store.remove(request.Name)
		r.pacer.Forget(request.Name)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	result, err := r.reconcile(ctx, record.DeepCopy())
	if apierrors.IsConflict(err) {
		// Someone else wrote the record: its event brings us back, or this does.
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	return result, err
}

func (r *Reconciler) reconcile(ctx context.Context, record *clusterv1.ManagedCluster) (reconcile.Result, error) {
	if !record.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, r.detach(ctx, record)
	}
	if !managedcluster.IsManaged(record) {
		return reconcile.Result{}, r.release(ctx, record)
	}
	if reason, err := r.validate(record); err != nil {
		r.config.Disconnect(record.Name, err)
		return reconcile.Result{}, r.reportInvalid(ctx, record, reason, err)
	}
	known, debt := r.getObserved(record.Name)
	if err := r.adopt(ctx, record, known); err != nil {
		return reconcile.Result{}, err
	}
	r.disconnectIfNotAdmitted(record)
	if err := r.ensureNamespace(ctx, record); err != nil {
		return reconcile.Result{}, err
	}
	grace := r.remainingGrace()
	result := reconcile.Result{RequeueAfter: r.graceRequeue(record, grace)}
	if debt > 0 && (result.RequeueAfter == 0 || debt < result.RequeueAfter) {
		result.RequeueAfter = debt
	}
	return result, r.writeStatus(ctx, record, known, grace > 0)
}

// getObserved returns what is known of a cluster. Its summary is left out for as
// long as it has to wait for what it has had written.
func (r *Reconciler) getObserved(cluster string) (known observed, debt time.Duration) {
	known = r.store.get(cluster)
	if known.summary == nil {
		return known, 0
	}
	if debt = r.config.Writes.Wait(cluster); debt > 0 {
		known.summary = nil
	}
	return known, debt
}

// release lets go of a record whose annotation was taken away: it loses its
// sessions and our finalizer, and keeps everything else.
func (r *Reconciler) release(ctx context.Context, record *clusterv1.ManagedCluster) error {
	if !controllerutil.ContainsFinalizer(record, Finalizer) {
		return nil
	}
	r.config.Disconnect(record.Name, ErrUnknown)
	if err := r.config.Nodes.Remove(ctx, record.Name); err != nil {
		return fmt.Errorf("virtual node: %w", err)
	}
	return r.patch(ctx, record, func() { controllerutil.RemoveFinalizer(record, Finalizer) })
}

// validate reports a record that the hub cannot serve, and under which reason.
func (r *Reconciler) validate(record *clusterv1.ManagedCluster) (string, error) {
	if err := clustername.Check(record.Name, r.config.HubNamespace); err != nil {
		return ReasonInvalidName, err
	}
	if id, ok := record.Annotations[managedcluster.AnnotationClusterID]; ok {
		if err := identity.ValidateID(id); err != nil {
			return ReasonInvalidID, err
		}
	}
	return "", nil
}

// adopt gives a record what makes it ours: the finalizer, the cluster id, and
// the labels that the spoke offers.
func (r *Reconciler) adopt(ctx context.Context, record *clusterv1.ManagedCluster, known observed) error {
	return r.patch(ctx, record, func() {
		controllerutil.AddFinalizer(record, Finalizer)
		if record.Annotations[managedcluster.AnnotationClusterID] == "" {
			record.Annotations[managedcluster.AnnotationClusterID] = identity.NewID()
		}
		if known.summary != nil {
			copyLabels(record, known.summary.Labels)
		}
	})
}

func copyLabels(record *clusterv1.ManagedCluster, offered map[string]string) {
	for _, key := range summaryLabels {
		value, ok := offered[key]
		if !ok {
			continue
		}
		if record.Labels == nil {
			record.Labels = map[string]string{}
		}
		record.Labels[key] = value
	}
}

// patch writes what change does to the record, if it does anything, under the
// resourceVersion that was read.
func (r *Reconciler) patch(ctx context.Context, record *clusterv1.ManagedCluster, change func()) error {
	before := record.DeepCopy()
	change()
	if equality.Semantic.DeepEqual(before, record) {
		return nil
	}
	r.chargeWrite(record)
	return r.config.Client.Patch(ctx, record, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// chargeWrite records a write of a record, by about what is stored of it.
func (r *Reconciler) chargeWrite(record *clusterv1.ManagedCluster) {
	if raw, err := json.Marshal(record); err == nil {
		r.config.Writes.Spend(record.Name, int64(len(raw)))
	}
}

// disconnectIfNotAdmitted ends a session that began between the Gate's read of
// the record and the change that the Gate then acted on.
func (r *Reconciler) disconnectIfNotAdmitted(record *clusterv1.ManagedCluster) {
	session := r.store.get(record.Name).session
	if !record.Spec.HubAcceptsClient {
		r.config.Disconnect(record.Name, ErrNotAccepted)
		return
	}
	if session != nil && session.ID != record.Annotations[managedcluster.AnnotationClusterID] {
		r.config.Disconnect(record.Name, ErrStranger)
	}
}

// ensureNamespace makes the namespace of a cluster. One that is there already gets
// the labels by which admission knows that it is a cluster's and whether that is being
// detached, and is not ours to delete.
func (r *Reconciler) ensureNamespace(ctx context.Context, record *clusterv1.ManagedCluster) error {
	name, labels := record.Name, namespaceLabels(record)
	existing := newNamespaceMetadata()
	err := r.config.Client.Get(ctx, client.ObjectKey{Name: name}, existing)
	if err == nil {
		return r.labelNamespace(ctx, existing, labels)
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	labels[LabelNamespaceOwner] = namespaceOwner
	err = r.config.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("namespace %q: %w", name, err)
	}
	return nil
}

// namespaceLabels are those that the namespace of a cluster has, whoever made it.
func namespaceLabels(record *clusterv1.ManagedCluster) map[string]string {
	labels := map[string]string{clusterv1.ClusterNameLabelKey: record.Name}
	if managedcluster.IsDetaching(record) {
		labels[managedcluster.LabelDetaching] = "true"
	}
	return labels
}

func (r *Reconciler) labelNamespace(ctx context.Context, namespace *metav1.PartialObjectMetadata, labels map[string]string) error {
	before := namespace.DeepCopy()
	if namespace.Labels == nil {
		namespace.Labels = map[string]string{}
	}
	delete(namespace.Labels, managedcluster.LabelDetaching)
	maps.Copy(namespace.Labels, labels)
	if maps.Equal(before.Labels, namespace.Labels) {
		return nil
	}
	if err := r.config.Client.Patch(ctx, namespace, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("namespace %q: cannot label: %w", namespace.Name, err)
	}
	return nil
}

func newNamespaceMetadata() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
}

// remainingGrace is how long clusters may still come back after the hub's start
// before they are called disconnected.
func (r *Reconciler) remainingGrace() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, r.config.ReconnectGrace-r.config.Now().Sub(r.started))
}

// graceRequeue requeues once at the end of the grace, and only for clusters
// whose conditions would change then.
func (r *Reconciler) graceRequeue(record *clusterv1.ManagedCluster, grace time.Duration) time.Duration {
	if r.store.get(record.Name).session != nil {
		return 0
	}
	return grace
}
