// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
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
)

const (
	// ConditionNodeRegistered is the condition of a ManagedCluster that says
	// whether it has its virtual node.
	ConditionNodeRegistered = "SpokeletNodeRegistered"

	// ReasonRegistered: the Node is there.
	ReasonRegistered = "Registered"

	// ReasonNameTaken: a Node of the cluster's name belongs to somebody else.
	ReasonNameTaken = "NodeNameTaken"

	annotationManaged   = "spokelet.io/managed"
	annotationClusterID = "spokelet.io/cluster-id"
	fieldOwner          = "spokelet-provider"
)

// clusters reconciles ManagedClusters with the virtual nodes.
type clusters struct {
	provider *Provider
	client   client.Client
	events   events.EventRecorder
}

// SetupWithManager has p follow the ManagedClusters of mgr, and run with it.
func (p *Provider) SetupWithManager(mgr ctrl.Manager) error {
	if err := mgr.Add(p); err != nil {
		return fmt.Errorf("provider cannot be added to the manager: %w", err)
	}
	r := &clusters{provider: p, client: mgr.GetClient(), events: mgr.GetEventRecorder("spokelet-provider")}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("virtual-node").
		For(&clusterv1.ManagedCluster{}).
		WatchesRawSource(source.Func(p.bind)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("virtual node controller cannot be set up: %w", err)
	}
	return nil
}

// bind gives the provider the controller's queue, and queues every virtual node
// that is there: one whose cluster is gone has no other event.
func (p *Provider) bind(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	again := func(cluster string) {
		queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: cluster}})
	}
	p.mu.Lock()
	p.requeue = again
	p.mu.Unlock()
	for _, node := range p.existing() {
		cluster, _ := wire.ParseNodeName(node.Name)
		again(cluster)
	}
	return nil
}

// reconsider has a cluster's record looked at again.
func (p *Provider) reconsider(cluster string) {
	p.mu.Lock()
	again := p.requeue
	p.mu.Unlock()
	if again != nil {
		again(cluster)
	}
}

// Reconcile gives an accepted cluster its node and any other none.
func (r *clusters) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var record clusterv1.ManagedCluster
	if _, group := wire.ParseNodeName(request.Name); group != "" {
		return reconcile.Result{}, nil // no cluster has such a name, and a group's node may
	}
	err := r.client.Get(ctx, request.NamespacedName, &record)
	if err != nil && !apierrors.IsNotFound(err) {
		return reconcile.Result{}, fmt.Errorf("cluster %s cannot be read: %w", request.Name, err)
	}
	if err != nil || !accepted(&record) {
		return reconcile.Result{}, r.provider.Remove(ctx, request.Name)
	}
	err = r.provider.Ensure(ctx, Cluster{
		Name: record.Name, ID: record.Annotations[annotationClusterID], Labels: record.Labels,
	})
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, r.report(ctx, &record)
}

// accepted reports whether the cluster is ours and has a node. One without an id
// has not been registered yet.
func accepted(c *clusterv1.ManagedCluster) bool {
	return c.Spec.HubAcceptsClient && c.DeletionTimestamp.IsZero() &&
		c.Annotations[annotationManaged] == "true" && c.Annotations[annotationClusterID] != ""
}

// report says on the record that the node's name is taken, and takes it back
// when it is free. A cluster that never had the trouble has no condition.
func (r *clusters) report(ctx context.Context, record *clusterv1.ManagedCluster) error {
	have := meta.FindStatusCondition(record.Status.Conditions, ConditionNodeRegistered)
	want := metav1.Condition{Type: ConditionNodeRegistered, ObservedGeneration: record.Generation}
	state, name := r.provider.registrationOf(record.Name)
	switch state {
	case nameTaken:
		want.Status, want.Reason = metav1.ConditionFalse, ReasonNameTaken
		want.Message = fmt.Sprintf("a Node %q exists that is not a virtual node; delete it, or give the cluster another name", name)
	case registered:
		if have == nil {
			return nil
		}
		want.Status, want.Reason, want.Message = metav1.ConditionTrue, ReasonRegistered, "the cluster has its virtual node"
	case unsettled:
		return nil
	}
	if have != nil && have.Status == want.Status && have.Reason == want.Reason && have.Message == want.Message {
		return nil
	}
	if err := r.write(ctx, record, want); err != nil {
		return err
	}
	kind := corev1.EventTypeNormal
	if want.Status == metav1.ConditionFalse {
		kind = corev1.EventTypeWarning
	}
	r.events.Eventf(record, nil, kind, want.Reason, "RegisterNode", "%s", want.Message)
	return nil
}

// write applies the one condition; conditions are a map by type, and the others
// stay with their owners.
func (r *clusters) write(ctx context.Context, record *clusterv1.ManagedCluster, condition metav1.Condition) error {
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
		client.FieldOwner(fieldOwner), client.ForceOwnership)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("condition of cluster %s cannot be written: %w", record.Name, err)
	}
	return nil
}
