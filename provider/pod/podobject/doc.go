// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podobject publishes to clusters the ConfigMaps and Secrets that their pods refer
// to, and no others: each is watched by its name for as long as a pod refers to it, as a
// kubelet does.
package podobject
