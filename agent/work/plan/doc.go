// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides for each manifest of a work which object it is about, how it is
// written, and in which order: a list of steps. It also decides what a work no longer
// names, and in which order that is deleted. It reads which kinds the API server serves,
// and nothing else.
package plan
