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
	"github.com/spokelet/spokelet/tunnel/origin"
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

// errLength is of bodies whose memory cannot be taken beforehand. The API server says
// how long its own are.
var errLength = errors.New("review: its length is not given")

// Server is the webhook. It is a manager.Runnable.
type Server struct {
	cfg    Config
	judge  judge
	record recorder
	memory *quota.Memory
	// large has a place for each large review that is decoded at a time.
	large   chan struct{}
	metrics *metrics
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
		cfg:   cfg,
		judge: judge{access: cfg.Access, clusters: cfg.Clusters, limit: cfg.ManifestLimit, nilExecutor: cfg.NilExecutorValidating},
		record: recorder{
			access: cfg.Access, self: cfg.Self, registration: cfg.Registration, stored: cfg.Stored, limits: cfg.Limits,
		},
		memory:  quota.NewMemory(hostReviews, reviews),
		large:   make(chan struct{}, 1),
		metrics: m,
	}, nil
}

// NeedLeaderElection says that every replica answers.
func (*Server) NeedLeaderElection() bool { return false }

// Start serves until ctx ends, and then until the reviews in flight are done.
func (s *Server) Start(ctx context.Context) error {
	server := s.server()
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
	err := server.ServeTLS(connlimit.New(s.cfg.Listener, connections()), "", "")
	if stop() || !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(fmt.Errorf("admission: %w", err), server.Close())
	}
	<-stopped
	return nil
}

// connections are the limits of those of the port. Callers are the API server's, and whoever
// sends a review.
func connections() connlimit.Limits {
	return connlimit.Limits{Strangers: 256, Callers: 256, StrangerTime: headerTimeout + readTimeout + verdictTimeout}
}

// server is the one place where the limits of a connection are set.
func (s *Server) server() *http.Server {
	mux := http.NewServeMux()
	mux.Handle("POST "+Path, s.door(validating(s.judge.every)))
	mux.Handle("POST "+AdoptedPath, s.door(validating(s.judge.adopted)))
	mux.Handle("POST "+AuthorsPath, s.door(s.record.record))
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

// reviewer decides about a request, and says what is to be changed of its object.
type reviewer func(ctx context.Context, request *request) ([]patch, error)

// validating is a reviewer that changes nothing, as judge.every.
func validating(validate func(ctx context.Context, request *request) error) reviewer {
	return func(ctx context.Context, request *request) ([]patch, error) { return nil, validate(ctx, request) }
}

// door answers reviews by a reviewer. What is no review gets an HTTP error, which
// the API server takes as the webhook's failure.
func (s *Server) door(by reviewer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, by) })
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, by reviewer) {
	ctx, cancel := context.WithTimeout(r.Context(), verdictTimeout)
	defer cancel()
	account := s.memory.Account(hostOf(r))
	defer account.Close()
	request, patches, err := s.review(ctx, w, r, account, by)
	if request != nil {
		connlimit.Welcome(r.Context())
	}
	switch {
	case errors.Is(err, errLength):
		s.fail(w, err, http.StatusLengthRequired)
	case errors.Is(err, quota.ErrTooLarge):
		s.fail(w, err, http.StatusRequestEntityTooLarge)
	case errors.Is(err, quota.ErrExhausted):
		// The API server comes again by this, as long as its own time lasts.
		w.Header().Set("Retry-After", "1")
		s.fail(w, fmt.Errorf("too many reviews at once: %w", err), http.StatusTooManyRequests)
	case request == nil:
		s.fail(w, err, http.StatusBadRequest)
	default:
		s.answer(w, request.UID, patches, err)
	}
}

// review reads a review and judges it. The request is nil if it cannot be read.
func (s *Server) review(ctx context.Context, w http.ResponseWriter, r *http.Request, account *quota.Account, by reviewer) (*request, []patch, error) {
	body, m, err := read(ctx, w, r, account)
	if err != nil {
		return nil, nil, err
	}
	if len(body) > largeBody {
		select {
		case s.large <- struct{}{}:
			defer func() { <-s.large }()
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("review: %d bytes: %w: %w", len(body), quota.ErrExhausted, context.Cause(ctx))
		}
	}
	request, err := readReview(body, m)
	if err != nil {
		return nil, nil, err
	}
	patches, err := s.decide(ctx, request, by)
	return request, patches, err
}

// read reads the body of a review, which is paid for before.
func read(ctx context.Context, w http.ResponseWriter, r *http.Request, account *quota.Account) ([]byte, *memory, error) {
	size := r.ContentLength
	if size < 0 {
		return nil, nil, errLength
	}
	if size > maxBody {
		return nil, nil, fmt.Errorf("review: %d bytes: %w", size, quota.ErrTooLarge)
	}
	m, err := newMemory(ctx, account, size)
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

func (s *Server) fail(w http.ResponseWriter, err error, code int) {
	s.metrics.reviews.WithLabelValues(resultFailed).Inc()
	http.Error(w, err.Error(), code)
}

// decide judges, and counts.
func (s *Server) decide(ctx context.Context, request *request, by reviewer) ([]patch, error) {
	patches, err := by(ctx, request)
	switch {
	case err == nil:
		s.metrics.reviews.WithLabelValues(resultAllowed).Inc()
	case errors.Is(err, quota.ErrExhausted): // serve counts it
	case errors.Is(err, errUndecided):
		s.metrics.reviews.WithLabelValues(resultFailed).Inc()
		s.cfg.Logger.V(1).Info("review was not decided", "namespace", request.Namespace, "name", request.Name, "error", err.Error())
	default:
		s.metrics.reviews.WithLabelValues(resultRefused).Inc()
	}
	return patches, err
}

func (s *Server) answer(w http.ResponseWriter, uid types.UID, patches []patch, refusal error) {
	response := &admissionv1.AdmissionResponse{UID: uid}
	if refusal == nil && len(patches) > 0 {
		response.PatchType = new(admissionv1.PatchTypeJSONPatch)
		response.Patch, refusal = json.Marshal(patches)
	}
	if response.Allowed = refusal == nil; !response.Allowed {
		response.Result = statusOf(refusal)
	}
	w.Header().Set("Content-Type", "application/json")
	review := admissionv1.AdmissionReview{TypeMeta: reviewType(), Response: response}
	if err := json.NewEncoder(w).Encode(review); err != nil {
		s.cfg.Logger.V(1).Info("answer was not delivered", "error", err.Error())
	}
}

// hostOf says whose part of the memory a review takes.
func hostOf(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	return origin.Of(net.TCPAddrFromAddrPort(peer))
}
