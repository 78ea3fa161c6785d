// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agent puts the spoke's side together: it makes the doors that the
// configuration opens and serves them to the hub over the tunnel. What a door
// does is decided in the packages below.
package agent
