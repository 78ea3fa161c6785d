// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ConditionViewProcessing is the one condition of a ManagedClusterView.
const ConditionViewProcessing = "Processing"

// The reasons of the condition.
const (
	ReasonResourceNameInvalid = "ResourceNameInvalid"
	ReasonResourceTypeInvalid = "ResourceTypeInvalid"
	ReasonResourceGVKInvalid  = "ResourceGVKInvalid"
	ReasonGetResourceFailed   = "GetResourceFailed"
	ReasonGetResource         = "GetResourceProcessing"
)

// ManagedClusterView shows one object of the cluster in whose namespace it is.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ManagedClusterView struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says which object.
	Spec ViewSpec `json:"spec,omitempty"`
	// Status is written by the hub.
	Status ViewStatus `json:"status,omitempty"`
}

// ManagedClusterViewList is a list of ManagedClusterViews.
//
// +kubebuilder:object:root=true
type ManagedClusterViewList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ManagedClusterView `json:"items"`
}

// ViewSpec says which object is looked at.
type ViewSpec struct {
	// Scope says which object.
	Scope ViewScope `json:"scope,omitempty"`
}

// ViewScope names one object.
type ViewScope struct {
	// Group, Version and Kind name its kind.
	Group   string `json:"apiGroup,omitempty"`
	Version string `json:"version,omitempty"`
	Kind    string `json:"kind,omitempty"`
	// Resource names its resource, as kubectl takes it; Kind goes before.
	Resource string `json:"resource,omitempty"`
	// Name of the object.
	Name string `json:"name,omitempty"`
	// Namespace of the object.
	Namespace string `json:"namespace,omitempty"`
	// UpdateIntervalSeconds is an upper bound, which live results always keep.
	UpdateIntervalSeconds int32 `json:"updateIntervalSeconds,omitempty"`
}

// ViewStatus is what the view shows.
type ViewStatus struct {
	// Conditions has Processing.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Result is the object. After a failure it is the last one.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Result runtime.RawExtension `json:"result,omitempty"`
}
