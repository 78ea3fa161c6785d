// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

// WorkerDeployment is a script of the account that its namespace belongs to, as it is to be
// served. A change of its code, secrets, environment or compatibility date makes a
// WorkerRelease.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:selectablefield:JSONPath=".spec.template.scriptName"
// +kubebuilder:printcolumn:name="Script",type="string",JSONPath=".spec.template.scriptName"
// +kubebuilder:printcolumn:name="Release",type="string",JSONPath=".status.release"
// +kubebuilder:printcolumn:name="Accepted",type="string",JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Built",type="string",JSONPath=`.status.conditions[?(@.type=="Built")].reason`
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type WorkerDeployment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec WorkerDeploymentSpec `json:"spec"`
	// Status is written by the operator.
	//
	// +optional
	Status WorkerDeploymentStatus `json:"status,omitempty"`
}

// WorkerDeploymentList is a list of WorkerDeployments.
//
// +kubebuilder:object:root=true
type WorkerDeploymentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []WorkerDeployment `json:"items"`
}

// WorkerDeploymentSpec is what is to be served.
type WorkerDeploymentSpec struct {
	// Template of the releases.
	Template release.Script `json:"template"`
	// ReleaseHistoryLimit is how many releases are kept, the current one included. Default
	// 10.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=10
	// +optional
	ReleaseHistoryLimit int32 `json:"releaseHistoryLimit,omitempty"`
}

// WorkerDeploymentStatus is what is served.
type WorkerDeploymentStatus struct {
	// ObservedGeneration is the generation that the status is of.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Release is the current one: what the spec asks for.
	//
	// +optional
	Release string `json:"release,omitempty"`
	// Revision of the current release.
	//
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// Served is the release that is in the bundle; another one than Release while that is
	// built, or if it was rejected.
	//
	// +optional
	Served string `json:"served,omitempty"`
	// Conditions: Accepted, Built and Ready.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
