// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

// ForgetRoles makes a server that of the release before roles. It is to be
// called before the first session.
func (s *Server) ForgetRoles() { s.hello.Features = nil }
