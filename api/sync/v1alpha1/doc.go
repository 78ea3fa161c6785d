// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds SharedResource of sync.spokelet.io, which has objects of a
// custom resource be the same on the hub and in clusters.
//
// +kubebuilder:object:generate=true
// +groupName=sync.spokelet.io
package v1alpha1
