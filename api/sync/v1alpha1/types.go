// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnotationConfirm, on a SharedResource, lets deletions go on that are held: the names
// that the condition DeletionsHeld of clusters says, separated by commas.
const AnnotationConfirm = "sync.spokelet.io/confirm"

// ClusterVariable stands for the name of the cluster in the namespaces of a
// SharedResource.
const ClusterVariable = "$(cluster)"

// Conditions of a SharedResource, and of each of its clusters.
const (
	// ConditionAccepted: the spec can be served. Of the SharedResource alone.
	ConditionAccepted = "Accepted"
	// ConditionReady: objects are shared. Of the SharedResource it is False as long as one
	// of its clusters is not ready.
	ConditionReady = "Ready"
	// ConditionDeletionsHeld: objects are absent on one side, and nothing proves that they
	// were deleted. Of a cluster alone, and only while True.
	ConditionDeletionsHeld = "DeletionsHeld"
	// ConditionQuotaReached: objects, or changes that make some larger, wait until there is
	// room for them within a quota. Of a cluster alone, and only while True.
	ConditionQuotaReached = "QuotaReached"
)

// Reasons of the conditions. Messages begin with the side that they are about: "hub: " or
// "cluster: ".
const (
	ReasonAccepted = "Accepted"
	// ReasonNotShareable: the resource is not one that is shared; the message says what
	// does instead.
	ReasonNotShareable = "NotShareable"
	// ReasonInvalid: the spec contradicts itself.
	ReasonInvalid = "Invalid"
	// ReasonOverlap: another SharedResource shares the same objects.
	ReasonOverlap = "Overlap"

	ReasonShared = "Shared"
	// ReasonNoClusters: no cluster is selected.
	ReasonNoClusters = "NoClusters"
	// ReasonClustersNotReady: the message names the first cluster that is not ready.
	ReasonClustersNotReady = "ClustersNotReady"
	// ReasonPending: the cluster has not answered yet.
	ReasonPending = "Pending"
	// ReasonDefinitionMissing: no CustomResourceDefinition of the resource.
	ReasonDefinitionMissing = "DefinitionMissing"
	// ReasonDefinitionNotReady: it is not established, or is being deleted.
	ReasonDefinitionNotReady = "DefinitionNotReady"
	// ReasonDefinitionIncompatible: it is not namespaced, lacks the version, has another
	// kind or cannot be brought.
	ReasonDefinitionIncompatible = "DefinitionIncompatible"
	// ReasonRightsMissing: the account that reads and writes there may not.
	ReasonRightsMissing = "RightsMissing"
	// ReasonNamespaceMissing: the namespace does not exist.
	ReasonNamespaceMissing = "NamespaceMissing"
	// ReasonNamespaceTerminating: the namespace is being deleted.
	ReasonNamespaceTerminating = "NamespaceTerminating"

	// ReasonUnproven: more than a tenth of the objects are absent.
	ReasonUnproven = "Unproven"
	// ReasonRestored: one side was restored from a backup.
	ReasonRestored = "Restored"
	// ReasonReplaced: one side is another cluster than before.
	ReasonReplaced = "Replaced"

	// ReasonTooManyObjects: there are as many objects as there may be.
	ReasonTooManyObjects = "TooManyObjects"
	// ReasonTooManyBytes: the objects are as large together as they may be.
	ReasonTooManyBytes = "TooManyBytes"
)

// What [SharedQuota] is where nothing else is said.
const (
	DefaultQuotaObjects = 1000
	DefaultQuotaBytes   = "32Mi"
)

// SharedResource has the objects of a custom resource be the same on the hub and in
// clusters, live.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Resource",type="string",JSONPath=".spec.resource"
// +kubebuilder:printcolumn:name="Group",type="string",JSONPath=".spec.group"
// +kubebuilder:printcolumn:name="Direction",type="string",JSONPath=".spec.direction"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Clusters",type="integer",JSONPath=".status.selected"
// +kubebuilder:printcolumn:name="Objects",type="integer",JSONPath=".status.objects"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type SharedResource struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says which objects are shared with which clusters.
	Spec SharedResourceSpec `json:"spec"`
	// Status is written by the hub.
	//
	// +optional
	Status SharedResourceStatus `json:"status,omitempty"`
}

// SharedResourceList is a list of SharedResources.
//
// +kubebuilder:object:root=true
type SharedResourceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []SharedResource `json:"items"`
}

// Direction says which changes travel.
//
// +kubebuilder:validation:Enum=Both;ToCluster;ToHub
type Direction string

const (
	// DirectionBoth: changes of both sides travel.
	DirectionBoth Direction = "Both"
	// DirectionToCluster: the hub's changes travel, those in the clusters are undone. What
	// a cluster writes into a status that is a subresource stays there.
	DirectionToCluster Direction = "ToCluster"
	// DirectionToHub: the clusters' changes travel, those on the hub are undone. What the
	// hub's users write into a status that is a subresource stays there.
	DirectionToHub Direction = "ToHub"
)

// Side is one of the two sides of an object.
//
// +kubebuilder:validation:Enum=Hub;Cluster
type Side string

const (
	// SideHub is the hub.
	SideHub Side = "Hub"
	// SideCluster is the cluster that the object is shared with.
	SideCluster Side = "Cluster"
)

// DefinitionPolicy says where a cluster has the CustomResourceDefinition from.
//
// +kubebuilder:validation:Enum=Expected;Brought
type DefinitionPolicy string

const (
	// DefinitionExpected: somebody else installs it.
	DefinitionExpected DefinitionPolicy = "Expected"
	// DefinitionBrought: where there is none, that of the hub is created, if the agent's
	// shared.definitions names it. One that exists is never changed, and none is deleted.
	DefinitionBrought DefinitionPolicy = "Brought"
)

// AdoptionPolicy says what becomes of objects that exist on both sides before they are
// shared.
//
// +kubebuilder:validation:Enum=Equal;Any
type AdoptionPolicy string

const (
	// AdoptEqual shares them if they are equal; else nothing is written and the conflict
	// is named.
	AdoptEqual AdoptionPolicy = "Equal"
	// AdoptAny shares them all: the fields in which they differ are those of the winner.
	AdoptAny AdoptionPolicy = "Any"
)

// SharedResourceSpec says which objects are shared with which clusters.
//
// +kubebuilder:validation:XValidation:rule="self.group == oldSelf.group && self.resource == oldSelf.resource",message="group and resource cannot be changed: create another SharedResource"
// +kubebuilder:validation:XValidation:rule="(has(self.direction) && self.direction == 'ToCluster') || !has(self.hubNamespace) || self.hubNamespace.contains('$(cluster)')",message="hubNamespace: without $(cluster) all clusters share one namespace of the hub, which needs direction ToCluster"
type SharedResourceSpec struct {
	// Group of the resource, as in "example.com". Only custom resources are shared.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group"`
	// Resource is its plural name, as in "widgets". It must be namespaced.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Resource string `json:"resource"`
	// Version that both sides are read and written in. Default: the hub's storage
	// version.
	//
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Version string `json:"version,omitempty"`
	// ClusterSelector selects accepted ManagedClusters by their labels; empty selects all.
	ClusterSelector metav1.LabelSelector `json:"clusterSelector"`
	// HubNamespace is the namespace of the objects on the hub, in which $(cluster) stands
	// for the name of the cluster. Default "$(cluster)". Without the variable Direction
	// must be ToCluster.
	//
	// +kubebuilder:validation:Pattern=`^([a-z0-9-]|\$\(cluster\))+$`
	// +kubebuilder:validation:MaxLength=63
	// +optional
	HubNamespace string `json:"hubNamespace,omitempty"`
	// SpokeNamespace is that of the objects in the cluster, with the same variable.
	// Default: the namespace of the hub.
	//
	// +kubebuilder:validation:Pattern=`^([a-z0-9-]|\$\(cluster\))+$`
	// +kubebuilder:validation:MaxLength=63
	// +optional
	SpokeNamespace string `json:"spokeNamespace,omitempty"`
	// Direction says which changes travel. Default Both.
	//
	// +kubebuilder:default=Both
	// +optional
	Direction Direction `json:"direction,omitempty"`
	// Selector selects objects by their labels, on both sides; default all.
	//
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Definition says where a cluster has the CustomResourceDefinition from. Default
	// Expected.
	//
	// +kubebuilder:default=Expected
	// +optional
	Definition DefinitionPolicy `json:"definition,omitempty"`
	// Winner says whose change stays where both sides changed the same field. Default Hub.
	//
	// +kubebuilder:default=Hub
	// +optional
	Winner Side `json:"winner,omitempty"`
	// Adopt says what becomes of objects that exist on both sides before they are shared.
	// Default Equal.
	//
	// +kubebuilder:default=Equal
	// +optional
	Adopt AdoptionPolicy `json:"adopt,omitempty"`
	// Quota bounds what is shared with each of the clusters. Default: that of its fields.
	//
	// +optional
	Quota *SharedQuota `json:"quota,omitempty"`
}

// SharedQuota bounds the objects that are shared with one cluster, on each of the two
// sides. Beyond it no object is created on a side, and none is made larger, because of
// what the other has; that waits until there is room. Nothing is deleted because of it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.bytes) || quantity(string(self.bytes)).isGreaterThan(quantity('0'))",message="bytes: it must be more than 0"
type SharedQuota struct {
	// Objects is how many there may be, whoever made them. Default 1000.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +kubebuilder:default=1000
	// +optional
	Objects int32 `json:"objects,omitempty"`
	// Bytes is how large they may be together: what is shared of them, as JSON. Default
	// 32Mi.
	//
	// +kubebuilder:default="32Mi"
	// +optional
	Bytes *resource.Quantity `json:"bytes,omitempty"`
}

// SharedResourceStatus says how objects are shared.
type SharedResourceStatus struct {
	// ObservedGeneration is the generation that the status is of.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Accepted and Ready.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Selected is the number of clusters.
	//
	// +optional
	Selected int32 `json:"selected,omitempty"`
	// Objects is the sum of those of all clusters.
	//
	// +optional
	Objects int32 `json:"objects,omitempty"`
	// Clusters are the selected clusters, by name. What is said of one that is not
	// connected is what it said last.
	//
	// +listType=map
	// +listMapKey=name
	// +optional
	Clusters []SharedCluster `json:"clusters,omitempty"`
}

// SharedCluster says how objects are shared with one cluster.
type SharedCluster struct {
	// Name of the cluster.
	Name string `json:"name"`
	// Objects is the number of objects that both sides have.
	Objects int32 `json:"objects"`
	// Conflicts is the number of objects that exist on both sides, differ, and are not
	// shared for that.
	//
	// +optional
	Conflicts int32 `json:"conflicts,omitempty"`
	// LastError says why an object is not the same on both sides: it names the object,
	// and the side that refuses it.
	//
	// +optional
	LastError string `json:"lastError,omitempty"`
	// Conditions are Ready and, while they are, DeletionsHeld and QuotaReached.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
