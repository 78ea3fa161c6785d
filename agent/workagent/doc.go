// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workagent runs the work engine as OCM's operator starts its work agent:
// "spokelet-agent work agent", with the same flags, fed by a watch on the hub's
// API server instead of the tunnel (ADR 0008).
//
// The engine is the one of package agent/work, and what a status looks like is
// made by internal/workconvert, as on the hub. What is here is the way between them:
//
//   - workstore.go stores each work as the hub's watch has it, without its spec, and
//     sends the engine what has changed.
//   - report.go writes statuses, the latest of each work alone, and nothing that
//     changes nothing; finalizers.go adds our finalizer to works and removes it.
//   - run.go runs both as long as this process holds the Lease of the agent.
//
// No timer drives any of this. Two intervals are kept: an unreadable API server is
// asked again, and the files of --terminate-on-files are looked at.
package workagent
