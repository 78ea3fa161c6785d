// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the versioned configuration files of the hub and the
// agent, group config.spokelet.io. A file is decoded strictly, defaulted and
// validated, in that order; nothing here reads flags or the environment.
//
// Fields are only ever added. A field that is renamed or removed gets a new
// version of the group.
//
// +groupName=config.spokelet.io
package v1alpha1
