// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/internal/connlimit"
	"github.com/spokelet/spokelet/internal/quota"
)

const (
	headerTimeout  = 10 * time.Second
	readTimeout    = 5 * time.Second // of a body, whose memory is taken meanwhile
	verdictTimeout = 8 * time.Second // less than the API server waits, to say why
	idleTimeout    = 90 * time.Second
	maxHeaderBytes = 16 << 10
	// Bytes of bodies that nobody has read yet wait in windows of HTTP/2.
	maxStreams  = 64
	maxWindow   = 64 << 10
	stopTimeout = 5 * time.Second
)

// errLength is the error of bodies whose memory cannot be taken beforehand. The API server says
// how long its own are.
var errLength = errors.New("review: its length is not given")

// Server is the webhook. It is a manager.Runnable.
type Server struct {
	cfg       Config
	validator validator
	recorder  requesterRecorder
	memory    *quota.Memory
	// largeReviews has a place for each large review that is decoded at a time.
	largeReviews chan struct{}
	metrics      *metrics
}

// New makes a server.
func New(cfg Config) (*Server, error) {
	cfg.Default()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	return &Server{
		cfg:       cfg,
		validator: validator{access: cfg.Access, clusters: cfg.Clusters, limit: cfg.ManifestLimit, nilExecutor: cfg.NilExecutorValidating},
		recorder: requesterRecorder{
			access: cfg.Access, self: cfg.Self, registration: cfg.Registration, usage: cfg.Stored, limits: cfg.Limits,
		},
		memory:       quota.NewMemory(maxHostMemory, maxReviewMemory),
		largeReviews: make(chan struct{}, 1),
		metrics:      m,
	}, nil
}

// NeedLeaderElection is false: every replica serves.
func (*Server) NeedLeaderElection() bool { return false }

// Start serves until ctx ends, and then until the reviews in flight are done.
func (s *Server) Start(ctx context.Context) error {
	server := s.newHTTPServer()
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if server.Shutdown(ending) != nil {
			_ = server.Close() // what did not end in time is cut
		}
	})
	// The certificate comes from TLSConfig.
	err := server.ServeTLS(connlimit.New(s.cfg.Listener, connectionLimits()), "", "")
	if stop() || !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(fmt.Errorf("admission: %w", err), server.Close())
	}
	<-stopped
	return nil
}

// connectionLimits are the limits of those of the port. Callers are the API server's, and whoever
// sends a review.
func connectionLimits() connlimit.Limits {
	return connlimit.Limits{Unauthorized: 256, Idle: 256, UnauthorizedTimeout: headerTimeout + readTimeout + verdictTimeout}
}

// newHTTPServer is the one place where the limits of a connection are set.
func (s *Server) newHTTPServer() *http.Server {
	mux := http.NewServeMux()
	mux.Handle("POST "+Path, s.handler(newValidatingReviewer(s.validator.validate)))
	mux.Handle("POST "+AdoptedPath, s.handler(newValidatingReviewer(s.validator.validateAdopted)))
	mux.Handle("POST "+RequestersPath, s.handler(s.recorder.mutate))
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       headerTimeout + readTimeout,
		WriteTimeout:      headerTimeout + readTimeout + verdictTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext:       connlimit.Context,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReceiveBufferPerStream:     maxWindow,
			MaxReceiveBufferPerConnection: maxWindow,
		},
		// Handshakes fail as often as somebody scans the port.
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(s.cfg.Logger.V(1)), slog.LevelInfo),
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: s.cfg.Certificate,
			NextProtos:     []string{"h2", "http/1.1"},
		},
	}
}

// reviewFunc decides about a request, and returns the changes of its object.
type reviewFunc func(ctx context.Context, request *reviewRequest) ([]patch, error)

// newValidatingReviewer is a reviewer that changes nothing, as judge.every.
func newValidatingReviewer(validate func(ctx context.Context, request *reviewRequest) error) reviewFunc {
	return func(ctx context.Context, request *reviewRequest) ([]patch, error) { return nil, validate(ctx, request) }
}

// handler answers reviews by a reviewer. What is no review gets an HTTP error, which
// the API server takes as the webhook's failure.
func (s *Server) handler(by reviewFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, by) })
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, by reviewFunc) {
	ctx, cancel := context.WithTimeout(r.Context(), verdictTimeout)
	defer cancel()
	account := s.memory.Account(clientHost(r))
	defer account.Close()
	request, patches, err := s.review(ctx, w, r, account, by)
	if request != nil {
		connlimit.MarkAuthorized(r.Context())
	}
	switch {
	case errors.Is(err, errLength):
		s.writeError(w, err, http.StatusLengthRequired)
	case errors.Is(err, quota.ErrTooLarge):
		s.writeError(w, err, http.StatusRequestEntityTooLarge)
	case errors.Is(err, quota.ErrExhausted):
		// The API server comes again by this, as long as its own time lasts.
		w.Header().Set("Retry-After", "1")
		s.writeError(w, fmt.Errorf("too many reviews at once: %w", err), http.StatusTooManyRequests)
	case request == nil:
		s.writeError(w, err, http.StatusBadRequest)
	default:
		s.writeResponse(w, request.UID, patches, err)
	}
}

// review reads a review and judges it. The request is nil if it cannot be read.
func (s *Server) review(ctx context.Context, w http.ResponseWriter, r *http.Request, account *quota.Account, by reviewFunc) (*reviewRequest, []patch, error) {
	body, m, err := readBody(ctx, w, r, account)
	if err != nil {
		return nil, nil, err
	}
	if len(body) > largeBodyBytes {
		select {
		case s.largeReviews <- struct{}{}:
			defer func() { <-s.largeReviews }()
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("review: %d bytes: %w: %w", len(body), quota.ErrExhausted, context.Cause(ctx))
		}
	}
	request, err := readReview(body, m)
	if err != nil {
		return nil, nil, err
	}
	patches, err := s.runReviewer(ctx, request, by)
	return request, patches, err
}

// readBody reads the body of a review, which is paid for before.
func readBody(ctx context.Context, w http.ResponseWriter, r *http.Request, account *quota.Account) ([]byte, *memoryReservation, error) {
	size := r.ContentLength
	if size < 0 {
		return nil, nil, errLength
	}
	if size > maxBodyBytes {
		return nil, nil, fmt.Errorf("review: %d bytes: %w", size, quota.ErrTooLarge)
	}
	m, err := reserveMemory(ctx, account, size)
	if err != nil {
		return nil, nil, err
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(readTimeout)) // what has none is a test's
	body := make([]byte, size)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return nil, nil, fmt.Errorf("review: cannot read: %w", err)
	}
	// Left in force it would end the context of the verdict.
	_ = control.SetReadDeadline(time.Time{})
	// Each byte that is no UTF-8 would become three in what is decoded.
	if !utf8.Valid(body) {
		return nil, nil, errReview
	}
	return body, m, nil
}

func (s *Server) writeError(w http.ResponseWriter, err error, code int) {
	s.metrics.reviewsTotal.WithLabelValues(resultFailed).Inc()
	http.Error(w, err.Error(), code)
}

// runReviewer judges, and counts.
func (s *Server) runReviewer(ctx context.Context, request *reviewRequest, by reviewFunc) ([]patch, error) {
	patches, err := by(ctx, request)
	switch {
	case err == nil:
		s.metrics.reviewsTotal.WithLabelValues(resultAllowed).Inc()
	case errors.Is(err, quota.ErrExhausted): // serve counts it
	case errors.Is(err, errInternal):
		s.metrics.reviewsTotal.WithLabelValues(resultFailed).Inc()
		s.cfg.Logger.V(1).Info("review was not decided", "namespace", request.Namespace, "name", request.Name, "error", err.Error())
	default:
		s.metrics.reviewsTotal.WithLabelValues(resultRefused).Inc()
	}
	return patches, err
}

func (s *Server) writeResponse(w http.ResponseWriter, uid types.UID, patches []patch, refusal error) {
	response := &admissionv1.AdmissionResponse{UID: uid}
	if refusal == nil && len(patches) > 0 {
		response.PatchType = new(admissionv1.PatchTypeJSONPatch)
		response.Patch, refusal = json.Marshal(patches)
	}
	if response.Allowed = refusal == nil; !response.Allowed {
		response.Result = newStatus(refusal)
	}
	w.Header().Set("Content-Type", "application/json")
	review := admissionv1.AdmissionReview{TypeMeta: reviewType(), Response: response}
	if err := json.NewEncoder(w).Encode(review); err != nil {
		s.cfg.Logger.V(1).Info("answer was not delivered", "error", err.Error())
	}
}

// clientHost returns the host whose part of the memory a review uses.
func clientHost(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	return connlimit.HostOf(net.TCPAddrFromAddrPort(peer))
}
