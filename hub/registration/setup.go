// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/spokelet/spokelet/hub/registration/token"
)

// concurrency of the reconciler: its steps are few, small calls, and a slow one
// must not hold up the others.
const concurrency = 4

// SetupWithManager makes the manager's cache announce records and namespaces.
// From then on, once the cache has synced, the Gate can admit sessions.
func (r *Registration) SetupWithManager(mgr ctrl.Manager) error {
	// Without blocking: the cache is started after this.
	informer, err := mgr.GetCache().GetInformer(context.Background(), &clusterv1.ManagedCluster{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("informer of managed clusters: %w", err)
	}
	handle, err := informer.AddEventHandler(r.gate.eventHandler())
	if err != nil {
		return fmt.Errorf("informer of managed clusters: %w", err)
	}
	// The handler's own HasSynced, not the informer's: every record that was
	// there at the start has then passed through it.
	synced := handle.HasSynced
	r.gate.synced.Store(&synced)
	if err := r.watchTokens(mgr.GetCache()); err != nil {
		return err
	}

	err = ctrl.NewControllerManagedBy(mgr).
		Named("registration").
		For(&clusterv1.ManagedCluster{}).
		WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.namespaceToRecord), builder.WithPredicates(deletionPredicate())).
		WatchesRawSource(source.Func(r.reconciler.start)).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(r.reconciler)
	if err != nil {
		return fmt.Errorf("registration controller: %w", err)
	}
	return nil
}

// TokensInCache limits what the manager's cache holds of Secrets: the records of join
// tokens, and none but these. The hub's other Secrets are none of its business.
func TokensInCache(hubNamespace string) cache.ByObject {
	return cache.ByObject{Namespaces: map[string]cache.Config{
		hubNamespace: {FieldSelector: fields.OneTermEqualSelector("type", token.SecretType)},
	}}
}

// watchTokens has it known who holds a token before any record of one is read.
func (r *Registration) watchTokens(c cache.Cache) error {
	informer, err := c.GetInformer(context.Background(), &corev1.Secret{}, cache.BlockUntilSynced(false))
	if err == nil {
		_, err = informer.AddEventHandler(r.enroller.limiter.tokenLimiter.eventHandler())
	}
	if err != nil {
		return fmt.Errorf("informer of join tokens: %w", err)
	}
	return nil
}

// namespaceToRecord maps a namespace to the record of its name, if there is one.
func (r *Registration) namespaceToRecord(ctx context.Context, namespace client.Object) []reconcile.Request {
	record := &clusterv1.ManagedCluster{}
	if err := r.gate.config.Client.Get(ctx, client.ObjectKey{Name: namespace.GetName()}, record); err != nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: record.Name}}}
}

// deletionPredicate: what else happens to a namespace is not registration's concern.
func deletionPredicate() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}
