// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
)

// Agent is the agent's side of one conversation. It is not safe for concurrent
// use.
type Agent struct {
	local    Local
	agreed   bool
	roles    bool // the hub is told our role
	pending  bool // we asked for a certificate
	draining bool // we said that we drain
}

// NewAgent begins a conversation; the hub speaks first.
func NewAgent(local Local) *Agent { return &Agent{local: local} }

// Receive takes a frame of the hub. The frame it returns, if any, is to be sent
// before the event is acted on. After an error the conversation is over.
func (a *Agent) Receive(frame *rpcv1.ControlRequest) (*rpcv1.ControlResponse, Event, error) {
	if hello := frame.GetHello(); hello != nil {
		return a.receiveHello(hello)
	}
	if !a.agreed {
		return nil, nil, fmt.Errorf("frame before hello: %w", ErrOrder)
	}
	event, err := a.receive(frame)
	return nil, event, err
}

func (a *Agent) receive(frame *rpcv1.ControlRequest) (Event, error) {
	switch m := frame.GetMessage().(type) {
	case *rpcv1.ControlRequest_Certificate:
		return a.receiveCertificate(m.Certificate)
	case *rpcv1.ControlRequest_TrustBundle:
		bundle := m.TrustBundle.GetTrustBundle()
		if len(bundle) == 0 || len(bundle) > MaxBundle {
			return nil, fmt.Errorf("trust bundle of %d bytes: %w", len(bundle), ErrFrame)
		}
		return TrustReplaced{Bundle: bundle}, nil
	case *rpcv1.ControlRequest_Drain:
		return Draining{Reason: Reason(m.Drain.GetReason())}, nil
	default:
		return nil, nil
	}
}

func (a *Agent) receiveHello(hello *rpcv1.Hello) (*rpcv1.ControlResponse, Event, error) {
	if a.agreed {
		return nil, nil, fmt.Errorf("second hello: %w", ErrOrder)
	}
	// The answer goes out even when the versions do not meet, so that the hub
	// can name the agent's range as well.
	answer := &rpcv1.ControlResponse{Message: &rpcv1.ControlResponse_Hello{Hello: a.local.hello()}}
	agreement, err := a.local.agree(hello)
	if err != nil {
		return answer, nil, err
	}
	a.agreed, a.roles = true, agreement.Roles()
	return answer, Agreed{Agreement: agreement}, nil
}

func (a *Agent) receiveCertificate(issued *rpcv1.CertificateIssued) (Event, error) {
	if !a.pending {
		return nil, fmt.Errorf("certificate: %w", ErrOrder)
	}
	a.pending = false
	if reason := issued.GetError(); reason != "" {
		return RenewalRefused{Reason: Reason(reason)}, nil
	}
	chain, bundle := issued.GetCertificateChain(), issued.GetTrustBundle()
	if len(chain) == 0 || len(chain) > MaxBundle || len(bundle) == 0 || len(bundle) > MaxBundle {
		return nil, fmt.Errorf("certificate of %d bytes, trust bundle of %d: %w", len(chain), len(bundle), ErrFrame)
	}
	return RenewalIssued{Chain: chain, Bundle: bundle}, nil
}

// Renew asks for a certificate. Errors are ErrOrder before the hellos and
// ErrPending while an earlier request waits.
func (a *Agent) Renew(csr []byte) (*rpcv1.ControlResponse, error) {
	if !a.agreed {
		return nil, fmt.Errorf("certificate request: %w", ErrOrder)
	}
	if a.pending {
		return nil, fmt.Errorf("certificate request: %w", ErrPending)
	}
	a.pending = true
	request := &rpcv1.CertificateSigningRequest{Csr: csr}
	return &rpcv1.ControlResponse{Message: &rpcv1.ControlResponse_Csr{Csr: request}}, nil
}

// Role tells the hub whether this side stands by. It returns nil when there is
// nothing to send: before the hellos, which say it then; when that was the last
// word; and to a hub that does not know of roles.
func (a *Agent) Role(standby bool) *rpcv1.ControlResponse {
	if a.local.Standby == standby {
		return nil
	}
	a.local.Standby = standby
	if !a.roles {
		return nil
	}
	return &rpcv1.ControlResponse{Message: &rpcv1.ControlResponse_Role{Role: &rpcv1.Role{Standby: standby}}}
}

// Drain announces, once, that the agent goes away; nil when that was said, or
// before the hellos.
func (a *Agent) Drain(reason string) *rpcv1.ControlResponse {
	if a.draining || !a.agreed {
		return nil
	}
	a.draining = true
	return &rpcv1.ControlResponse{Message: &rpcv1.ControlResponse_Drain{Drain: &rpcv1.Drain{Reason: Reason(reason)}}}
}
