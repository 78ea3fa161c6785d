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

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/spokelet/spokelet/tunnel/origin"
)

const (
	// maxBody is more than the API server sends: 3 MiB of a request and 1.5 MiB
	// of what is stored, unless they consist of characters that JSON escapes.
	maxBody = 8 << 20
	// bodies and hostBodies are what is read at once, of all and of one host.
	bodies     = 128 << 20
	hostBodies = 32 << 20

	headerTimeout  = 10 * time.Second
	readTimeout    = 10 * time.Second
	verdictTimeout = 8 * time.Second // less than the API server waits, to say why
	idleTimeout    = 90 * time.Second
	maxHeaderBytes = 16 << 10
	stopTimeout    = 5 * time.Second
)

// Server is the webhook. It is a manager.Runnable.
type Server struct {
	cfg     Config
	judge   judge
	room    *room
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
		cfg:     cfg,
		judge:   judge{access: cfg.Access, clusters: cfg.Clusters, limit: cfg.ManifestLimit, nilExecutor: cfg.NilExecutorValidating},
		room:    newRoom(bodies, hostBodies),
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
	err := server.ServeTLS(s.cfg.Listener, "", "")
	if stop() || !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(fmt.Errorf("admission: %w", err), server.Close())
	}
	<-stopped
	return nil
}

// server is the one place where the limits of a connection are set.
func (s *Server) server() *http.Server {
	mux := http.NewServeMux()
	mux.Handle("POST "+Path, s.door(s.judge.every))
	mux.Handle("POST "+AdoptedPath, s.door(s.judge.adopted))
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       headerTimeout + readTimeout,
		WriteTimeout:      headerTimeout + readTimeout + verdictTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		// Handshakes fail as often as somebody scans the port.
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(s.cfg.Logger.V(1)), slog.LevelInfo),
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: s.cfg.Certificate,
			NextProtos:     []string{"h2", "http/1.1"},
		},
	}
}

// verdict decides about a request, as judge.every does.
type verdict func(ctx context.Context, request *admissionv1.AdmissionRequest) error

// door answers reviews by a verdict. What is no review gets an HTTP error, which
// the API server takes as the webhook's failure.
func (s *Server) door(judge verdict) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, judge) })
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, judge verdict) {
	ctx, cancel := context.WithTimeout(r.Context(), verdictTimeout)
	defer cancel()
	size := r.ContentLength
	if size < 0 {
		size = maxBody
	}
	if size > maxBody {
		s.fail(w, "review is too large", http.StatusRequestEntityTooLarge)
		return
	}
	giveBack, err := s.room.take(ctx, hostOf(r), size)
	if err != nil {
		s.fail(w, "too many reviews at once", http.StatusTooManyRequests)
		return
	}
	defer giveBack()
	request, err := readReview(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		s.fail(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.answer(w, request.UID, s.decide(ctx, request, judge))
}

func (s *Server) fail(w http.ResponseWriter, message string, code int) {
	s.metrics.reviews.WithLabelValues(resultFailed).Inc()
	http.Error(w, message, code)
}

// decide judges, and counts.
func (s *Server) decide(ctx context.Context, request *admissionv1.AdmissionRequest, judge verdict) error {
	err := judge(ctx, request)
	switch {
	case err == nil:
		s.metrics.reviews.WithLabelValues(resultAllowed).Inc()
	case errors.Is(err, errUndecided):
		s.metrics.reviews.WithLabelValues(resultFailed).Inc()
		s.cfg.Logger.V(1).Info("manifestwork was not judged", "namespace", request.Namespace, "name", request.Name, "error", err.Error())
	default:
		s.metrics.reviews.WithLabelValues(resultRefused).Inc()
	}
	return err
}

func (s *Server) answer(w http.ResponseWriter, uid types.UID, refusal error) {
	response := &admissionv1.AdmissionResponse{UID: uid, Allowed: refusal == nil}
	if refusal != nil {
		response.Result = statusOf(refusal)
	}
	w.Header().Set("Content-Type", "application/json")
	review := admissionv1.AdmissionReview{TypeMeta: reviewType(), Response: response}
	if err := json.NewEncoder(w).Encode(review); err != nil {
		s.cfg.Logger.V(1).Info("answer was not delivered", "error", err.Error())
	}
}

func reviewType() metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}
}

// readReview reads the request of a review of version v1.
func readReview(body io.Reader) (*admissionv1.AdmissionRequest, error) {
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("review: cannot read: %w", err)
	}
	var review admissionv1.AdmissionReview
	if err := utiljson.Unmarshal(data, &review); err != nil {
		return nil, fmt.Errorf("review: cannot decode: %w", err)
	}
	if review.TypeMeta != reviewType() || review.Request == nil || review.Request.UID == "" {
		return nil, errors.New("review: not a request of AdmissionReview in version v1")
	}
	return review.Request, nil
}

// hostOf says whose part of the room a request takes.
func hostOf(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	return origin.Of(net.TCPAddrFromAddrPort(peer))
}
