// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// WorkerBundle is all scripts of an account in one image, as they run in the clusters. The
// operator makes it of a WorkerAccount and changes it when a build ends.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Image",type="string",JSONPath=".spec.podTemplate.image"
// +kubebuilder:printcolumn:name="Workers",type="integer",JSONPath=".status.workers"
// +kubebuilder:printcolumn:name="Ready",type="integer",JSONPath=".status.readyClusters"
// +kubebuilder:printcolumn:name="Clusters",type="integer",JSONPath=".status.selectedClusters"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type WorkerBundle struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec WorkerBundleSpec `json:"spec"`
	// Status is written by the operator.
	//
	// +optional
	Status WorkerBundleStatus `json:"status,omitempty"`
}

// WorkerBundleList is a list of WorkerBundles.
//
// +kubebuilder:object:root=true
type WorkerBundleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []WorkerBundle `json:"items"`
}

// WorkerBundleSpec is what runs.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.account) || has(self.account) && self.account == oldSelf.account",message="the account of a bundle cannot be changed"
type WorkerBundleSpec struct {
	// Account that it was made for: the works and the images are that account's.
	//
	// +kubebuilder:validation:MaxLength=40
	// +optional
	Account string `json:"account,omitempty"`
	// DeploymentName is that of the Deployment in the clusters.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=52
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	DeploymentName string `json:"deploymentName"`
	// Workers are in the order of their ports.
	//
	// +listType=map
	// +listMapKey=workerName
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Workers []Worker `json:"workers,omitempty"`
	// PodTemplate is what is common to the workers.
	//
	// +optional
	PodTemplate PodTemplate `json:"podTemplate,omitempty"`
}

// Worker is one script in the image.
type Worker struct {
	// WorkerName is the name of the script.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=54
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$`
	WorkerName string `json:"workerName"`
	// WorkerNumber is the port that workerd serves it on.
	//
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	WorkerNumber int32 `json:"workerNumber"`
	// EnvPrefix is put before the keys of the Secret. Default: the name in upper case and
	// "_".
	//
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Z0-9_]*$`
	// +optional
	EnvPrefix string `json:"envPrefix,omitempty"`
	// SecretRef names the Secret of the namespace that holds the secrets of the script.
	//
	// +kubebuilder:validation:MaxLength=253
	// +optional
	SecretRef string `json:"secretRef,omitempty"`
	// Release that is in the image.
	//
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Release string `json:"release,omitempty"`
}

// PodTemplate is what the pods have in common.
type PodTemplate struct {
	// Image by digest; empty until one is built.
	//
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Image string `json:"image,omitempty"`
	// ImagePullSecret names a Secret of the namespace, of type
	// kubernetes.io/dockerconfigjson, that the clusters read the image with. Default: the
	// operator's.
	//
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ImagePullSecret string `json:"imagePullSecret,omitempty"`
}

// WorkerBundleStatus is how it runs.
type WorkerBundleStatus struct {
	// ObservedGeneration is the generation that the status is of.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Workers is how many scripts there are.
	//
	// +optional
	Workers int32 `json:"workers"`
	// ReadyClusters is how many of the clusters serve the bundle as it is now.
	//
	// +optional
	ReadyClusters int32 `json:"readyClusters"`
	// SelectedClusters is how many clusters the account is placed on.
	//
	// +optional
	SelectedClusters int32 `json:"selectedClusters"`
	// Clusters that the account is placed on, and those that it is being removed from.
	//
	// +listType=map
	// +listMapKey=name
	// +optional
	Clusters []ClusterStatus `json:"clusters,omitempty"`
	// Conditions: Ready.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterStatus is how a bundle runs in one cluster.
type ClusterStatus struct {
	// Name of the cluster.
	Name string `json:"name"`
	// Ready: it serves the image of the spec, with the secrets of the spec.
	Ready bool `json:"ready"`
	// Image whose pods are available there.
	//
	// +optional
	Image string `json:"image,omitempty"`
	// AvailableReplicas of the Deployment.
	//
	// +optional
	AvailableReplicas int64 `json:"availableReplicas,omitempty"`
	// Message says why it is not ready.
	//
	// +optional
	Message string `json:"message,omitempty"`
}
