// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registry stores the images of accounts in a folder of a registry, each account's in the
// repository of its id, and reads the runtime image.
//
// No other repository is read or written, whatever the id of an account is. Callers distinguish the
// errors of this package by errors.Is; their texts are the same for the same cause, as they end in
// conditions.
package registry
