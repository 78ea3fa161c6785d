// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package helm has Helm do things with releases, in a process of its own for each of them:
// the agent links nothing of Helm, and needs no memory for it while nobody asks.
//
// A process (see package message) gets no credential: it is given one connection, at whose
// other end each request is made as the requester, through the kube door with its ceiling.
// Before the first request that may change something is passed on, the caller is told, and
// may refuse ([Events]). Its memory, its files and its time are bounded below those of the
// agent's container, for the kernel ends all of a container that uses too much. It ends
// with the agent.
//
// runner.go starts a process and hears it, gate.go passes its requests on, limits are in
// limit_linux.go.
package helm
