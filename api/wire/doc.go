// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wire holds the bodies that travel in Sync, as Go structs with their
// JSON names: one file for each part that has some, and in it the names of labels,
// annotations and metrics that several programs must agree on. A body is read by the one
// Decode function beside its type, which bounds and checks what a peer sent;
// nothing here does I/O or keeps state. Names and meanings are never changed,
// only added: a hub and an agent one version apart must understand each other.
package wire
