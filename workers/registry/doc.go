// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registry keeps the images of accounts in a folder of a registry, each account's in
// the repository of its id, and reads the image that they are made of.
//
// No other repository is ever written or asked about, whatever an account is called. What a
// caller has to tell apart are the errors of this package, by errors.Is; their texts are the
// same for the same cause, as they end in conditions.
package registry
