// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bundle "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
)

// WorkerAccount links the releases of an account with its bundle, and says where that runs.
// The account is that of the namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Account",type="string",JSONPath=".status.account"
// +kubebuilder:printcolumn:name="Bundle",type="string",JSONPath=".spec.workerBundleName"
// +kubebuilder:printcolumn:name="Accepted",type="string",JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Built",type="string",JSONPath=`.status.conditions[?(@.type=="Built")].reason`
// +kubebuilder:printcolumn:name="Host",type="string",JSONPath=".status.host"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type WorkerAccount struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec WorkerAccountSpec `json:"spec"`
	// Status is written by the operator.
	//
	// +optional
	Status WorkerAccountStatus `json:"status,omitempty"`
}

// WorkerAccountList is a list of WorkerAccounts.
//
// +kubebuilder:object:root=true
type WorkerAccountList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []WorkerAccount `json:"items"`
}

// WorkerAccountSpec says what runs where.
type WorkerAccountSpec struct {
	// WorkerBundleName names the WorkerBundle, and the Deployment in the clusters.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=52
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="workerBundleName cannot be changed: delete the WorkerAccount and create another one"
	WorkerBundleName string `json:"workerBundleName"`
	// WorkerReleaseSelector selects releases of the namespace by their labels, which are
	// those of their WorkerDeployment. Empty selects all.
	//
	// +optional
	WorkerReleaseSelector metav1.LabelSelector `json:"workerReleaseSelector,omitempty"`
	// PodTemplate is that of the bundle; its image is ignored.
	//
	// +optional
	PodTemplate bundle.PodTemplate `json:"podTemplate,omitempty"`
	// ClusterSelector chooses among the clusters that are offered to the namespace, by
	// their labels. Empty chooses all of them.
	//
	// +optional
	ClusterSelector metav1.LabelSelector `json:"clusterSelector,omitempty"`
	// Host under which the scripts are reached, each by the path of its name: one of those
	// that the annotation workers.spokelet.io/hosts of the namespace gives the account.
	// Default: the account's own name, which is its id and the operator's suffix.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +optional
	Host string `json:"host,omitempty"`
}

// WorkerAccountStatus is what was made of it.
type WorkerAccountStatus struct {
	// ObservedGeneration is the generation that the status is of.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Account is the id of the account.
	//
	// +optional
	Account string `json:"account,omitempty"`
	// Host under which the scripts are reached: no other account has it. Empty: there is
	// none, and the condition Routed says why, or the operator makes no routes.
	//
	// +optional
	Host string `json:"host,omitempty"`
	// Conditions: Accepted, Built, and, where the operator makes routes, Routed.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
