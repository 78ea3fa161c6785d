// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process runs a process of spokelet-helm: it restricts itself, reads one request, and
// answers.
//
// The process runs beside the agent, as the same user. With Landlock (Linux 5.13) it can only
// read certificate authorities and the configuration of name resolution, can write no file,
// and can access no other process: neither the agent's token nor its memory.
package process
