// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process is the life of a process of spokelet-helm: it gives up what it does not
// need, reads one request, and answers.
//
// The process runs beside the agent, as the same user. With Landlock (Linux 5.13) it can
// read nothing but the certificate authorities and what resolves names, can write nothing,
// and reaches no other process: neither the agent's token nor its memory.
package process
