// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package spdy reports a cut of a SPDY/3.1 stream to the client of exec, attach or
// port-forward.
//
// Clients of SPDY take the end of a command's error stream, and so the end of a
// connection, for success. A filter reads of each frame of the server the eight bytes
// that say what it is and how long, passes whole frames on, and when the connection was
// cut adds a frame of its own that says so. Nothing is decompressed. WebSockets need none
// of this: one that ends without a closing frame is broken.
package spdy
