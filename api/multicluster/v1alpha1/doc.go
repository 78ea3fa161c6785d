// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the SIG-Multicluster Work API: Work on the hub,
// AppliedWork in a spoke. The types equal those of kubernetes-sigs/work-api,
// which publishes no Go module that can be imported by version; nothing may be
// added to them.
//
// +kubebuilder:object:generate=true
// +groupName=multicluster.x-k8s.io
package v1alpha1
