// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package store reads scripts from a bucket of S3. Everything of an account lies below its
// id: nothing else is listed or read for it, whatever a URL or a release says.
//
// Objects are read by the ETag that was listed: a changed object is an error. Callers distinguish the
// errors of this package by errors.Is; their texts are the same for the same cause, as they end in
// conditions.
package store
