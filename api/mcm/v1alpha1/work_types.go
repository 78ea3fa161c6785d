// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Work asks for objects of one cluster, or changes one there.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Type",type="string",JSONPath=".spec.type"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".spec.cluster.name"
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.type"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.reason"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be a DNS-1035 label: at most 63 lower-case letters, digits and '-', beginning with a letter",fieldPath=".metadata"
type Work struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what is asked, or done.
	//
	// +required
	Spec WorkSpec `json:"spec"`
	// Status is written by the hub.
	Status WorkStatus `json:"status,omitempty"`
}

// WorkList is a list of Works.
//
// +kubebuilder:object:root=true
type WorkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Work `json:"items"`
}

// WorkSpec says what is asked, or done, and where.
//
// +kubebuilder:validation:XValidation:rule="has(self.cluster) && has(self.cluster.name) && size(self.cluster.name) > 0",message="spec.cluster.name is required"
// +kubebuilder:validation:XValidation:rule="!has(self.type) || self.type.lowerAscii() != 'resource' || (has(self.scope) && has(self.scope.resourceType) && size(self.scope.resourceType) > 0)",message="spec.scope.resourceType is required for type Resource"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type.lowerAscii() == 'resource') || has(self.helm) != has(self.kube)",message="exactly one of spec.helm and spec.kube is required for an action"
// +kubebuilder:validation:XValidation:rule="!has(self.type) || self.type.lowerAscii() != 'action' || !has(self.helm) || (has(self.helm.releaseName) && size(self.helm.releaseName) > 0)",message="spec.helm.releaseName is required"
// +kubebuilder:validation:XValidation:rule="!has(self.helm) || !has(self.helm.chartURL) || size(self.helm.chartURL) == 0 || isURL(self.helm.chartURL) || (!self.helm.chartURL.matches('^[^/?#:]*:') && isURL('/' + self.helm.chartURL))",message="spec.helm.chartURL must be a URL"
type WorkSpec struct {
	// Cluster names the cluster. Required.
	Cluster Cluster `json:"cluster,omitempty"`
	// Type is Resource, which looks, or Action, which changes; in any case.
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

// Cluster refers to a cluster.
type Cluster struct {
	// Name of the cluster.
	//
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// WorkType says whether a Work looks or changes.
type WorkType string

// The types of Works.
const (
	ResourceWorkType WorkType = "Resource"
	ActionWorkType   WorkType = "Action"
)

// ActionType says what an action does.
type ActionType string

// The types of actions.
const (
	CreateActionType ActionType = "Create"
	UpdateActionType ActionType = "Update"
	DeleteActionType ActionType = "Delete"
)

// ResourceFilter says which objects a Work looks at.
type ResourceFilter struct {
	// LabelSelector is a metav1.LabelSelector, or a bare map of labels. Of lists alone.
	//
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	LabelSelector *runtime.RawExtension `json:"labelSelector,omitempty"`
	// FieldSelector of lists, as that of kubectl.
	FieldSelector string `json:"fieldSelector,omitempty"`
	// APIGroup and Version narrow ResourceType.
	APIGroup string `json:"apiGroup,omitempty"`
	Version  string `json:"version,omitempty"`
	// ResourceType is what kubectl takes: plural, singular, short name, kind,
	// resource.group or resource.version.group.
	//
	// +kubebuilder:validation:MaxLength=1024
	ResourceType string `json:"resourceType,omitempty"`
	// Name asks for one object.
	Name string `json:"name,omitempty"`
	// NameSpace of the objects; all when it is empty.
	NameSpace string `json:"namespace,omitempty"`
	// ServerPrint asks for a Table, with what kubectl prints. Of lists alone.
	ServerPrint bool `json:"serverPrint,omitempty"`
	// Mode is Periodic or empty. Both are live; Periodic shows Processing.
	//
	// +kubebuilder:validation:MaxLength=64
	Mode ResourceFilterMode `json:"mode,omitempty"`
	// UpdateIntervalSeconds is an upper bound, which live results always keep.
	UpdateIntervalSeconds int `json:"updateIntervalSeconds,omitempty"`
}

// ResourceFilterMode is Periodic or empty.
type ResourceFilterMode string

// PeriodicResourceUpdate is the one mode that has a name.
const PeriodicResourceUpdate ResourceFilterMode = "Periodic"

// KubeWorkSpec says which object an action is about.
type KubeWorkSpec struct {
	// Resource, Name and Namespace say what Delete deletes; what is empty comes from the
	// template. Namespace takes the place of the template's.
	//
	// +kubebuilder:validation:MaxLength=1024
	Resource  string `json:"resource,omitempty"`
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// ObjectTemplate is a whole object. Clients in Go write null where they have none.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +nullable
	ObjectTemplate runtime.RawExtension `json:"template,omitempty"`
}

// HelmWorkSpec says which release an action is about. Create installs, Update upgrades and
// Delete uninstalls it. The cluster's owner says which URLs charts are read from.
type HelmWorkSpec struct {
	// ReleaseName is required.
	//
	// +kubebuilder:validation:MaxLength=253
	ReleaseName string `json:"releaseName,omitempty"`
	// InSecureSkipVerify does not check the certificate of the chart's server.
	InSecureSkipVerify bool `json:"inSecureSkipVerify,omitempty"`
	// ChartURL is where the chart is: an archive (https://host/chart-1.0.0.tgz), a
	// repository, with ChartName, or an artefact of a registry (oci://host/path/chart, with
	// a tag, a digest or Version).
	//
	// +kubebuilder:validation:MaxLength=4096
	ChartURL string `json:"chartURL,omitempty"`
	// ChartName names the chart in a repository.
	//
	// +kubebuilder:validation:MaxLength=1024
	ChartName string `json:"chartName,omitempty"`
	// Version of the chart: one, or a range where ChartURL leaves a choice.
	//
	// +kubebuilder:validation:MaxLength=1024
	Version string `json:"version,omitempty"`
	// Namespace of the release. Default "default" for Create; Update and Delete find the only
	// release of the name.
	//
	// +kubebuilder:validation:MaxLength=253
	Namespace string `json:"namespace,omitempty"`
	// Values as YAML, in base64. They win over those at ValuesURL.
	Values []byte `json:"values,omitempty"`
	// ValuesURL is where values are.
	//
	// +kubebuilder:validation:MaxLength=4096
	ValuesURL string `json:"valuesURL,omitempty"`
	// Wait has the objects of the release ready before the action is Completed. It is
	// Spokelet's own.
	Wait bool `json:"wait,omitempty"`
	// TimeoutSeconds is how long Helm may take. Default 300. It is Spokelet's own.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// WorkStatus is what came of a Work.
type WorkStatus struct {
	// Type is Completed, Failed or Processing; empty until something is known.
	Type WorkStatusType `json:"type,omitempty"`
	// Reason of what is not well, or incomplete.
	Reason string `json:"reason,omitempty"`
	// Result is an object, a List or a Table.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	Result *runtime.RawExtension `json:"result,omitempty"`
	// LastUpdateTime is when the status was last written.
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`
	// ObservedGeneration is the generation that the cluster answered last. It is
	// Spokelet's own: an action of which it says so is not executed again.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// WorkStatusType says how a Work is.
type WorkStatusType string

// The types of statuses.
const (
	WorkCompleted  WorkStatusType = "Completed"
	WorkFailed     WorkStatusType = "Failed"
	WorkProcessing WorkStatusType = "Processing"
)
