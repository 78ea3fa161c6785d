// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 holds ManagedClusterView of view.open-cluster-management.io, as far as
// its clients know it: fields, conditions and reasons are the original's.
//
// +kubebuilder:object:generate=true
// +groupName=view.open-cluster-management.io
package v1beta1
