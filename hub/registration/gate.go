// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/internal/managedcluster"
	"github.com/spokelet/spokelet/tunnel/identity"
)

// Gate admits sessions. It is the tunnel's Admission.
type Gate struct {
	config   Config
	store    *observedStore
	counters *counters
	enqueue  func(cluster string)
	waiters  *waiters
	// synced is nil until SetupWithManager: nobody is admitted before.
	synced atomic.Pointer[func() bool]
}

// Admit returns nil when the bearer of the cluster's certificate may connect,
// which is not yet a session: its agent has sent nothing so far. Errors wrap one
// of this package's sentinels; an error of any kind means no.
func (g *Gate) Admit(ctx context.Context, cluster identity.Cluster) error {
	_, err := g.getAdmittedRecord(ctx, g.config.Client, cluster)
	return g.countRefusal(cluster, err)
}

// AdmitSpoke returns nil when the cluster's agent, which states the UID of its
// kube-system namespace, may have a session. The first UID is pinned and every
// other refused, and so is what is no UID, or none. Errors are as with Admit.
func (g *Gate) AdmitSpoke(ctx context.Context, cluster identity.Cluster, kubeSystemUID string) error {
	record, err := g.getAdmittedRecord(ctx, g.config.Client, cluster)
	if err == nil {
		err = g.pinUID(ctx, record, kubeSystemUID)
	}
	return g.countRefusal(cluster, err)
}

// countRefusal counts a refusal by its reason.
func (g *Gate) countRefusal(cluster identity.Cluster, err error) error {
	if err == nil {
		return nil
	}
	g.counters.admission.WithLabelValues(refusalReason(err)).Inc()
	return fmt.Errorf("cluster %q: %w", cluster.Name, err)
}

// getAdmittedRecord returns the record of a cluster that may have a session.
func (g *Gate) getAdmittedRecord(ctx context.Context, reader client.Reader, cluster identity.Cluster) (*clusterv1.ManagedCluster, error) {
	record, err := g.getRecord(ctx, reader, cluster.Name)
	if err != nil {
		return nil, err
	}
	if cluster.HubID != g.config.Authority.HubID() || cluster.ID != record.Annotations[managedcluster.AnnotationClusterID] {
		return nil, ErrStranger
	}
	if !record.Spec.HubAcceptsClient {
		return nil, ErrNotAccepted
	}
	return record, nil
}

// getRecord returns the record of one of our clusters that is there to stay.
func (g *Gate) getRecord(ctx context.Context, reader client.Reader, cluster string) (*clusterv1.ManagedCluster, error) {
	if synced := g.synced.Load(); synced == nil || !(*synced)() {
		return nil, ErrNotReady
	}
	record := &clusterv1.ManagedCluster{}
	err := reader.Get(ctx, client.ObjectKey{Name: cluster}, record)
	if apierrors.IsNotFound(err) {
		return nil, ErrUnknown
	}
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	// A record without an id was not reconciled yet.
	if !managedcluster.IsManaged(record) || !record.DeletionTimestamp.IsZero() || record.Annotations[managedcluster.AnnotationClusterID] == "" {
		return nil, ErrUnknown
	}
	return record, nil
}

// pinUID fixes the kube-system UID of a record that has none, and compares it with
// the one that is there. Of two rivals the resourceVersion lets one win.
func (g *Gate) pinUID(ctx context.Context, record *clusterv1.ManagedCluster, uid string) error {
	if err := validateUID(uid); err != nil {
		return err
	}
	if record.Annotations[AnnotationKubeSystemUID] == "" {
		var err error
		if record, err = g.pinFirstUID(ctx, record, uid); err != nil {
			return err
		}
	}
	if record.Annotations[AnnotationKubeSystemUID] == uid {
		return nil
	}
	g.reportConflict(record, uid)
	return ErrOtherSpoke
}

func (g *Gate) pinFirstUID(ctx context.Context, seen *clusterv1.ManagedCluster, uid string) (*clusterv1.ManagedCluster, error) {
	var record *clusterv1.ManagedCluster
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		record = &clusterv1.ManagedCluster{}
		if err := g.config.Live.Get(ctx, client.ObjectKeyFromObject(seen), record); err != nil {
			return err
		}
		if record.UID != seen.UID || record.Annotations[managedcluster.AnnotationClusterID] != seen.Annotations[managedcluster.AnnotationClusterID] {
			return ErrStranger
		}
		if record.Annotations[AnnotationKubeSystemUID] != "" {
			return nil
		}
		patch := client.MergeFromWithOptions(record.DeepCopy(), client.MergeFromWithOptimisticLock{})
		record.Annotations[AnnotationKubeSystemUID] = uid
		return g.config.Client.Patch(ctx, record, patch)
	})
	if err != nil {
		return nil, fmt.Errorf("kube-system UID cannot be pinned: %w", err)
	}
	return record, nil
}

func (g *Gate) reportConflict(record *clusterv1.ManagedCluster, uid string) {
	g.config.Logger.Info("agent refused: it runs in another cluster than the one that joined",
		"cluster", record.Name, "pinned", record.Annotations[AnnotationKubeSystemUID], "presented", uid)
	g.config.Events.Eventf(record, nil, corev1.EventTypeWarning, ReasonUIDMismatch, "Refuse", "%s", messageConflict)
	g.store.update(record.Name, func(o *observed) { o.hasConflict, o.isResolved = true, false })
	g.enqueue(record.Name)
}

// maxUID bounds what is written into annotations and messages; a Kubernetes UID
// has 36 bytes.
const maxUID = 64

func validateUID(uid string) error {
	if uid == "" || len(uid) > maxUID {
		return fmt.Errorf("%w: kube-system UID of %d bytes", errRequest, len(uid))
	}
	for _, c := range []byte(uid) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' {
			return fmt.Errorf("%w: kube-system UID with a character that is no letter, digit or hyphen", errRequest)
		}
	}
	return nil
}

// eventHandler cuts sessions the moment a record takes their right away, without
// waiting for a turn in the reconciler's queue, and wakes who waits for a record.
func (g *Gate) eventHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if record, ok := obj.(*clusterv1.ManagedCluster); ok {
				g.handleChange(nil, record)
			}
		},
		UpdateFunc: func(old, obj any) {
			before, _ := old.(*clusterv1.ManagedCluster)
			if record, ok := obj.(*clusterv1.ManagedCluster); ok {
				g.handleChange(before, record)
			}
		},
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			if record, ok := obj.(*clusterv1.ManagedCluster); ok {
				g.disconnect(record.Name, ErrDetached)
			}
		},
	}
}

func (g *Gate) handleChange(before, record *clusterv1.ManagedCluster) {
	// The informer may fold a deletion and a creation into one update.
	replaced := before != nil && (before.UID != record.UID ||
		before.Annotations[managedcluster.AnnotationClusterID] != record.Annotations[managedcluster.AnnotationClusterID])
	if reason := revocationReason(record); reason != nil {
		g.disconnect(record.Name, reason)
		return
	}
	if replaced {
		g.disconnect(record.Name, ErrStranger)
		return
	}
	g.waiters.wake(record.Name)
}

// revocationReason returns why a record gives no right to a session.
func revocationReason(record *clusterv1.ManagedCluster) error {
	switch {
	case !record.DeletionTimestamp.IsZero():
		return ErrDetached
	case !managedcluster.IsManaged(record):
		return ErrUnknown
	case !record.Spec.HubAcceptsClient:
		return ErrNotAccepted
	default:
		return nil
	}
}

func (g *Gate) disconnect(cluster string, reason error) {
	g.config.Disconnect(cluster, reason)
	g.waiters.wake(cluster)
}
