// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/api/rpc/v1/rpcv1connect"
	"github.com/spokelet/spokelet/tunnel/control"
)

// controlStream carries the frames, at the agent's end.
type controlStream = connect.BidiStream[rpcv1.ControlRequest, rpcv1.ControlResponse]

// agentControl is the agent's end of the control stream of one session.
type agentControl struct {
	session       *agentSession
	handler       http.Handler
	helloDone     chan struct{}      // closed after the hellos
	hubKnowsRoles bool               // the hub knows of roles; set before helloDone is closed
	renewal       chan control.Event // RenewalIssued, RenewalRefused
	trust         chan control.TrustReplaced

	mu             sync.Mutex // held while a frame is made and sent, for their order
	machine        *control.Agent
	endedTermsSent int // that the hub knows have ended
	opened         bool
	stream         *controlStream // nil unless the door is open
}

func newAgentControl(s *agentSession) *agentControl {
	config := s.agent.config
	local := newHello(config.Version, s.agent.process, config.KubeSystemUID)
	standby, terms := s.agent.currentRole()
	if config.Roles {
		local.Features, local.Standby = []string{control.FeatureRole}, standby
	}
	d := &agentControl{
		session:        s,
		helloDone:      make(chan struct{}),
		renewal:        make(chan control.Event, 1), // one request at a time
		trust:          make(chan control.TrustReplaced),
		endedTermsSent: terms,
		machine:        control.NewAgent(local),
	}
	_, d.handler = rpcv1connect.NewControlServiceHandler(d,
		connect.WithReadMaxBytes(control.MaxFrameBytes),
		connect.WithCompression("gzip", nil, nil), // as on the hub
	)
	return d
}

// Control serves the control stream; the session ends with it.
func (d *agentControl) Control(ctx context.Context, stream *controlStream) error {
	if !d.acquireStream(stream) {
		return connect.NewError(connect.CodeAlreadyExists, errors.New("control door is open already"))
	}
	defer d.releaseStream()
	err := d.receiveFrames(ctx, stream)
	if errors.Is(err, io.EOF) {
		// The end of the response must reach the hub before the connection closes,
		// so the hub, which asked for it, is the one to close.
		d.session.closeSoon(d.session.closeReason())
		return nil
	}
	d.session.closeSoon(fmt.Errorf("%w: control: %w", ErrLost, err))
	return connect.NewError(connect.CodeFailedPrecondition, err)
}

func (d *agentControl) acquireStream(stream *controlStream) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.opened {
		return false
	}
	d.opened, d.stream = true, stream
	return true
}

// releaseStream waits for a frame that is being sent: none may be sent after the
// handler has returned.
func (d *agentControl) releaseStream() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stream = nil
}

// send sends a frame. mu is held.
func (d *agentControl) send(frame *rpcv1.ControlResponse) error {
	if d.stream == nil {
		return fmt.Errorf("control: %w", ErrClosed)
	}
	return d.stream.Send(frame)
}

// receiveFrames handles frames until the stream ends: with io.EOF in order.
func (d *agentControl) receiveFrames(ctx context.Context, stream *controlStream) error {
	for {
		frame, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			return io.EOF
		}
		if err != nil {
			return err
		}
		event, err := d.receiveFrame(frame)
		if err != nil {
			return err
		}
		if err := d.handleEvent(ctx, event); err != nil {
			return err
		}
	}
}

// receiveFrame passes a frame to the state machine and sends its answer.
func (d *agentControl) receiveFrame(frame *rpcv1.ControlRequest) (control.Event, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	answer, event, err := d.machine.Receive(frame)
	// The hub uses the other doors as soon as it has our hello.
	if agreed, ok := event.(control.Agreed); ok {
		d.hubKnowsRoles = agreed.Agreement.Roles()
		close(d.helloDone)
	}
	if answer != nil {
		err = errors.Join(err, d.send(answer))
	}
	return event, err
}

func (d *agentControl) handleEvent(ctx context.Context, event control.Event) error {
	switch e := event.(type) {
	case control.RenewalIssued, control.RenewalRefused:
		d.renewal <- e // has room: the machine lets one answer through per request
	case control.TrustReplaced:
		select {
		case d.trust <- e:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	case control.Draining:
		d.session.requestReplacement(fmt.Errorf("%w: hub: %s", ErrDraining, e.Reason))
	}
	return nil
}

// sendDrain announces, once, that this session is to end.
func (d *agentControl) sendDrain(reason string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	frame := d.machine.Drain(reason)
	if frame == nil {
		return nil
	}
	return d.send(frame)
}

// sendRole sends the current role if the hub was sent another one before.
func (d *agentControl) sendRole() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	// Read with mu held: the last to get it sends the latest.
	standby, terms := d.session.agent.currentRole()
	if terms != d.endedTermsSent {
		// The end of a term ended its Sync: the hub opens another only if it learns
		// of that end, however soon the next term began.
		d.endedTermsSent = terms
		if err := d.sendRoleFrame(true); err != nil {
			return err
		}
	}
	return d.sendRoleFrame(standby)
}

// sendRoleFrame sends a role that the hub was not sent before. mu is held.
func (d *agentControl) sendRoleFrame(standby bool) error {
	frame := d.machine.Role(standby)
	if frame == nil || d.stream == nil {
		return nil // known already, or the stream has ended
	}
	return d.send(frame)
}

func (d *agentControl) sendRenewal(csr []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	frame, err := d.machine.Renew(csr)
	if err != nil {
		return err
	}
	return d.send(frame)
}

// expiryMargin is how much longer than the hub an agent keeps a session whose
// certificate has expired.
const expiryMargin = time.Second

// maintain does what a session owes to its certificates until it ends: renewal
// in time, replacement before the hub's certificate ends, and an end with the
// first of the two certificates.
func (s *agentSession) maintain() {
	// The hub goes first, and tells whoever has a stream why it ends.
	expiry := time.AfterFunc(time.Until(earliest(s.leaf.NotAfter, s.hubLeaf.NotAfter))+expiryMargin, func() { s.closeWith(ErrExpired) })
	defer expiry.Stop()
	hubs := time.AfterFunc(hubReplacementDelay(s.hubLeaf), func() {
		s.requestReplacement(fmt.Errorf("%w: the hub's certificate is about to expire", ErrDraining))
	})
	defer hubs.Stop()
	renewal := time.NewTimer(renewalDelay(s.leaf))
	defer renewal.Stop()
	for {
		select {
		case <-renewal.C:
			if err := s.requestRenewal(); err != nil {
				s.renewalFailed(err, renewal)
			}
		case e := <-s.control.renewal:
			if err := s.finishRenewal(e); err != nil {
				s.renewalFailed(err, renewal)
			}
		case e := <-s.control.trust:
			if err := s.agent.config.Credentials.Renewed(s.ctx, nil, e.Bundle); err != nil {
				s.agent.config.Logger.Error(err, "trust bundle not kept")
			}
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *agentSession) requestRenewal() error {
	csr, err := s.agent.config.Credentials.NewRequest(s.ctx)
	if err != nil {
		return err
	}
	return s.control.sendRenewal(csr)
}

// finishRenewal keeps the new certificate, and asks for a session that uses it.
func (s *agentSession) finishRenewal(e control.Event) error {
	issued, ok := e.(control.RenewalIssued)
	if !ok {
		refused, _ := e.(control.RenewalRefused)
		return fmt.Errorf("hub: %w: %s", ErrRefused, refused.Reason)
	}
	if err := s.agent.config.Credentials.Renewed(s.ctx, issued.Chain, issued.Bundle); err != nil {
		return err
	}
	s.agent.metrics.renewals.WithLabelValues(resultOK).Inc()
	s.requestReplacement(fmt.Errorf("%w: certificate renewed", ErrDraining))
	return nil
}

// renewalFailed tries again while there is time: more often towards the end.
func (s *agentSession) renewalFailed(err error, timer *time.Timer) {
	if s.ctx.Err() != nil {
		return
	}
	s.agent.metrics.renewals.WithLabelValues(resultError).Inc()
	s.agent.config.Logger.Error(err, "certificate not renewed", "notAfter", s.leaf.NotAfter)
	timer.Reset(max(time.Until(s.leaf.NotAfter)/10, time.Second))
}

// renewalDelay is the time until a certificate's renewal: a little before two
// thirds of its life, so that agents that joined together do not ask together,
// and never at once, so that a hub whose certificates are born old is not asked
// in a loop.
func renewalDelay(leaf *x509.Certificate) time.Duration {
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	early := rand.N(life/50 + 1) //nolint:gosec // spreads load, hides nothing
	return max(time.Until(control.RenewAt(leaf.NotBefore, leaf.NotAfter))-early, min(life/100, time.Minute))
}

// hubReplacementDelay is the time until a session should be replaced because of the
// hub's certificate: until a tenth of its life is left, and never at once.
func hubReplacementDelay(hub *x509.Certificate) time.Duration {
	life := hub.NotAfter.Sub(hub.NotBefore)
	return max(time.Until(hub.NotAfter)-life/10, min(life/100, time.Minute))
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
