// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/tunnel/control"
	"github.com/spokelet/spokelet/tunnel/identity"
	"github.com/spokelet/spokelet/tunnel/pipe"
	"github.com/spokelet/spokelet/tunnel/pipe/konnectivity"
)

// Admission decides which clusters may connect.
type Admission interface {
	// Admit is called when a pipe connects, with the cluster that the certificate
	// names. An error refuses the pipe; its text is not sent.
	Admit(ctx context.Context, c identity.Cluster) error
	// AdmitSpoke is called after the agent's hello, with the kube-system UID that
	// it states: anything, or none. An error refuses the session; its text is sent
	// to the agent.
	AdmitSpoke(ctx context.Context, c identity.Cluster, kubeSystemUID string) error
}

// Issuer renews certificates. An error's text is sent to the agent.
type Issuer interface {
	// Issue signs the request (PKCS#10, DER) of a connected cluster; it returns
	// the chain, leaf first, and the authorities to trust, both PEM.
	Issue(ctx context.Context, c identity.Cluster, csrDER []byte) (chainPEM, bundlePEM []byte, err error)
}

// ServerConfig says how the hub serves its public port.
type ServerConfig struct {
	// TLS gives the hub's own certificate and the authorities it trusts. It is
	// asked for every handshake, so that both may be replaced at any time. The
	// chain must hold the authority's certificate itself after the leaf: an
	// agent that enrols knows only its fingerprint. Required.
	TLS func() (*tls.Certificate, *x509.CertPool, error)
	// HubID is this hub's id, a UUID. Required.
	HubID string
	// Admission and Issuer are required.
	Admission Admission
	Issuer    Issuer
	// Enroll is the one service that is open to clients without certificate.
	// Nil serves none.
	Enroll rpcv1.EnrollServiceServer
	// Logger discards by default.
	Logger logr.Logger
	// Registerer receives the metrics, spokelet_tunnel_*. Nil registers none.
	Registerer prometheus.Registerer
	// Version is this build's, for people.
	Version string
	// Limits are defaulted.
	Limits Limits
}

// Default returns the configuration with its zero values replaced.
func (c ServerConfig) Default() ServerConfig {
	c.Limits = c.Limits.Default()
	if c.Logger.IsZero() {
		c.Logger = logr.Discard()
	}
	return c
}

// Validate reports every field of a defaulted configuration that is not usable.
func (c ServerConfig) Validate() error {
	errs := []error{identity.ValidateID(c.HubID), c.Limits.Validate()}
	if c.TLS == nil || c.Admission == nil || c.Issuer == nil {
		errs = append(errs, errors.New("tls, admission and issuer are required"))
	}
	return errors.Join(errs...)
}

// Server is the hub's end of all tunnels.
type Server struct {
	config   ServerConfig
	hello    control.Local
	sessions *Sessions
	metrics  *hubMetrics
	renewals renewalLimiter
	ready    atomic.Bool

	mu       sync.Mutex
	draining bool
	attempts map[string]map[*attempt]struct{} // by cluster: every pipe, from its first moment
	serving  sync.WaitGroup                   // pipes
}

// attempt is a pipe that is, or may become, a session.
type attempt struct{ cancel context.CancelCauseFunc }

var _ pipe.Handler = (*Server)(nil)

// NewServer returns a server that does not listen yet.
func NewServer(config ServerConfig) (*Server, error) {
	config = config.Default()
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("tunnel server: %w", err)
	}
	s := &Server{
		config:   config,
		hello:    newHello(config.Version, identity.NewID(), ""),
		sessions: newSessions(),
		attempts: map[string]map[*attempt]struct{}{},
	}
	s.hello.Features = []string{control.FeatureRole}
	s.sessions.onRivals = s.reportRivals
	s.metrics = newHubMetrics(s.sessions)
	if err := s.metrics.register(config.Registerer); err != nil {
		return nil, fmt.Errorf("tunnel server: %w", err)
	}
	return s, nil
}

func newHello(version, process, uid string) control.Local {
	return control.Local{
		MinProtocol:   control.MinProtocol,
		MaxProtocol:   control.MaxProtocol,
		Version:       version,
		ProcessID:     process,
		KubeSystemUID: uid,
	}
}

// Sessions knows who is connected.
func (s *Server) Sessions() *Sessions { return s.sessions }

// Ready reports whether the public port is served and not draining.
func (s *Server) Ready() bool { return s.ready.Load() }

// Serve serves the public port until the context ends, and then drains: new
// connections are refused, agents are told, and streams in flight have
// Limits.DrainGrace to end. The listener is closed. It returns nil after a
// drain.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server, err := s.publicServer()
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(newGate(l, s.config.Limits, s.metrics.countClosedConnection)) }()
	s.ready.Store(true)
	defer s.ready.Store(false)
	select {
	case err := <-failed:
		server.Stop()
		return fmt.Errorf("public port: %w", err)
	case <-ctx.Done():
	}
	s.ready.Store(false)
	_ = l.Close() // the server closes it again
	s.Drain("hub is shutting down")
	server.Stop()
	<-failed //nolint:errcheck // says that the listener is closed
	return nil
}

// publicServer makes the one gRPC server of the public port, with its limits.
func (s *Server) publicServer() (*grpc.Server, error) {
	pipes, err := konnectivity.NewHub(konnectivity.HubConfig{
		HubID:   s.config.HubID,
		Handler: s,
		Admit:   s.Admit,
		Logger:  s.config.Logger.WithName("pipe"),
	})
	if err != nil {
		return nil, err
	}
	config := publicTLS(s.config.TLS)
	options := append(pipes.ServerOptions(),
		grpc.Creds(konnectivity.Credentials(config)),
		grpc.ConnectionTimeout(s.config.Limits.HandshakeTimeout),
		grpc.MaxHeaderListSize(maxPublicHeader),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.ChainUnaryInterceptor(requireCertificateUnary),
		grpc.ChainStreamInterceptor(requireCertificateStream),
	)
	server := grpc.NewServer(options...)
	pipes.Register(server)
	if s.config.Enroll != nil {
		rpcv1.RegisterEnrollServiceServer(server, s.config.Enroll)
	}
	return server, nil
}

// maxPublicHeader bounds the header of a call on the public port.
const maxPublicHeader = 16 << 10

func requireCertificateUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := requireCertificate(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func requireCertificateStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := requireCertificate(stream.Context(), info.FullMethod); err != nil {
		return err
	}
	return next(srv, stream)
}

func requireCertificate(ctx context.Context, method string) error {
	if method == rpcv1.EnrollService_Enroll_FullMethodName {
		return nil
	}
	if _, ok := konnectivity.VerifiedLeaf(ctx); !ok {
		return status.Error(codes.Unauthenticated, "a client certificate is required")
	}
	return nil
}

// MarkTokenHolder marks the caller of Enroll, by its context, as the holder of a join
// token: connections without a token do not evict its connection.
func MarkTokenHolder(ctx context.Context) { konnectivity.MarkTokenHolder(ctx) }

// Admit decides on a pipe before anything is made for it; it is what a pipe's
// hub end is configured with.
func (s *Server) Admit(ctx context.Context, c identity.Cluster) error {
	if c.HubID != s.config.HubID {
		return fmt.Errorf("cluster %q: of hub %q: %w", c.Name, c.HubID, ErrIdentity)
	}
	if err := s.config.Admission.Admit(ctx, c); err != nil {
		s.metrics.countRefusal(c.Name, refusedAdmission)
		return err
	}
	return nil
}

// Disconnect cuts the sessions of a cluster at once, those that are still being
// set up too; their streams end in an error that wraps reason. It refuses
// nothing: Admission is what keeps the cluster out.
func (s *Server) Disconnect(cluster string, reason error) {
	s.mu.Lock()
	attempts := slices.Collect(maps.Keys(s.attempts[cluster]))
	s.mu.Unlock()
	for _, a := range attempts {
		a.cancel(reason)
	}
	for _, session := range s.sessions.listSessions() {
		if session.cluster.Name == cluster {
			session.closeWith(reason)
		}
	}
}

// Trust sends the authorities that agents are to trust, PEM, to every
// connected agent; call it when they change, once TLS gives the new ones. Agents that
// are away learn them with their next certificate. Sessions whose certificate the new
// authorities do not answer for end at once, warm ones and those that are still being
// set up included, with a reason that wraps ErrUntrusted.
func (s *Server) Trust(bundlePEM []byte) {
	sessions := s.sessions.listSessions()
	s.closeUntrusted(sessions...)
	var sending sync.WaitGroup
	for _, session := range sessions {
		sending.Go(func() {
			if err := session.control.sendTrustBundle(bundlePEM); err != nil {
				session.closeWith(fmt.Errorf("%w: trust bundle: %w", ErrLost, err))
			}
		})
	}
	sending.Wait()
}

// closeUntrusted closes the sessions whose certificate is not trusted any more. Their
// pipes end with them; nothing depends on the certificate that a pipe was opened with.
func (s *Server) closeUntrusted(sessions ...*Session) {
	_, authorities, err := s.config.TLS()
	if err != nil {
		s.config.Logger.Error(err, "certificates of sessions cannot be verified again")
		return
	}
	untrusted := map[*Session]error{}
	for _, session := range sessions {
		if _, err := verifyCluster(session.peerChain, authorities, x509.ExtKeyUsageServerAuth); err != nil {
			untrusted[session] = fmt.Errorf("%w: %w", ErrUntrusted, err)
		}
	}
	// All at once, so that none comes into use because another one ended.
	for session, reason := range untrusted {
		session.closeWith(reason)
	}
}

// Drain ends every session in order: it tells the agents why, takes no new
// pipes and streams, lets those in flight end for Limits.DrainGrace, and then
// cuts what is left. No events are delivered from then on. Serve calls it.
func (s *Server) Drain(reason string) {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	s.sessions.freeze()
	ctx, cancel := context.WithTimeout(context.Background(), s.config.Limits.DrainGrace)
	defer cancel()
	var draining sync.WaitGroup
	for _, session := range s.sessions.listSessions() {
		draining.Go(func() {
			go func() { _ = session.control.sendDrain(reason) }()
			session.drain(ctx, fmt.Errorf("%w: %s", ErrClosed, reason))
		})
	}
	draining.Wait()
	s.cancelAttempts(fmt.Errorf("%w: %s", ErrClosed, reason))
	s.serving.Wait()
}

func (s *Server) cancelAttempts(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, attempts := range s.attempts {
		for a := range attempts {
			a.cancel(reason)
		}
	}
}

// startAttempt registers a pipe for Disconnect and Drain.
func (s *Server) startAttempt(ctx context.Context, cluster string) (context.Context, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return nil, nil, ErrDraining
	}
	ctx, cancel := context.WithCancelCause(ctx)
	a := &attempt{cancel: cancel}
	if s.attempts[cluster] == nil {
		s.attempts[cluster] = map[*attempt]struct{}{}
	}
	s.attempts[cluster][a] = struct{}{}
	s.serving.Add(1)
	return ctx, func() { s.finishAttempt(cluster, a) }, nil
}

func (s *Server) finishAttempt(cluster string, a *attempt) {
	a.cancel(ErrClosed)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.attempts[cluster], a)
	if len(s.attempts[cluster]) == 0 {
		delete(s.attempts, cluster)
	}
	s.serving.Done()
}
