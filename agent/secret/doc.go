// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package secret hides the values of Secrets in what leaves the cluster as the answer to
// a view or to an action.
//
// A masked Secret keeps its keys, its type and its metadata. Each value of data and of
// stringData is [Masked], which is no base64, so that no client takes it for a value. The
// annotation kubectl.kubernetes.io/last-applied-configuration, in which kubectl records
// the values once more, is removed.
package secret
