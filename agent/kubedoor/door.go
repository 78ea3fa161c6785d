// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubedoor

import (
	"context"
	"log"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"strings"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/internal/bufpool"
	"github.com/spokelet/spokelet/internal/httpproxy"
	"github.com/spokelet/spokelet/internal/impersonation"
)

// Door is the http.Handler behind the door "kube".
type Door struct {
	cfg      Config
	upstream *upstream
	proxy    *httputil.ReverseProxy
}

// New makes a door. The configuration is defaulted and validated.
func New(cfg Config) (*Door, error) {
	cfg.Default()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	b, err := newUpstream(cfg.Rest)
	if err != nil {
		return nil, err
	}
	d := &Door{cfg: cfg, upstream: b}
	d.proxy = &httputil.ReverseProxy{
		Rewrite:      d.rewrite,
		Transport:    b.pool,
		BufferPool:   bufpool.Proxy{},
		ErrorHandler: d.handleError,
		ErrorLog:     errorLog(cfg.Logger),
		// FlushInterval stays 0: ReverseProxy passes on at once whatever has no
		// length, as watches and logs.
	}
	return d, nil
}

// admitted is a request that passed every check.
type admitted struct {
	path string
	// query replaces that of the request, unless it is nil.
	query    *string
	protocol string
	identity identity
}

type admittedKey struct{}

// ServeHTTP forwards a request that is admitted, and answers all others with a Status.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, refusal := d.admit(r)
	if refusal != nil {
		caller, _ := impersonation.From(r.Header) // nobody, unless exactly one is stated
		d.logRefusal(r, caller, refusal)
		writeStatus(w, r, refusal)
		return
	}
	if a.protocol != "" {
		d.upgrade(w, r, a)
		return
	}
	d.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), admittedKey{}, a)))
}

// logRefusal logs a refused request. Admitted requests are in the API server's own
// audit log.
func (d *Door) logRefusal(r *http.Request, caller impersonation.Principal, refusal *metav1.Status) {
	d.cfg.Logger.Info("Request refused", "principal", caller.Kind, "user", caller.User, "verb", r.Method, "path", r.URL.Path,
		"decision", "Deny", "code", refusal.Code, "reason", refusal.Message, "auditID", r.Header.Get("Audit-Id"))
}

// rewrite turns the inbound request into the one for the API server. Reading
// the decision from the context keeps one ReverseProxy for all requests.
func (d *Door) rewrite(pr *httputil.ProxyRequest) {
	d.setTarget(pr.Out, pr.In.Context().Value(admittedKey{}).(*admitted)) //nolint:forcetypeassert // ServeHTTP has put it there
}

// setTarget directs out to the API server, with the path that was checked and the
// identity that was decided.
func (d *Door) setTarget(out *http.Request, a *admitted) {
	u := *d.upstream.base
	u.Path = strings.TrimSuffix(u.Path, "/") + a.path
	u.RawPath = ""
	u.RawQuery = out.URL.RawQuery
	if a.query != nil {
		u.RawQuery = *a.query
	}
	out.URL = &u
	out.Host = u.Host
	out.Trailer = nil
	a.identity.setHeaders(out.Header)
}

// upgrade forwards an upgrade request over a connection of its own. The stream
// outlives the request, and ends with one of its two connections.
func (d *Door) upgrade(w http.ResponseWriter, r *http.Request, a *admitted) {
	// An upgrade request with a body could hide a second request in it.
	out := r.Clone(r.Context())
	out.RequestURI = ""
	out.Body = nil
	out.ContentLength = 0
	httpproxy.SetUpgrade(out.Header, a.protocol)
	d.setTarget(out, a)
	path, auditID, log := a.path, r.Header.Get("Audit-Id"), d.cfg.Logger // no more is held of the request
	onEnd := func(cause error) {
		if cause != nil { // the hub sees that the stream was cut, but not why
			log.V(1).Info("Stream was cut", "path", path, "auditID", auditID, "reason", cause.Error())
		}
	}
	if err := httpproxy.ProxyUpgrade(context.Background(), w, out, d.upstream.upgrades, httpproxy.Options{OnEnd: onEnd}); err != nil {
		d.handleError(w, r, err)
	}
}

// handleError answers a request that the API server did not answer.
func (d *Door) handleError(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		// Nobody waits for an answer; a broken stream is the honest one.
		panic(http.ErrAbortHandler)
	}
	d.cfg.Logger.Error(err, "Cannot reach the API server", "method", r.Method)
	writeStatus(w, r, statusUnavailable(err))
}

func errorLog(l logr.Logger) *log.Logger {
	return slog.NewLogLogger(logr.ToSlogHandler(l), slog.LevelDebug)
}
