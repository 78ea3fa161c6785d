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
	// Renewed keeps what the hub answered to a request, PEM; the next
	// Certificate is the new one. An empty chain means that only the
	// authorities changed.
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
	// Refused, if set, is told of each certificate that the hub did not admit,
	// and for how long it has met every attempt with that. It must not block.
	Refused func(certificate *x509.Certificate, lasting time.Duration)
	// Roles says that one of several processes executes works at a time. The
	// agent then begins as a standby, and SetStandby changes that. Without it the
	// process is taken for the only one.
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
	// Err is why there is no session, or what the last attempt met; nil when
	// all is well.
	Err error
}

// Agent is the agent's end of the tunnel.
type Agent struct {
	config  AgentConfig
	process string
	http2   *agentHTTP2
	raw     *rawServer
	metrics *agentMetrics
	wake    chan struct{} // ends a pause before the next attempt

	mu      sync.Mutex
	standby bool
	terms   int // as the executor, that have ended
	links   int // pipes dialled so far
	live    map[*agentSession]struct{}
	status  Status
	denied  time.Time // the first of the refusals that the last attempts met; or zero
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
		config:  config,
		http2:   server,
		process: identity.NewID(),
		raw:     newRawServer(),
		metrics: newAgentMetrics(),
		wake:    make(chan struct{}, 1),
		standby: config.Roles,
		live:    map[*agentSession]struct{}{},
		status:  Status{Since: time.Now(), Err: ErrNeverConnected},
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

// Run connects, and connects again whenever that is needed, until the context
// ends. Then it tells the hub, lets streams in flight end for
// Limits.DrainGrace, and returns nil. An agent runs once.
func (a *Agent) Run(ctx context.Context) error {
	go a.raw.run()
	defer a.raw.close()
	var serving sync.WaitGroup
	a.keepConnected(ctx, &serving)
	a.shutDown()
	serving.Wait()
	return nil
}

// keepConnected has one session at a time, and a second one while it replaces
// the first.
func (a *Agent) keepConnected(ctx context.Context, serving *sync.WaitGroup) {
	failures, logged := 0, ""
	for a.pause(ctx, a.config.Backoff.wait(failures)) {
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
		case <-next.replace.Done():
			failures = a.next(next, failures)
		case <-ctx.Done():
		}
	}
}

// next counts failures: a session that ended soon is one, and so is one that the hub
// soon announced the end of. A hub that refuses a cluster does that, and whether the
// connection is still there for a moment is chance.
func (a *Agent) next(last *agentSession, failures int) int {
	a.config.Logger.V(1).Info("another session is needed", "reason", context.Cause(last.replace).Error())
	if time.Since(last.since) >= a.config.Backoff.Reset {
		return 0
	}
	return failures + 1
}

// Wake makes an agent that waits before its next attempt try now: call it when
// what the last attempt failed for has changed.
func (a *Agent) Wake() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// pause reports whether there is reason to go on after a wait.
func (a *Agent) pause(ctx context.Context, wait time.Duration) bool {
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

// connect makes one attempt to get a session that the hub has greeted.
func (a *Agent) connect(ctx context.Context, serving *sync.WaitGroup) (*agentSession, error) {
	began := time.Now()
	session, err := a.open(ctx)
	if err == nil {
		err = a.fits(session)
	}
	a.metrics.opened(time.Since(began), err)
	if err != nil {
		a.failed(err)
		return nil, err
	}
	a.entered(session)
	session.tellRole()
	serving.Go(func() {
		<-session.life.Done()
		a.left(session)
	})
	return session, nil
}

func (a *Agent) failed(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status.Err = err
	if !errors.Is(err, pipe.ErrRefused) {
		a.denied = time.Time{}
	}
}

// refused tells of a refusal.
func (a *Agent) refused(certificate *x509.Certificate) {
	a.mu.Lock()
	if a.denied.IsZero() {
		a.denied = time.Now()
	}
	lasting := time.Since(a.denied)
	a.mu.Unlock()
	if a.config.Refused != nil {
		a.config.Refused(certificate, lasting)
	}
}

func (a *Agent) entered(s *agentSession) {
	a.metrics.sessions.Inc()
	a.metrics.expiry.Set(float64(s.leaf.NotAfter.Unix()))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.live[s] = struct{}{}
	if !a.status.Connected {
		a.status.Since = time.Now()
	}
	a.status.Connected, a.status.Err = true, nil
	a.denied = time.Time{}
}

func (a *Agent) left(s *agentSession) {
	reason := context.Cause(s.life)
	a.metrics.sessions.Dec()
	a.metrics.ended(reason, s.wire.traffic())
	a.config.Logger.Info("session ended", "reason", reason.Error())
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.live, s)
	if len(a.live) == 0 {
		a.status = Status{Since: time.Now(), Err: reason}
	}
}

// shutDown ends every session in order, or by force after the grace.
func (a *Agent) shutDown() {
	a.mu.Lock()
	sessions := make([]*agentSession, 0, len(a.live))
	for s := range a.live {
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
		case <-s.life.Done():
		case <-ctx.Done():
			s.end(fmt.Errorf("%w: agent is shutting down: streams cut", ErrClosed))
		}
	}
}

// linkName is the name of the next pipe: the process's, and a number, since a
// process that replaces its session has two pipes for a while.
func (a *Agent) linkName() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.links++
	return fmt.Sprintf("%s-%d", a.process, a.links)
}
