// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
	"github.com/spokelet/spokelet/internal/bufpool"
	"github.com/spokelet/spokelet/internal/httpproxy"
	"github.com/spokelet/spokelet/internal/httpproxy/spdy"
	"github.com/spokelet/spokelet/internal/impersonation"
)

const (
	proxySubresource = "proxy"
	// kubeDoor is the agent's door to the API server of its cluster.
	kubeDoor = "kube"
)

// proxy serves clusters/proxy. The chain before it has authenticated the
// caller and authorized the verb of the request's method.
type proxy struct {
	store      *clusterStore
	sessions   Sessions
	authorizer authorizer.Authorizer
	codecs     codecs
	requests   *requestLimiter
	errorLog   *log.Logger
	logger     logr.Logger
}

// wrap serves clusters/proxy and leaves the rest to next. The way through
// next would refuse a dry run, which is the cluster's to answer.
func (p *proxy) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if ok && info.APIGroup == livev1alpha1.GroupName && info.APIVersion == livev1alpha1.SchemeGroupVersion.Version &&
			info.Resource == clustersResource && info.Subresource == proxySubresource {
			p.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// proxyRequest is a request in whose favour everything is decided.
type proxyRequest struct {
	cluster         string
	path            string // on the cluster's API server, canonical
	upgradeProtocol string // to switch to, if any
	principal       impersonation.Principal
	session         Session
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pass, err := p.resolveRequest(r)
	if err != nil {
		p.writeError(w, r, err)
		return
	}
	leave, err := p.requests.acquire(pass.cluster, pass.principal.User)
	if err != nil {
		p.writeError(w, r, err)
		return
	}
	defer leave()
	if pass.upgradeProtocol != "" {
		p.serveUpgrade(w, r, pass)
		return
	}
	(&httputil.ReverseProxy{
		Rewrite:        func(pr *httputil.ProxyRequest) { pass.rewrite(pr.Out) },
		Transport:      checkedTransport{RoundTripper: pass.session},
		BufferPool:     bufpool.Proxy{},
		ErrorLog:       p.errorLog,
		ModifyResponse: func(res *http.Response) error { removeOverridden(w.Header(), res.Header); return nil },
		ErrorHandler:   func(w http.ResponseWriter, r *http.Request, err error) { p.handleError(w, r, pass, err) },
	}).ServeHTTP(w, r)
}

// resolveRequest decides about a request. Whatever goes wrong is an error, and nothing
// is forwarded.
func (p *proxy) resolveRequest(r *http.Request) (*proxyRequest, error) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok {
		return nil, apierrors.NewInternalError(errNoRequestInfo)
	}
	path, err := targetPath(r, info.Name)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	protocol, err := httpproxy.UpgradeProtocol(r)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	caller, err := principalFrom(r.Context(), info.Name)
	if err != nil {
		return nil, err
	}
	if protocol != "" {
		if err := p.authorizeUpgrade(r.Context(), info); err != nil {
			return nil, err
		}
	}
	if !p.store.exists(info.Name) {
		return nil, newClusterNotFound(info.Name)
	}
	session, err := p.sessions.Get(r.Context(), info.Name)
	if err != nil {
		return nil, newUnreachableError(info.Name, err)
	}
	return &proxyRequest{cluster: info.Name, path: path, upgradeProtocol: protocol, principal: caller, session: session}, nil
}

// targetPath returns the path on the cluster's API server. The cluster in the
// path is the one that was authorized, or there is no path.
func targetPath(r *http.Request, cluster string) (string, error) {
	path, err := httpproxy.Path(r)
	if err != nil {
		return "", err
	}
	rest, ok := strings.CutPrefix(path, proxyPrefix+cluster+"/"+proxySubresource)
	switch {
	case !ok || cluster == "" || (rest != "" && rest[0] != '/'):
		return "", httpproxy.ErrPath
	case rest == "":
		return "/", nil
	default:
		return rest, nil
	}
}

// proxyPrefix precedes the cluster's name in the paths of clusters/proxy.
const proxyPrefix = "/apis/" + livev1alpha1.GroupName + "/v1alpha1/" + clustersResource + "/"

// principalFrom is the principal on whose behalf a cluster is asked.
func principalFrom(ctx context.Context, cluster string) (impersonation.Principal, error) {
	u, ok := request.UserFrom(ctx)
	if !ok {
		return impersonation.Principal{}, apierrors.NewUnauthorized("caller is unknown")
	}
	caller := newPrincipal(u)
	if err := caller.Validate(); err != nil {
		return impersonation.Principal{}, apierrors.NewForbidden(livev1alpha1.Resource(clustersResource), cluster, err)
	}
	return caller, nil
}

func newPrincipal(u user.Info) impersonation.Principal {
	return impersonation.Principal{Kind: impersonation.User, User: u.GetName(), Groups: u.GetGroups()}
}

// authorizeUpgrade asks for create, whatever the method: a WebSocket begins
// with a GET and may run a command.
func (p *proxy) authorizeUpgrade(ctx context.Context, info *request.RequestInfo) error {
	u, _ := request.UserFrom(ctx)
	decision, reason, err := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User:            u,
		Verb:            "create",
		APIGroup:        info.APIGroup,
		APIVersion:      info.APIVersion,
		Resource:        info.Resource,
		Subresource:     info.Subresource,
		Name:            info.Name,
		ResourceRequest: true,
		Path:            info.Path,
	})
	if decision == authorizer.DecisionAllow && err == nil {
		return nil
	}
	if err != nil {
		reason = err.Error()
	}
	return apierrors.NewForbidden(livev1alpha1.Resource(clustersResource+"/"+proxySubresource), info.Name,
		errors.New("an upgrade needs the verb create: "+reason))
}

// rewrite points out at the kube door, as the principal and nobody else.
func (pass *proxyRequest) rewrite(out *http.Request) {
	out.URL = &url.URL{Scheme: "http", Host: kubeDoor, Path: pass.path, RawQuery: out.URL.RawQuery}
	out.Host = kubeDoor
	out.Trailer = nil
	setIdentity(out.Context(), out.Header, pass.principal)
}

// setIdentity replaces whatever h says about the caller, the caller's credentials
// included, by p, and carries the audit id along.
func setIdentity(ctx context.Context, h http.Header, p impersonation.Principal) {
	impersonation.Scrub(h)
	delete(h, "Authorization")
	delete(h, "Cookie")
	for k := range h {
		if strings.HasPrefix(k, "X-Remote-") {
			delete(h, k)
		}
	}
	httpproxy.SetWebSocketProtocols(h, h)
	impersonation.Set(h, p)
	if id, ok := audit.AuditIDFrom(ctx); ok {
		h["Audit-Id"] = []string{string(id)}
	}
}

// checkedTransport gives the answers that may be passed on; any other is an error.
type checkedTransport struct {
	http.RoundTripper
	// isUpgrade says that the request is an upgrade, which 101 answers.
	isUpgrade bool
}

func (p checkedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := p.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	created := res.StatusCode >= http.StatusOK && res.StatusCode < http.StatusMultipleChoices
	switch _, located := res.Header["Location"]; {
	case located && !created:
		err = fmt.Errorf("%w: %d", errRedirect, res.StatusCode)
	case p.isUpgrade && res.StatusCode == http.StatusSwitchingProtocols:
		return res, nil
	case res.StatusCode < http.StatusOK || res.StatusCode > 599:
		err = fmt.Errorf("%w: %d", errStatusCode, res.StatusCode)
	default:
		return res, nil
	}
	_ = res.Body.Close()
	return nil, err
}

// removeOverridden removes what this server has put into the answer's header and the
// cluster's API server says too.
func removeOverridden(own, theirs http.Header) {
	for k := range theirs {
		delete(own, k)
	}
}

// serveUpgrade forwards an upgrade request over a raw stream of its own.
func (p *proxy) serveUpgrade(w http.ResponseWriter, r *http.Request, pass *proxyRequest) {
	out := r.Clone(r.Context())
	out.RequestURI = ""
	out.Body = nil
	httpproxy.SetUpgrade(out.Header, pass.upgradeProtocol)
	pass.rewrite(out)
	stream := checkedTransport{isUpgrade: true, RoundTripper: httpproxy.NewSessionTransport(func(ctx context.Context) (net.Conn, error) {
		return pass.session.Dial(ctx, kubeDoor)
	})}
	ended := make(chan struct{})
	err := httpproxy.ProxyUpgrade(r.Context(), w, out, stream, httpproxy.Options{
		FrameFilter: spdy.Filter,
		OnEnd:       func(error) { close(ended) },
	})
	if err != nil {
		p.handleError(w, r, pass, err)
		return
	}
	<-ended
}

// handleError answers when the cluster gave no answer.
func (p *proxy) handleError(w http.ResponseWriter, r *http.Request, pass *proxyRequest, err error) {
	if r.Context().Err() != nil {
		// Nobody waits for an answer; a broken stream is the honest one.
		panic(http.ErrAbortHandler)
	}
	p.writeError(w, r, newUnreachableError(pass.cluster, err))
}

func (p *proxy) writeError(w http.ResponseWriter, r *http.Request, err error) {
	logRefusal(p.logger, r, err)
	if r.ProtoMajor == 1 && len(r.Header["Upgrade"])+len(r.Header["Connection"]) > 0 {
		// What follows a refused upgrade on its connection is not HTTP.
		w.Header().Set("Connection", "close")
	}
	responsewriters.ErrorNegotiated(err, p.codecs, livev1alpha1.SchemeGroupVersion, w, r)
}
