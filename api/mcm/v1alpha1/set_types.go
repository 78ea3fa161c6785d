// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// WorkSet makes one Work for each cluster that it selects.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.status"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.reason"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type WorkSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what is done, and where.
	//
	// +required
	Spec WorkSetSpec `json:"spec"`
	// Status is written by the hub.
	Status WorkSetStatus `json:"status,omitempty"`
}

// WorkSetList is a list of WorkSets.
//
// +kubebuilder:object:root=true
type WorkSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []WorkSet `json:"items"`
}

// WorkSetSpec says what is done, and where.
type WorkSetSpec struct {
	// ClusterSelector selects clusters by the labels of their ManagedClusters; without
	// one there is none, an empty one selects all accepted clusters of this hub.
	ClusterSelector *metav1.LabelSelector `json:"clusterSelector,omitempty"`
	// Selector was declared and never read by the original.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Template of the Works.
	//
	// +required
	Template WorkTemplateSpec `json:"template"`
}

// WorkTemplateSpec is the template of Works.
type WorkTemplateSpec struct {
	// WorkTemplateMeta gives labels and annotations; what else is in it is dropped.
	WorkTemplateMeta `json:"metadata,omitempty"`
	// Spec of the Works; the cluster is set for each.
	//
	// +required
	Spec TemplateSpec `json:"spec"`
}

// WorkTemplateMeta has the labels and annotations of Works, and nothing else of an
// ObjectMeta: a definition gives a nested ObjectMeta no schema, so that an API server would
// store one that no client in Go can decode, which ends the watches of all WorkSets.
type WorkTemplateMeta struct {
	// Labels of the Works, beside those that the hub gives them.
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations of the Works, beside those that the hub gives them.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// TemplateSpec is the spec of a Work without its cluster.
//
// +kubebuilder:validation:XValidation:rule="!has(self.type) || self.type.lowerAscii() != 'resource' || (has(self.scope) && has(self.scope.resourceType) && size(self.scope.resourceType) > 0)",message="scope.resourceType is required for type Resource"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type.lowerAscii() == 'resource') || has(self.helm) != has(self.kube)",message="exactly one of helm and kube is required for an action"
// +kubebuilder:validation:XValidation:rule="!has(self.type) || self.type.lowerAscii() != 'action' || !has(self.helm) || (has(self.helm.releaseName) && size(self.helm.releaseName) > 0)",message="helm.releaseName is required"
// +kubebuilder:validation:XValidation:rule="!has(self.helm) || !has(self.helm.chartURL) || size(self.helm.chartURL) == 0 || isURL(self.helm.chartURL) || (!self.helm.chartURL.matches('^[^/?#:]*:') && isURL('/' + self.helm.chartURL))",message="helm.chartURL must be a URL"
type TemplateSpec struct {
	// Cluster is set for each Work, and not read.
	Cluster *Cluster `json:"cluster,omitempty"`
	// Type is Resource or Action; in any case.
	//
	// +kubebuilder:validation:MaxLength=64
	Type WorkType `json:"type,omitempty"`
	// Scope says what a Resource work looks at.
	Scope ResourceFilter `json:"scope,omitempty"`
	// ActionType is Create, Update or Delete; in any case.
	//
	// +kubebuilder:validation:MaxLength=64
	ActionType ActionType `json:"actionType,omitempty"`
	// HelmWork says which release an action is about.
	HelmWork *HelmWorkSpec `json:"helm,omitempty"`
	// KubeWork says which object an action is about.
	KubeWork *KubeWorkSpec `json:"kube,omitempty"`
}

// For is the spec of the Work for one cluster.
func (t *TemplateSpec) For(cluster string) WorkSpec {
	return WorkSpec{
		Cluster: Cluster{Name: cluster}, Type: t.Type, Scope: t.Scope,
		ActionType: t.ActionType, HelmWork: t.HelmWork, KubeWork: t.KubeWork,
	}
}

// WorkSetStatus is what came of the Works, as it is now.
type WorkSetStatus struct {
	// Status is Completed, Failed or Processing.
	Status WorkStatusType `json:"status,omitempty"`
	// Reason names clusters that failed, or have not answered.
	Reason string `json:"reason,omitempty"`
	// Clusters are the selected ones in whose namespaces the author may create Works, by
	// name. Spokelet's own, as what is below.
	//
	// +listType=map
	// +listMapKey=name
	Clusters []ClusterResult `json:"clusters,omitempty"`
	// Forbidden is the number of clusters of the hub in whose namespace the author may not
	// create Works. It does not depend on the selector: it would tell their labels.
	//
	// +optional
	Forbidden int32 `json:"forbidden"`
	// ObservedGeneration is the generation that the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// ClusterResult is what came of the Work of one cluster.
type ClusterResult struct {
	// Name of the cluster.
	Name string `json:"name"`
	// Type is that of the Work's status; empty until something is known.
	Type WorkStatusType `json:"type,omitempty"`
	// Reason is that of the Work's status, or why there is no Work.
	Reason string `json:"reason,omitempty"`
}

// ResourceView looks at objects of each cluster that it selects.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Resource",type="string",JSONPath=".spec.scope.resource"
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[0].type"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[0].reason"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ResourceView struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what is looked at, and where.
	//
	// +required
	Spec ResourceViewSpec `json:"spec"`
	// Status is written by the hub.
	Status ResourceViewStatus `json:"status,omitempty"`
}

// ResourceViewList is a list of ResourceViews.
//
// +kubebuilder:object:root=true
type ResourceViewList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ResourceView `json:"items"`
}

// ResourceViewSpec says what is looked at, and where.
//
// +kubebuilder:validation:XValidation:rule="has(self.scope) && has(self.scope.resource) && size(self.scope.resource) > 0",message="spec.scope.resource is required"
type ResourceViewSpec struct {
	// ClusterSelector selects clusters by the labels of their ManagedClusters; without one,
	// or with an empty one, all accepted clusters of this hub are selected.
	ClusterSelector *metav1.LabelSelector `json:"clusterSelector,omitempty"`
	// Scope says which objects.
	Scope ViewFilter `json:"scope,omitempty"`
	// SummaryOnly asks for Tables, with what kubectl prints.
	SummaryOnly bool `json:"summaryOnly,omitempty"`
	// Mode is Periodic or empty. Both are live.
	Mode ResourceFilterMode `json:"mode,omitempty"`
	// UpdateIntervalSeconds is an upper bound, which live results always keep.
	UpdateIntervalSeconds int `json:"updateIntervalSeconds,omitempty"`
}

// ViewFilter says which objects a ResourceView looks at.
type ViewFilter struct {
	// LabelSelector is a metav1.LabelSelector, or a bare map of labels.
	//
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	LabelSelector *runtime.RawExtension `json:"labelSelector,omitempty"`
	// FieldSelector as that of kubectl.
	FieldSelector string `json:"fieldSelector,omitempty"`
	// APIGroup narrows Resource.
	APIGroup string `json:"apiGroup,omitempty"`
	// Resource is what kubectl takes.
	//
	// +kubebuilder:validation:MaxLength=1024
	Resource string `json:"resource,omitempty"`
	// ResourceName asks for one object.
	ResourceName string `json:"resourceName,omitempty"`
	// NameSpace of the objects; all when it is empty.
	NameSpace string `json:"namespace,omitempty"`
}

// ResourceViewStatus is what the clusters show.
type ResourceViewStatus struct {
	// Conditions has one entry: how the view is as a whole.
	Conditions []ViewCondition `json:"conditions,omitempty"`
	// Results by the name of the cluster.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Results map[string]runtime.RawExtension `json:"results,omitempty"`
	// Clusters are the selected ones in whose namespaces the author may create Works, by
	// name. Spokelet's own, as what is below.
	//
	// +listType=map
	// +listMapKey=name
	Clusters []ClusterResult `json:"clusters,omitempty"`
	// Forbidden is the number of clusters of the hub in whose namespace the author may not
	// create Works. It does not depend on the selector: it would tell their labels.
	//
	// +optional
	Forbidden int32 `json:"forbidden"`
	// ObservedGeneration is the generation that the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// ViewCondition says how a view is.
type ViewCondition struct {
	// Type is Completed, Failed or Processing.
	Type WorkStatusType `json:"type"`
	// Status is True.
	Status metav1.ConditionStatus `json:"status,omitempty"`
	// LastUpdateTime is when the condition was last written.
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitempty"`
	// Reason names clusters that failed, or have not answered.
	Reason string `json:"reason,omitempty"`
}
