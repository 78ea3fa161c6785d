// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokelet/spokelet/tunnel/identity"
	"github.com/spokelet/spokelet/tunnel/pipe"
	"github.com/spokelet/spokelet/tunnel/pipe/konnectivity"
)

// Credentials are the agent's certificate and trust, and where new ones go.
type Credentials interface {
	// Certificate returns what the next connection uses. It is asked for every
	// connection.
	Certificate() (cert *tls.Certificate, authorities *x509.CertPool, hubID string, err error)
	// NewRequest makes a certificate request, PKCS#10 in DER.
	NewRequest(ctx context.Context) (csrDER []byte, err error)
	// Renewed stores the answer of the hub to a request, PEM; Certificate returns
	// it from then on. An empty chain means that only the authorities changed.
	Renewed(ctx context.Context, chainPEM, bundlePEM []byte) error
}

// AgentConfig says how an agent connects and what it serves.
type AgentConfig struct {
	// Address of the hub's public port, host:port. Required.
	Address string
	// Credentials are required.
	Credentials Credentials
	// Doors are the handlers by authority (ParseDoor). DoorControl is not among
	// them. A raw stream to a door is an HTTP/1.1 connection of its handler.
	Doors map[string]http.Handler
	// Refused, if set, is called with each certificate that the hub refused, and
	// with the time since the first refusal in a row. It must not block.
	Refused func(certificate *x509.Certificate, lasting time.Duration)
	// Roles says that one of several processes executes works at a time. The
	// agent then begins as a standby, and SetStandby changes that. Without it the
	// hub takes the process for the only one.
	Roles bool
	// KubeSystemUID identifies the spoke.
	KubeSystemUID string
	// Version is this build's, for people.
	Version string
	// Logger discards by default.
	Logger logr.Logger
	// Registerer receives the metrics, spokelet_tunnel_*. Nil registers none.
	Registerer prometheus.Registerer
	// Limits and Backoff are defaulted.
	Limits  Limits
	Backoff Backoff
	// DialPipe opens a pipe. Konnectivity by default.
	DialPipe func(ctx context.Context, config pipe.DialConfig) (pipe.Link, error)
}

// Default returns the configuration with its zero values replaced.
func (c AgentConfig) Default() AgentConfig {
	c.Limits = c.Limits.Default()
	c.Backoff = c.Backoff.Default()
	if c.Logger.IsZero() {
		c.Logger = logr.Discard()
	}
	if c.DialPipe == nil {
		c.DialPipe = konnectivity.Dial
	}
	return c
}

// Validate reports every field of a defaulted configuration that is not usable.
func (c AgentConfig) Validate() error {
	errs := []error{c.Limits.Validate(), c.Backoff.Validate()}
	if c.Credentials == nil {
		errs = append(errs, errors.New("credentials are required"))
	}
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		errs = append(errs, fmt.Errorf("address: %w", err))
	}
	for door := range c.Doors {
		if _, err := ParseDoor(door); err != nil || door == DoorControl {
			errs = append(errs, fmt.Errorf("doors: %q: %w", door, ErrDoor))
		}
	}
	return errors.Join(errs...)
}

// Status is an agent's connection at one moment.
type Status struct {
	// Connected says that a session lives.
	Connected bool
	// Since is when that became so, or ceased to be.
	Since time.Time
	// Err is why there is no session, or why the last attempt failed; nil while
	// connected.
	Err error
}

// Agent is the agent's end of the tunnel.
type Agent struct {
	config       AgentConfig
	process      string
	http2        *agentHTTP2
	streamServer *rawServer
	metrics      *agentMetrics
	wake         chan struct{} // ends a pause before the next attempt

	mu           sync.Mutex
	standby      bool
	endedTerms   int // as the executor, that have ended
	pipesDialled int // pipes dialled so far
	sessions     map[*agentSession]struct{}
	status       Status
	refusedSince time.Time // the first of the refusals that the last attempts met; or zero
}

// NewAgent returns an agent that does nothing yet.
func NewAgent(config AgentConfig) (*Agent, error) {
	config = config.Default()
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("tunnel agent: %w", err)
	}
	server, err := newAgentHTTP2(config.Limits)
	if err != nil {
		return nil, fmt.Errorf("tunnel agent: %w", err)
	}
	a := &Agent{
		config:       config,
		http2:        server,
		process:      identity.NewID(),
		streamServer: newRawServer(),
		metrics:      newAgentMetrics(),
		wake:         make(chan struct{}, 1),
		standby:      config.Roles,
		sessions:     map[*agentSession]struct{}{},
		status:       Status{Since: time.Now(), Err: ErrNeverConnected},
	}
	if err := a.metrics.register(config.Registerer); err != nil {
		return nil, fmt.Errorf("tunnel agent: %w", err)
	}
	return a, nil
}

// Ready reports whether a session lives.
func (a *Agent) Ready() bool { return a.Status().Connected }

// Status describes the connection as it is now.
func (a *Agent) Status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

// Run keeps a session until the context ends. Then it drains: it informs the hub,
// gives streams in flight Limits.DrainGrace to end, and returns nil. An agent runs
// once.
func (a *Agent) Run(ctx context.Context) error {
	go a.streamServer.run()
	defer a.streamServer.close()
	var serving sync.WaitGroup
	a.keepConnected(ctx, &serving)
	a.drainSessions()
	serving.Wait()
	return nil
}

// keepConnected has one session at a time, and two while one replaces the other.
func (a *Agent) keepConnected(ctx context.Context, serving *sync.WaitGroup) {
	failures, logged := 0, ""
	for a.waitToRetry(ctx, a.config.Backoff.wait(failures)) {
		next, err := a.connect(ctx, serving)
		if err != nil {
			failures++
			// One line for each reason; the attempts are counted in the metrics.
			if reason := err.Error(); reason != logged {
				a.config.Logger.Info("hub not reached", "address", a.config.Address, "attempt", failures, "reason", reason)
				logged = reason
			}
			continue
		}
		logged = ""
		// The hub ends the session that this one replaces, when it is empty.
		select {
		case <-next.replaceCtx.Done():
			failures = a.countFailure(next, failures)
		case <-ctx.Done():
		}
	}
}

// countFailure returns the number of failures after a session. A session that ended soon
// is one, and so is one whose end the hub announced soon: that is how a hub refuses a
// cluster, whether or not the connection lasts a moment longer.
func (a *Agent) countFailure(last *agentSession, failures int) int {
	a.config.Logger.V(1).Info("another session is needed", "reason", context.Cause(last.replaceCtx).Error())
	if time.Since(last.connectedAt) >= a.config.Backoff.Reset {
		return 0
	}
	return failures + 1
}

// Wake ends the wait before the next attempt: call it when the cause of the last
// failure may have gone.
func (a *Agent) Wake() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// waitToRetry waits, and reports false when the context has ended.
func (a *Agent) waitToRetry(ctx context.Context, wait time.Duration) bool {
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-a.wake:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// connect makes one attempt to open a session.
func (a *Agent) connect(ctx context.Context, serving *sync.WaitGroup) (*agentSession, error) {
	began := time.Now()
	session, err := a.openSession(ctx)
	if err == nil {
		err = a.checkRole(session)
	}
	a.metrics.recordDial(time.Since(began), err)
	if err != nil {
		a.recordFailure(err)
		return nil, err
	}
	a.addSession(session)
	session.sendRole()
	serving.Go(func() {
		<-session.ctx.Done()
		a.removeSession(session)
	})
	return session, nil
}

func (a *Agent) recordFailure(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status.Err = err
	if !errors.Is(err, pipe.ErrRefused) {
		a.refusedSince = time.Time{}
	}
}

// reportRefusal calls AgentConfig.Refused.
func (a *Agent) reportRefusal(certificate *x509.Certificate) {
	a.mu.Lock()
	if a.refusedSince.IsZero() {
		a.refusedSince = time.Now()
	}
	lasting := time.Since(a.refusedSince)
	a.mu.Unlock()
	if a.config.Refused != nil {
		a.config.Refused(certificate, lasting)
	}
}

func (a *Agent) addSession(s *agentSession) {
	a.metrics.sessions.Inc()
	a.metrics.expiry.Set(float64(s.leaf.NotAfter.Unix()))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sessions[s] = struct{}{}
	if !a.status.Connected {
		a.status.Since = time.Now()
	}
	a.status.Connected, a.status.Err = true, nil
	a.refusedSince = time.Time{}
}

func (a *Agent) removeSession(s *agentSession) {
	reason := context.Cause(s.ctx)
	a.metrics.sessions.Dec()
	a.metrics.recordEnd(reason, s.flow.traffic())
	a.config.Logger.Info("session ended", "reason", reason.Error())
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.sessions, s)
	if len(a.sessions) == 0 {
		a.status = Status{Since: time.Now(), Err: reason}
	}
}

// drainSessions drains every session, and closes those that last longer than the grace.
func (a *Agent) drainSessions() {
	a.mu.Lock()
	sessions := make([]*agentSession, 0, len(a.sessions))
	for s := range a.sessions {
		sessions = append(sessions, s)
	}
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), a.config.Limits.DrainGrace)
	defer cancel()
	for _, s := range sessions {
		go s.drain("agent is shutting down")
	}
	for _, s := range sessions {
		select {
		case <-s.ctx.Done():
		case <-ctx.Done():
			s.closeWith(fmt.Errorf("%w: agent is shutting down: streams cut", ErrClosed))
		}
	}
}

// nextProcessName is the name of the next pipe: the process's, and a number, since a
// process that replaces its session has two pipes for a while.
func (a *Agent) nextProcessName() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pipesDialled++
	return fmt.Sprintf("%s-%d", a.process, a.pipesDialled)
}
