// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourcetest joins both ends of Sync in one process, for tests of what
// publishes or mirrors a kind:
//
//	agent, err := resource.NewAgent(sources, mirrors)
//	cut := resourcetest.Connect(t, hub, "spoke1", agent)
//
// The stream is a real one of HTTP/2. Its bytes go through memory, so that it works in a
// bubble of testing/synctest.
package resourcetest
