// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// JobBuilder builds the image of a bundle from releases, once: a Job in the operator's
// namespace reads the scripts, has workerd check them and writes the image. It is kept as
// long as its image may be needed, and its image with it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Bundle",type="string",JSONPath=".spec.workerBundleName"
// +kubebuilder:printcolumn:name="Built",type="string",JSONPath=`.status.conditions[?(@.type=="Built")].reason`
// +kubebuilder:printcolumn:name="Image",type="string",JSONPath=".status.image",priority=1
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type JobBuilder struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec cannot be changed.
	Spec JobBuilderSpec `json:"spec"`
	// Status is written by the operator.
	//
	// +optional
	Status JobBuilderStatus `json:"status,omitempty"`
}

// JobBuilderList is a list of JobBuilders.
//
// +kubebuilder:object:root=true
type JobBuilderList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []JobBuilder `json:"items"`
}

// JobBuilderSpec is what is built.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a build cannot be changed: create another one"
type JobBuilderSpec struct {
	// Account that it was made for: the image goes to, and is deleted from, its repository.
	//
	// +kubebuilder:validation:MaxLength=40
	// +optional
	Account string `json:"account,omitempty"`
	// ScriptNames are the scripts, in the order of their ports.
	//
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=54
	ScriptNames []string `json:"scriptNames"`
	// ScriptURLs say, in the same order, where the scripts are stored, for people. What is
	// read are the modules of the releases.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=1024
	// +optional
	ScriptURLs []string `json:"scriptUrls,omitempty"`
	// TargetImage is for people: the image goes to the repository of the account, whatever
	// it says.
	//
	// +kubebuilder:validation:MaxLength=512
	// +optional
	TargetImage string `json:"targetImage,omitempty"`
	// WorkerBundleName names the bundle that the image is for.
	//
	// +kubebuilder:validation:MaxLength=52
	WorkerBundleName string `json:"workerBundleName"`
	// Releases are those of the scripts, in the same order.
	//
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=253
	Releases []string `json:"releases"`
}

// JobBuilderStatus is what was built.
type JobBuilderStatus struct {
	// ObservedGeneration is the generation that the status is of.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Image that was built, by digest.
	//
	// +optional
	Image string `json:"image,omitempty"`
	// Attempts that failed for a reason that may go.
	//
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
	// LastAttempt is when the last one failed.
	//
	// +optional
	LastAttempt *metav1.Time `json:"lastAttempt,omitempty"`
	// Rejected are the scripts that cannot be built.
	//
	// +listType=map
	// +listMapKey=scriptName
	// +optional
	Rejected []Rejection `json:"rejected,omitempty"`
	// Conditions: Built.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Rejection is why a script cannot be built.
type Rejection struct {
	// ScriptName names the script.
	ScriptName string `json:"scriptName"`
	// Reason is Rejected, if workerd rejects it, or ScriptsMissing, if what its release was
	// made of is not in the object store any more. Default: Rejected.
	//
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is workerd's, or the store's.
	Message string `json:"message"`
}
