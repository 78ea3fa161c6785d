// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the MCM Work API of 2019, as CustomResourceDefinitions: Work,
// which looks at objects of a cluster or changes one, and WorkSet and ResourceView, which
// do so in many. Fields are those of multicloud-operators-foundation (docs/work/work.md);
// what is ours in a status says so. The same schema is served as v1beta1.
//
// +kubebuilder:object:generate=true
// +groupName=mcm.ibm.com
package v1alpha1
