// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/managedcluster"
)

const (
	// ConditionNodeRegistered is the condition of a ManagedCluster that says
	// whether it has its virtual node.
	ConditionNodeRegistered = "SpokeletNodeRegistered"

	// ReasonRegistered: the Node is there.
	ReasonRegistered = "Registered"

	// ReasonNameTaken: a Node of the cluster's name belongs to somebody else.
	ReasonNameTaken = "NodeNameTaken"

	fieldOwner = "spokelet-provider"
)

// recordReconciler reconciles ManagedClusters with the virtual nodes.
type recordReconciler struct {
	provider *Provider
	client   client.Client
	events   events.EventRecorder
}

// SetupWithManager has p follow the ManagedClusters of mgr, and run with it.
func (p *Provider) SetupWithManager(mgr ctrl.Manager) error {
	if err := mgr.Add(p); err != nil {
		return fmt.Errorf("provider cannot be added to the manager: %w", err)
	}
	r := &recordReconciler{provider: p, client: mgr.GetClient(), events: mgr.GetEventRecorder("spokelet-provider")}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("virtual-node").
		For(&clusterv1.ManagedCluster{}).
		WatchesRawSource(source.Func(p.setQueue)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("virtual node controller cannot be set up: %w", err)
	}
	return nil
}

// setQueue gives the provider the controller's queue, and queues every virtual node
// that is there: one whose cluster is gone has no other event.
func (p *Provider) setQueue(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	again := func(cluster string, after time.Duration) {
		queue.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: cluster}}, after)
	}
	p.mu.Lock()
	p.enqueueAfter = again
	p.mu.Unlock()
	for _, node := range p.cachedNodes() {
		cluster, _ := wire.ParseNodeName(node.Name)
		again(cluster, 0)
	}
	return nil
}

// requeueRecord has a cluster's record looked at again.
func (p *Provider) requeueRecord(cluster string) {
	p.mu.Lock()
	again := p.enqueueAfter
	p.mu.Unlock()
	if again != nil {
		again(cluster, 0)
	}
}

// Reconcile gives an accepted cluster its node and any other none.
func (r *recordReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var record clusterv1.ManagedCluster
	if _, group := wire.ParseNodeName(request.Name); group != "" {
		return reconcile.Result{}, nil // no cluster has such a name, and a group's node may
	}
	err := r.client.Get(ctx, request.NamespacedName, &record)
	if err != nil && !apierrors.IsNotFound(err) {
		return reconcile.Result{}, fmt.Errorf("cluster %s cannot be read: %w", request.Name, err)
	}
	if err != nil || !hasNode(&record) {
		return reconcile.Result{}, r.provider.Remove(ctx, request.Name)
	}
	consent, invalid := parseConsent(&record)
	err = r.provider.Ensure(ctx, Cluster{
		Name: record.Name, ID: record.Annotations[managedcluster.AnnotationClusterID], Labels: record.Labels, Consent: consent,
	})
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, r.updateConditions(ctx, &record, invalid)
}

// hasNode reports whether the cluster is ours and has a node. One without an id
// has not been registered yet.
func hasNode(c *clusterv1.ManagedCluster) bool {
	return managedcluster.IsAccepted(c) && c.Annotations[managedcluster.AnnotationClusterID] != ""
}

// registrationCondition says that the name of a node is taken, until it is free.
func (r *recordReconciler) registrationCondition(cluster string) recordCondition {
	s := recordCondition{fieldOwner: fieldOwner, action: "RegisterNode", condition: metav1.Condition{Type: ConditionNodeRegistered}}
	c := &s.condition
	switch state, name := r.provider.registrationOf(cluster); state {
	case nameTaken:
		c.Status, c.Reason = metav1.ConditionFalse, ReasonNameTaken
		c.Message = fmt.Sprintf("a Node %q exists that is not a virtual node; delete it, or give the cluster another name", name)
	case registered:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonRegistered, "the cluster has its virtual node"
	case registrationUnknown:
	}
	return s
}

// applyCondition applies the one condition; conditions are a map by type, and the others
// stay with their owners.
func (r *recordReconciler) applyCondition(ctx context.Context, record *clusterv1.ManagedCluster, owner string, condition metav1.Condition) error {
	apply := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": clusterv1.GroupVersion.String(),
		"kind":       "ManagedCluster",
		"metadata":   map[string]any{"name": record.Name, "uid": string(record.UID)},
		"status": map[string]any{"conditions": []any{map[string]any{
			"type":               condition.Type,
			"status":             string(condition.Status),
			"reason":             condition.Reason,
			"message":            condition.Message,
			"observedGeneration": condition.ObservedGeneration,
			"lastTransitionTime": metav1.Now().UTC().Format(time.RFC3339),
		}}},
	}}
	err := r.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(apply),
		client.FieldOwner(owner), client.ForceOwnership)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("condition of cluster %s cannot be written: %w", record.Name, err)
	}
	return nil
}
