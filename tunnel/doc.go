// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tunnel connects agents to the hub: an agent dials out once, and from
// then on the hub calls the agent's doors as if they were local.
//
// A tunnel has two layers. The pipe (package pipe) is one byte stream from the
// hub to one agent process over the connection which that process has dialled.
// The session, here, is TLS 1.3 with both certificates checked over that byte
// stream, and inside it HTTP/2 with the hub as client. Calls, watches and raw
// streams are streams of that one connection; docs/wire.md describes it.
//
// The hub's end:
//
//	srv, err := tunnel.NewServer(tunnel.ServerConfig{...})
//	go srv.Serve(ctx, listener)
//	session, err := srv.Sessions().Get(ctx, "spoke1")
//	client := &http.Client{Transport: session}
//	resp, err := client.Get("http://kube/api/v1/pods")
//	conn, err := session.Dial(ctx, tunnel.DoorKube) // raw: upgrades, SPDY
//
// The agent's end serves one http.Handler per door:
//
//	agent, err := tunnel.NewAgent(tunnel.AgentConfig{Doors: doors, ...})
//	err = agent.Run(ctx)
//
// Where things are: server.go, enroll.go the public port; serve.go the life of
// a session on the hub; session*.go, stream_counter.go what hub code calls; registry.go
// who is connected; agent*.go the agent's end; stream*.go raw streams, on package bufconn; tls.go
// every TLS configuration; control (package) the conversation on the control
// door. This package imports no Kubernetes client, neither hub nor agent, and
// nothing outside it may open a stream to an agent by other means than Session.
package tunnel
