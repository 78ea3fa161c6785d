// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tunneltest runs a hub's and agents' ends of tunnels in one process,
// over memory, for tests: of package tunnel, and of whatever calls doors.
//
//	hub := tunneltest.NewHub(t, nil)
//	hub.Connect(t, "spoke1", map[string]http.Handler{tunnel.DoorKube: handler})
//	session := hub.Session(t, "spoke1")
//
// Everything above the byte stream is real: TLS, HTTP/2, hellos, limits. The
// byte stream has no socket, so that it works in a bubble of testing/synctest,
// and it fails when told to. What a test starts here ends with the test.
package tunneltest
