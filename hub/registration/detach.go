// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/spokelet/spokelet/hub/registration/token"
)

// detach takes a deleted record apart: sessions, works, node, join token,
// namespace, and at last the finalizer. Each step is safe to repeat; the record
// stays until all are done.
func (r *Reconciler) detach(ctx context.Context, record *clusterv1.ManagedCluster) error {
	r.config.Disconnect(record.Name, ErrDetached)
	if !controllerutil.ContainsFinalizer(record, Finalizer) {
		return nil
	}
	if err := r.releaseWorks(ctx, record); err != nil {
		return fmt.Errorf("works: %w", err)
	}
	if err := r.config.Nodes.Remove(ctx, record.Name); err != nil {
		return fmt.Errorf("virtual node: %w", err)
	}
	if err := r.deleteToken(ctx, record.Name); err != nil {
		return fmt.Errorf("join token: %w", err)
	}
	gone, err := r.deleteNamespace(ctx, record.Name)
	if err != nil {
		return fmt.Errorf("namespace: %w", err)
	}
	if !gone {
		// The namespace's own deletion event comes back here.
		return r.reportDeleting(ctx, record)
	}
	r.store.remove(record.Name)
	err = r.patch(ctx, record, func() { controllerutil.RemoveFinalizer(record, Finalizer) })
	return client.IgnoreNotFound(err)
}

func (r *Reconciler) releaseWorks(ctx context.Context, record *clusterv1.ManagedCluster) error {
	left, err := r.config.Works.Release(ctx, record.Name)
	if len(left) > 0 {
		r.config.Events.Eventf(record, nil, corev1.EventTypeWarning, "WorksOrphaned", "Detach", "%s", orphanedMessage(left))
	}
	return err
}

// maxListed works are named in an event, whose note may have 1024 bytes.
const maxListed = 10

func orphanedMessage(left []string) string {
	left = slices.Sorted(slices.Values(left))
	total, more := len(left), ""
	if total > maxListed {
		more = fmt.Sprintf(" and %d more", total-maxListed)
		left = left[:maxListed]
	}
	return fmt.Sprintf("%.900s", fmt.Sprintf("%d works were left applied in the cluster%s: %s", total, more, strings.Join(left, ", ")))
}

// deleteToken keeps a token from outliving the record that it was made for.
func (r *Reconciler) deleteToken(ctx context.Context, cluster string) error {
	return client.IgnoreNotFound(r.config.Client.Delete(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.config.HubNamespace, Name: token.SecretName(cluster)},
	}))
}

// deleteNamespace deletes the namespace if the hub made it, and reports whether
// there is nothing left to wait for.
func (r *Reconciler) deleteNamespace(ctx context.Context, name string) (gone bool, err error) {
	namespace := newNamespaceMetadata()
	err = r.config.Client.Get(ctx, client.ObjectKey{Name: name}, namespace)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if namespace.Labels[LabelNamespaceOwner] != namespaceOwner {
		return true, nil
	}
	if !namespace.DeletionTimestamp.IsZero() {
		return false, nil
	}
	// The precondition keeps a namespace that was made anew in the meantime.
	err = r.config.Client.Delete(ctx, namespace, client.Preconditions{UID: &namespace.UID})
	return false, client.IgnoreNotFound(err)
}

func (r *Reconciler) reportDeleting(ctx context.Context, record *clusterv1.ManagedCluster) error {
	return r.patchStatus(ctx, record, func() {
		meta.SetStatusCondition(&record.Status.Conditions, metav1.Condition{
			Type:    clusterv1.ManagedClusterConditionDeleting,
			Status:  metav1.ConditionFalse,
			Reason:  clusterv1.ConditionDeletingReasonResourceRemaining,
			Message: messageDeleting,
		})
	})
}
