// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package secret masks the values of Secrets in the results of views and actions.
//
// A masked Secret keeps its keys, its type and its metadata. Each value of data and of
// stringData is [Masked], which is not valid base64, so that no client takes it for a value.
// The annotation kubectl.kubernetes.io/last-applied-configuration, in which kubectl also
// records the values, is removed.
package secret
