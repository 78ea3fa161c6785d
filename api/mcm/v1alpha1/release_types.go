// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The kinds of results that are about Helm. They are in results alone: no API server
// serves them.
const (
	HelmReleaseKind    = "HelmRelease"
	ResultHelmListKind = "ResultHelmList"
)

// ResultHelmList is the result of a Work that looks at releases.
type ResultHelmList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []HelmRelease `json:"items"`
}

// HelmRelease is a release of Helm at its latest revision: an item of a ResultHelmList, and
// the result of an action. No API server serves it: it is in the status of a Work alone.
//
// +kubebuilder:object:root=true
type HelmRelease struct {
	metav1.TypeMeta `json:",inline"`

	Metadata HelmReleaseMetadata `json:"metadata"`
	Spec     HelmReleaseSpec     `json:"spec"`
}

// HelmReleaseMetadata names a release.
type HelmReleaseMetadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

// HelmReleaseSpec is what is known of a release.
type HelmReleaseSpec struct {
	ReleaseName string `json:"releaseName,omitempty"`
	// Description is what Helm says of the revision.
	Description   string      `json:"description,omitempty"`
	FirstDeployed metav1.Time `json:"firstDeployed,omitzero"`
	LastDeployed  metav1.Time `json:"lastDeployed,omitzero"`
	// Manifest is what was rendered; "***" unless the hub shows Secrets, and a remark where
	// a result has no room for it.
	Manifest     string `json:"manifest,omitempty"`
	ChartName    string `json:"chartName,omitempty"`
	ChartVersion string `json:"chartVersion,omitempty"`
	Namespace    string `json:"namespace,omitempty"`
	// Version is the revision.
	Version int32 `json:"version,omitempty"`
	// Status is Helm's: deployed, failed, pending-install, ...
	Status string `json:"status,omitempty"`
}
