// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inventory tells what a namespace holds besides what Kubernetes puts into each:
// the account "default", the cluster's certificate authority, and events.
//
// Every kind of object that goes with a namespace is asked for, by its metadata. One that
// cannot be is said, so that nobody takes a namespace for empty that is not.
package inventory
