// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hub puts the hub together: it makes each part, gives it what it
// needs of the others, and runs them all under one manager. No decision about
// clusters, works or requests is made here; the packages below make them.
package hub
