// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the types of the live API, group live.spokelet.io:
// what the hub answers from its sessions and from the spokes, as it is now.
// Nothing of it is stored; there are no CRDs.
//
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.spokelet.live.v1alpha1
// +kubebuilder:object:generate=true
// +groupName=live.spokelet.io
package v1alpha1
