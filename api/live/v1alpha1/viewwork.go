// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ViewWork asks for objects of one or many clusters as they are now, under the
// identity of whoever creates it. Creating it returns the answer in its
// status; nothing is stored. The namespace is the cluster's, unless
// clusterSelector is set.
//
// +kubebuilder:object:root=true
type ViewWork struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the question.
	Spec ViewWorkSpec `json:"spec"`
	// Status is the answer.
	// +optional
	Status ViewWorkStatus `json:"status,omitempty"`
}

// ViewWorkSpec says what to look at, where, and in which form.
type ViewWorkSpec struct {
	// Scope selects the objects.
	Scope ViewWorkScope `json:"scope"`
	// Output is the form of the answer: Objects, Metadata or Table. Default
	// Objects.
	// +optional
	Output ViewWorkOutput `json:"output,omitempty"`
	// ClusterSelector selects ManagedClusters by label and sends the question
	// to all of them. The right to create viewworks is needed in the namespace
	// of each; the others are not asked.
	// +optional
	ClusterSelector *metav1.LabelSelector `json:"clusterSelector,omitempty"`
}

// ViewWorkOutput is the form of an answer.
type ViewWorkOutput string

const (
	// OutputObjects returns whole objects.
	OutputObjects ViewWorkOutput = "Objects"
	// OutputMetadata returns PartialObjectMetadata.
	OutputMetadata ViewWorkOutput = "Metadata"
	// OutputTable returns a meta.k8s.io/v1 Table, as "kubectl get" prints it.
	// Rows carry no object, unless allNamespaces is set: then they carry its
	// metadata, which alone says which namespace a row is of.
	OutputTable ViewWorkOutput = "Table"
)

// ViewWorkScope selects objects, as the arguments of "kubectl get" do.
type ViewWorkScope struct {
	// Resource is a plural, singular or short name or a kind, alone or as
	// name.group or name.version.group.
	Resource string `json:"resource"`
	// Name selects one object. It goes with no selector, limit or continue.
	// +optional
	Name string `json:"name,omitempty"`
	// Namespace of the objects. A namespaced resource needs it or
	// allNamespaces; any other resource has neither.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// AllNamespaces lists across namespaces.
	// +optional
	AllNamespaces bool `json:"allNamespaces,omitempty"`
	// LabelSelector restricts a list by labels.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	// FieldSelector restricts a list by fields, as far as the cluster's API
	// server supports them.
	// +optional
	FieldSelector string `json:"fieldSelector,omitempty"`
	// Limit is the greatest number of items of each cluster. Default: none.
	// +optional
	Limit int64 `json:"limit,omitempty"`
	// Continue goes on with the list of an earlier answer; it is for a single
	// cluster, and the rest of the scope must be the same.
	// +optional
	Continue string `json:"continue,omitempty"`
}

// ViewWorkStatus is the answer.
type ViewWorkStatus struct {
	// Summary counts what the answers say.
	Summary ViewWorkSummary `json:"summary"`
	// Clusters are the answers, sorted by cluster.
	// +optional
	// +listType=map
	// +listMapKey=cluster
	Clusters []ClusterView `json:"clusters,omitempty"`
}

// ViewWorkSummary counts answers.
type ViewWorkSummary struct {
	// Clusters is the number of clusters that were selected and that the
	// caller may look at.
	Clusters int32 `json:"clusters"`
	// Failed is the number of them whose answer is an error.
	Failed int32 `json:"failed"`
	// Incomplete is the number of them that hold more than was returned.
	Incomplete int32 `json:"incomplete"`
	// Forbidden is the number of clusters in whose namespace the caller may not
	// create viewworks: of all clusters, whatever clusterSelector says, because
	// the number of selected ones would tell their labels. Without
	// clusterSelector it is 0.
	Forbidden int32 `json:"forbidden"`
	// Items is the number of objects in all answers.
	Items int64 `json:"items"`
	// Partial says that something is missing, or may be: an answer failed or is
	// incomplete, or there are clusters that the caller may not look at.
	Partial bool `json:"partial"`
}

// ClusterView is the answer of one cluster.
type ClusterView struct {
	// Cluster is the cluster's name.
	Cluster string `json:"cluster"`
	// Error says why there is no answer.
	// +optional
	Error *ViewError `json:"error,omitempty"`
	// Objects are the objects, or their PartialObjectMetadata.
	// +optional
	// +listType=atomic
	Objects []runtime.RawExtension `json:"objects,omitempty"`
	// Table is the meta.k8s.io/v1 Table.
	// +optional
	Table *runtime.RawExtension `json:"table,omitempty"`
	// ResourceVersion of the list, or of the one object.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// ItemCount is the number of objects returned.
	ItemCount int64 `json:"itemCount"`
	// Complete says that nothing that the scope selects is missing.
	Complete bool `json:"complete"`
	// Remaining is how many objects are missing, where that is known.
	// +optional
	Remaining *int64 `json:"remaining,omitempty"`
	// Continue goes on with the list, where that is possible.
	// +optional
	Continue string `json:"continue,omitempty"`
	// Message says why the answer is not complete.
	// +optional
	Message string `json:"message,omitempty"`
}

// ViewError is the error of one cluster, taken from a metav1.Status.
type ViewError struct {
	// Code is the HTTP status code.
	Code int32 `json:"code"`
	// Reason is the machine-readable reason.
	// +optional
	Reason metav1.StatusReason `json:"reason,omitempty"`
	// Message is the text for people.
	Message string `json:"message"`
}

// ViewWorkList is the list type that the kind needs to be complete. No list of
// ViewWorks can be asked for.
//
// +kubebuilder:object:root=true
type ViewWorkList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ViewWork `json:"items"`
}
