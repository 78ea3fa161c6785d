// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package konnectivity is the pipe in use: the server and the agent of
// sigs.k8s.io/apiserver-network-proxy, unmodified and embedded in the two
// processes.
//
// # Hub
//
// The proxy server identifies agents by metadata that they send, lets one
// agent answer another's dial, and dereferences payloads that a peer may leave
// out. So each agent process gets a proxy server of its own, and a thin layer
// stands before it: it takes the identity from the verified certificate, puts
// it in the place of the claimed one, and lets through only packets that are
// complete. The hub is its own front end, in process, with the packets of
// konnectivity-client.
//
// # Agent
//
// The agent would dial whatever it is told. An interceptor on its stream keeps
// every packet from it: a dial, whatever its target, opens a stream to this
// very process, without a socket; a packet that no server sends ends the link.
// What is left to the agent is registration. Its client set, which would
// reconnect on a timer, is held by its own server counter until the link ends:
// one link is one TCP connection, and the caller owns the next.
//
// # Hot path
//
// Dials and closes go through the proxy server. Bytes do not: with one stream
// and one agent there is nothing to route, and the proxy server's channels cost
// more than all else on the hub. They travel in the same packets on the same
// gRPC stream, so the wire is konnectivity's.
//
// # Traps
//
// Konnectivity has no flow control per connection: a reader who stops, stops
// everything of that agent. Hence one stream per pipe, bounded queues, and a
// Close that cuts TCP: keepalives pass while an agent is wedged, and retiring
// it in the proxy server cures nothing.
//
// The proxy server's and the agent's metrics are registered by their packages
// in Prometheus' default registry. They are global and the last writer wins;
// Spokelet neither reads nor serves them.
package konnectivity
