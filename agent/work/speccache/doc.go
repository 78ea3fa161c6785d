// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package speccache keeps what the hub wants of the works of this cluster in Secrets of
// the agent's namespace, so that a restarted agent repairs drift while the hub is away.
package speccache
