// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"errors"

	"github.com/spokelet/spokelet/internal/managedcluster"
)

// Annotations of a ManagedCluster.
const (
	// AnnotationKubeSystemUID is the UID of the kube-system namespace of the
	// spoke that joined.
	AnnotationKubeSystemUID = "spokelet.io/kube-system-uid"
)

// Finalizer keeps the record of a cluster until it has been taken apart.
const Finalizer = "spokelet.io/cluster"

// Labels of the namespace of a cluster.
const (
	// LabelNamespaceOwner is "spokelet-hub" on the namespaces that the hub made:
	// only those does it delete, with the cluster.
	LabelNamespaceOwner = "spokelet.io/created-by"
	namespaceOwner      = "spokelet-hub"
)

// Condition types and reasons. Those of HubAcceptedManagedCluster,
// ManagedClusterJoined and ManagedClusterConditionAvailable are OCM's own
// (open-cluster-management.io/ocm, pkg/registration/hub): its clients read them.
const (
	// ConditionIdentityConflict is True after an agent with the cluster's
	// certificate spoke for another cluster; a new join removes it.
	ConditionIdentityConflict = "spokelet.io/IdentityConflict"

	ReasonAccepted      = "HubClusterAdminAccepted"
	ReasonDenied        = "HubClusterAdminDenied"
	ReasonJoined        = "ManagedClusterJoined"
	ReasonAvailable     = "ManagedClusterAvailable"
	ReasonDisconnected  = "ManagedClusterLeaseUpdateStopped"
	ReasonInvalidName   = managedcluster.ReasonInvalidName
	ReasonInvalidID     = "InvalidClusterID"
	ReasonUIDMismatch   = "KubeSystemUIDMismatch"
	ReasonDetaching     = "Detaching"
	messageAccepted     = "Accepted by hub cluster admin"
	messageDenied       = "Denied by hub cluster admin"
	messageJoined       = "Managed cluster joined"
	messageAvailable    = "Managed cluster is available"
	messageDisconnected = "Managed cluster is disconnected: its agent has no tunnel to the hub"
	messageDeleting     = "Namespace of the managed cluster is being deleted"
	messageDetaching    = "Nothing new is made for the managed cluster"
	// More people read events and conditions than should know a pinned UID: who
	// states it passes for the spoke.
	messageConflict = "An agent of another cluster presented this cluster's identity: if the certificate was copied, " +
		"detach and join again (the hub's log names the kube-system UIDs)"
	messageInvalidRecord = "Managed cluster is ignored: %v"
)

var (
	// ErrUnknown means that there is no record of a cluster, or none of ours.
	ErrUnknown = errors.New("cluster is unknown to the hub")
	// ErrNotAccepted means that hubAcceptsClient is false.
	ErrNotAccepted = errors.New("cluster is not accepted by the hub")
	// ErrStranger means that a certificate names another cluster id than the
	// record: the cluster was deleted and created again.
	ErrStranger = errors.New("certificate is of a cluster that was detached: join again")
	// ErrOtherSpoke means that the kube-system UID is not the pinned one.
	ErrOtherSpoke = errors.New("agent runs in another cluster than the one that joined")
	// ErrNotReady means that the hub cannot know yet.
	ErrNotReady = errors.New("hub has not read its records yet")
	// ErrDetached is why the sessions of a deleted record end.
	ErrDetached = errors.New("cluster was detached from the hub")
)
