// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1 holds the API of the example: RequestState, the one object on which
// a director and a worker take turns.
//
// +k8s:deepcopy-gen=package
// +groupName=com.redhat.ecosystem.sample
package v1
