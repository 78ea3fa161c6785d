// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
)

// Hub is the hub's side of one conversation. It is not safe for concurrent use.
type Hub struct {
	local    Local
	agreed   bool
	roles    bool // the agent tells its role
	pending  bool // a CSR waits for its answer
	draining bool // we said that we drain
}

// NewHub begins a conversation. The frame is to be sent first.
func NewHub(local Local) (*Hub, *rpcv1.ControlRequest) {
	hello := &rpcv1.ControlRequest{Message: &rpcv1.ControlRequest_Hello{Hello: local.hello()}}
	return &Hub{local: local}, hello
}

// Receive takes a frame of the agent. After an error the conversation is over.
func (h *Hub) Receive(frame *rpcv1.ControlResponse) (Event, error) {
	if hello := frame.GetHello(); hello != nil {
		return h.receiveHello(hello)
	}
	if !h.agreed {
		return nil, fmt.Errorf("frame before hello: %w", ErrOrder)
	}
	switch m := frame.GetMessage().(type) {
	case *rpcv1.ControlResponse_Csr:
		return h.receiveCSR(m.Csr.GetCsr())
	case *rpcv1.ControlResponse_Role:
		if !h.roles {
			return nil, fmt.Errorf("role: %w", ErrOrder)
		}
		return RoleChanged{Standby: m.Role.GetStandby()}, nil
	case *rpcv1.ControlResponse_Drain:
		return Draining{Reason: Reason(m.Drain.GetReason())}, nil
	default:
		return nil, nil
	}
}

func (h *Hub) receiveHello(hello *rpcv1.Hello) (Event, error) {
	if h.agreed {
		return nil, fmt.Errorf("second hello: %w", ErrOrder)
	}
	agreement, err := h.local.agree(hello)
	if err != nil {
		return nil, err
	}
	if agreement.ProcessID == "" {
		return nil, fmt.Errorf("hello: no process id: %w", ErrFrame)
	}
	h.agreed, h.roles = true, agreement.Roles()
	return Agreed{Agreement: agreement}, nil
}

func (h *Hub) receiveCSR(csr []byte) (Event, error) {
	if h.pending {
		return nil, fmt.Errorf("certificate request: %w", ErrPending)
	}
	if len(csr) == 0 || len(csr) > MaxCSR {
		return nil, fmt.Errorf("certificate request of %d bytes: %w", len(csr), ErrFrame)
	}
	h.pending = true
	return RenewalRequested{CSR: csr}, nil
}

// Issue answers the pending request with a certificate. The error is ErrOrder
// when there is none.
func (h *Hub) Issue(chain, bundle []byte) (*rpcv1.ControlRequest, error) {
	return h.answer(&rpcv1.CertificateIssued{CertificateChain: chain, TrustBundle: bundle})
}

// Refuse answers the pending request with a reason, which the agent's owner
// reads. The error is ErrOrder when there is none.
func (h *Hub) Refuse(reason string) (*rpcv1.ControlRequest, error) {
	return h.answer(&rpcv1.CertificateIssued{Error: Reason(reason)})
}

func (h *Hub) answer(issued *rpcv1.CertificateIssued) (*rpcv1.ControlRequest, error) {
	if !h.pending {
		return nil, fmt.Errorf("certificate: %w", ErrOrder)
	}
	h.pending = false
	return &rpcv1.ControlRequest{Message: &rpcv1.ControlRequest_Certificate{Certificate: issued}}, nil
}

// Trust replaces the authorities that the agent trusts. The error is ErrOrder
// before the hellos.
func (h *Hub) Trust(bundle []byte) (*rpcv1.ControlRequest, error) {
	if !h.agreed {
		return nil, fmt.Errorf("trust bundle: %w", ErrOrder)
	}
	trust := &rpcv1.TrustBundle{TrustBundle: bundle}
	return &rpcv1.ControlRequest{Message: &rpcv1.ControlRequest_TrustBundle{TrustBundle: trust}}, nil
}

// Drain announces, once, that the hub goes away; nil when that was said.
func (h *Hub) Drain(reason string) *rpcv1.ControlRequest {
	if h.draining {
		return nil
	}
	h.draining = true
	return &rpcv1.ControlRequest{Message: &rpcv1.ControlRequest_Drain{Drain: &rpcv1.Drain{Reason: Reason(reason)}}}
}
