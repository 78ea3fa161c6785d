// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ConditionActionCompleted is the one condition of a ManagedClusterAction.
const ConditionActionCompleted = "Completed"

// The reasons of the condition.
const (
	ReasonActionDone           = "ActionDone"
	ReasonActionTypeInvalid    = "ActionTypeInvalid"
	ReasonCreateResourceFailed = "CreateResourceFailed"
	ReasonUpdateResourceFailed = "UpdateResourceFailed"
	ReasonDeleteResourceFailed = "DeleteResourceFailed"
)

// ManagedClusterAction changes one object of the cluster in whose namespace it is, once,
// and is deleted 60 seconds after that.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ManagedClusterAction struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what is done.
	Spec ActionSpec `json:"spec,omitempty"`
	// Status is written by the hub.
	Status ActionStatus `json:"status,omitempty"`
}

// ManagedClusterActionList is a list of ManagedClusterActions.
//
// +kubebuilder:object:root=true
type ManagedClusterActionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ManagedClusterAction `json:"items"`
}

// ActionSpec says what is done.
type ActionSpec struct {
	// ActionType is Create, Update or Delete; in any case.
	ActionType string `json:"actionType,omitempty"`
	// KubeWork says which object it is about.
	KubeWork *KubeWorkSpec `json:"kube,omitempty"`
}

// KubeWorkSpec says which object an action is about.
type KubeWorkSpec struct {
	// Resource, Name and Namespace say what Delete deletes; what is empty comes from the
	// template. Namespace takes the place of the template's.
	Resource  string `json:"resource,omitempty"`
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// ObjectTemplate is a whole object. Clients in Go write null where they have none.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	ObjectTemplate runtime.RawExtension `json:"template,omitempty"`
}

// ActionStatus is what came of the action.
type ActionStatus struct {
	// Conditions has Completed.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Result is the object as it is in the cluster.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	Result runtime.RawExtension `json:"result,omitempty"`
}
