// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package helm runs Helm in one process for each request: the agent links no code of Helm, and
// needs memory for it only during a request.
//
// A process (see package message) gets no credential, but one connection, whose other end
// makes each request as the requester, through the kube door. Before the first request that
// may change something is forwarded, the caller is notified, and may refuse it ([Events]).
// The memory, files and time of a process are limited below those of the agent's container,
// because the kernel kills all of a container that exceeds its memory. A process ends with
// the agent.
//
// runner.go starts a process and reads its answers, proxy.go forwards its requests,
// limits_linux.go sets the limits.
package helm
