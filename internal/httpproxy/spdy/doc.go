// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package spdy follows the frames of SPDY/3.1 between a client of exec, attach or
// port-forward and a server in a cluster, on each way that the hub has between them.
//
// Clients of SPDY take the end of a command's error stream without a word for success, and
// so the end of a connection, too. A [Follower] reads of each frame the eight bytes that
// say what it is and how long, passes whole frames on, and when the way was cut adds one of
// its own, which says so. Nothing is decompressed.
package spdy
