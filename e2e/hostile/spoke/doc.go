// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package spoke is a hostile cluster: an agent that has joined a hub and says what an
// attack has it say.
//
// It runs as a process of its own, [Serve], at the lowest priority: an attacker has a
// machine of its own, and what it spends there must not count as a cost of the hub's.
// [Start] starts one, and [Process.Do] has it carry out an [Order].
package spoke
