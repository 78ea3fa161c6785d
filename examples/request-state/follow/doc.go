// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package follow hands requests to a handler whenever they change, as the watch of the
// API server tells it. There is no polling and no resync.
package follow
