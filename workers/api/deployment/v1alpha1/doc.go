// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the group api.worker-deployment of the design document of worker bundles.
//
// +kubebuilder:object:generate=true
// +groupName=api.worker-deployment
package v1alpha1
