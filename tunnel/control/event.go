// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package control

// Event is what a frame means to the side that received it. It is one of the
// types below, or nil for a frame that is to be ignored.
type Event interface{ event() }

// Agreed says that both hellos were exchanged.
type Agreed struct{ Agreement Agreement }

// RenewalRequested says that the agent asks for a certificate.
type RenewalRequested struct{ CSR []byte }

// RenewalIssued brings the agent its new certificate, PEM.
type RenewalIssued struct{ Chain, Bundle []byte }

// RenewalRefused says why the agent gets no new certificate.
type RenewalRefused struct{ Reason string }

// TrustReplaced brings the agent the authorities to trust, PEM.
type TrustReplaced struct{ Bundle []byte }

// RoleChanged says whether the agent has become a standby, or the executor.
type RoleChanged struct{ Standby bool }

// Draining says that the peer goes away.
type Draining struct{ Reason string }

func (Agreed) event()           {}
func (RenewalRequested) event() {}
func (RenewalIssued) event()    {}
func (RenewalRefused) event()   {}
func (TrustReplaced) event()    {}
func (RoleChanged) event()      {}
func (Draining) event()         {}
