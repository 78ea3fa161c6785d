// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Cluster is a managed cluster as the hub sees it at this moment. Its name and
// labels are those of the ManagedCluster.
//
// +kubebuilder:object:root=true
type Cluster struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is empty: nothing can be asked of a Cluster.
	// +optional
	Spec ClusterSpec `json:"spec,omitempty"`
	// Status is what the hub knows of the cluster's session.
	// +optional
	Status ClusterStatus `json:"status,omitempty"`
}

// ClusterSpec is empty.
type ClusterSpec struct{}

// ClusterStatus is the state of a cluster's session.
type ClusterStatus struct {
	// Connected says whether a session of the cluster is live.
	Connected bool `json:"connected"`
	// ConnectedSince is when the present session began.
	// +optional
	ConnectedSince *metav1.Time `json:"connectedSince,omitempty"`
	// DisconnectedSince is when the last session ended, as far as this process
	// has seen it.
	// +optional
	DisconnectedSince *metav1.Time `json:"disconnectedSince,omitempty"`
	// Reason says why the last session ended.
	// +optional
	Reason string `json:"reason,omitempty"`
	// RTT is the latest round trip through the session.
	// +optional
	RTT *metav1.Duration `json:"rtt,omitempty"`
	// AgentVersion is the version of the agent.
	// +optional
	AgentVersion string `json:"agentVersion,omitempty"`
	// KubernetesVersion is the version of the cluster's API server.
	// +optional
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// Protocol is the version of the wire protocol of the session.
	// +optional
	Protocol string `json:"protocol,omitempty"`
	// ProcessID names the agent process that the session leads to.
	// +optional
	ProcessID string `json:"processID,omitempty"`
	// KubeSystemUID is the UID of the cluster's namespace kube-system.
	// +optional
	KubeSystemUID types.UID `json:"kubeSystemUID,omitempty"`
}

// ClusterList is a list of Clusters.
//
// +kubebuilder:object:root=true
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Cluster `json:"items"`
}

// ClusterProxyOptions are the options of clusters/proxy.
//
// +kubebuilder:object:root=true
type ClusterProxyOptions struct {
	metav1.TypeMeta `json:",inline"`

	// Path is the path on the cluster's API server.
	// +optional
	Path string `json:"path,omitempty"`
}
