// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/hub/values"
	"github.com/spokelet/spokelet/internal/workconvert"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// maxRendered bounds the manifests of a work, in bytes, once references are replaced: it
// is the most that admission.manifestLimit can be.
const maxRendered = 1 << 20

// errReferences is of a work whose references cannot be replaced.
var errReferences = errors.New("values of the cluster")

// refersToCluster tells whether the manifests of a work refer to its cluster. One that is
// going is sent without manifests.
func refersToCluster(obj client.Object) bool {
	return obj.GetAnnotations()[wire.AnnotationSubstitute] == "true" && obj.GetDeletionTimestamp() == nil
}

// encodeWithValues makes what is published of a work that refers to its cluster, and returns the
// references that this depends on. It fails with errReferences when one has no value.
func (k *kind) encodeWithValues(it workconvert.Work, cluster values.Cluster) (resource.Resource, values.References, error) {
	body := it.Wire()
	// The cache's own list and manifests stay as they are.
	manifests := slices.Clone(body.Spec.Workload.Manifests)
	expander := values.NewExpander(cluster, maxRendered)
	for i := range manifests {
		raw, err := expander.ExpandManifest(manifests[i].Raw)
		if errors.Is(err, values.ErrTooLarge) {
			return resource.Resource{}, expander.References(), fmt.Errorf("%w: %w: the limit is %d bytes", errReferences, err, maxRendered)
		}
		if err != nil {
			return resource.Resource{}, expander.References(), fmt.Errorf("%w: manifest %d: %w", errReferences, i, err)
		}
		manifests[i] = workv1.Manifest{}
		manifests[i].Raw = raw
	}
	body.Spec.Workload.Manifests = manifests
	r, err := k.encodeBody(it, body)
	return r, expander.References(), err
}

// manifestsSize is that of the manifests as they are stored, in bytes.
func manifestsSize(work wire.Work) (size int) {
	for _, manifest := range work.Spec.Workload.Manifests {
		size += len(manifest.Raw)
	}
	return size
}

// render makes what is sent of a work that refers to its cluster.
func (w *Works) render(ctx context.Context, k *kind, it workconvert.Work) (resource.Resource, error) {
	cluster, err := w.clusterValues(ctx, it.Object().GetNamespace())
	if err != nil {
		return resource.Resource{}, err
	}
	r, _, err := k.encodeWithValues(it, cluster)
	return r, err
}

// clusterValues returns what works may refer to, as the cache has it.
func (w *Works) clusterValues(ctx context.Context, cluster string) (values.Cluster, error) {
	record, err := w.getCluster(ctx, cluster)
	if err != nil {
		return values.Cluster{}, err
	}
	if record == nil {
		return values.Cluster{Name: cluster}, nil
	}
	return values.FromManagedCluster(record), nil
}

// publishRendered puts a work that refers to its cluster into Sync. One whose references
// cannot be replaced is reported as failed, and the version before it stays in force.
func (w *Works) publishRendered(ctx context.Context, k *kind, it workconvert.Work) error {
	obj := it.Object()
	key := k.keyOf(obj)
	cluster, err := w.clusterValues(ctx, obj.GetNamespace())
	if err != nil {
		return err
	}
	for {
		r, used, err := k.encodeWithValues(it, cluster)
		if err != nil && !errors.Is(err, errReferences) {
			return err
		}
		next := rendering{uid: obj.GetUID(), generation: obj.GetGeneration(), references: used, size: manifestsSize(it.Wire())}
		if err != nil {
			refusal := k.FailedCondition(obj, err)
			next.refusal = &refusal
		}
		if w.renderings.set(key, next) {
			w.queue.Add(key)
		}
		if err := w.putRendered(k, it, r, next.refusal != nil); err != nil {
			return err
		}
		// Who followed a change of the cluster before it was known what this work uses has
		// passed it over.
		if cluster, err = w.clusterValues(ctx, obj.GetNamespace()); err != nil || cluster.Matches(used) {
			return err
		}
	}
}

// putRendered publishes a work, or with refused that there is one.
func (w *Works) putRendered(k *kind, it workconvert.Work, r resource.Resource, refused bool) error {
	obj := it.Object()
	if !refused {
		return w.putResource(k, obj, r)
	}
	// What Sync does not know of when it is complete is withdrawn from the spoke. With a
	// reference there it stays as an earlier process of the hub sent it: load has no body
	// for it, so that nothing is sent.
	if _, published := w.source(obj.GetNamespace()).Ref(k.keyOf(obj).String()); published {
		return nil
	}
	r, err := k.encode(it)
	if err != nil {
		return err
	}
	return w.putResource(k, obj, r)
}

// isReferenceRefusal tells whether a condition says that references cannot be replaced.
func (k *kind) isReferenceRefusal(c *metav1.Condition) bool {
	return c != nil && c.Reason == k.FailedReason && strings.HasPrefix(c.Message, k.FailedMessage+": "+errReferences.Error()+": ")
}

// valuesReconciler publishes the works of a cluster anew that use a value of it that has changed.
type valuesReconciler struct{ works *Works }

func (f valuesReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("work-values").
		For(&clusterv1.ManagedCluster{}, builder.WithPredicates(valuesChanged())).
		WithOptions(controller.Options{MaxConcurrentReconciles: reconcilers}).
		Complete(f)
}

// valuesChanged passes clusters whose labels or claims are others. The works of one that
// is new are published as such.
func valuesChanged() predicate.Predicate {
	never := predicate.NewPredicateFuncs(func(client.Object) bool { return false })
	return predicate.Funcs{
		CreateFunc: never.Create, DeleteFunc: never.Delete, GenericFunc: never.Generic,
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*clusterv1.ManagedCluster)
			after, is := e.ObjectNew.(*clusterv1.ManagedCluster)
			return ok && is && (!maps.Equal(before.Labels, after.Labels) || !slices.Equal(before.Status.ClusterClaims, after.Status.ClusterClaims))
		},
	}
}

// Reconcile publishes those works of one cluster. Changes without end are followed at a
// steady rate: who writes the status of a cluster may be another than who pays for works.
func (f valuesReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	w := f.works
	cluster, err := w.clusterValues(ctx, req.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	stale, size := w.renderings.listStale(cluster)
	if len(stale) == 0 {
		return ctrl.Result{}, nil
	}
	if wait := w.renderPacer.Delay(req.Name); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	w.renderPacer.Spend(req.Name, size)
	for _, key := range stale {
		k, ok := w.kind(key)
		if !ok {
			continue
		}
		if err := w.publish(ctx, k, types.NamespacedName{Namespace: key.Namespace, Name: key.Name}); err != nil {
			return requeueOnConflict(err)
		}
	}
	return ctrl.Result{}, nil
}
