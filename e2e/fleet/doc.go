// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet joins clusters that exist only as agents: real tunnels, enrolment
// and sessions, with no cluster behind them. Tests and benchmarks use it where many
// clusters are needed, or one whose answers they choose.
//
// [Join] enrols one agent with the doors of the caller's choice; [Doors] are those of
// an honest cluster, which answers a few requests as an API server does and reports
// every work as applied. [Start] runs many honest agents in a process of their own.
package fleet
