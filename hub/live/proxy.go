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
	"github.com/spokelet/spokelet/internal/httpproxy"
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
	board      *board
	sessions   Sessions
	authorizer authorizer.Authorizer
	buffers    httputil.BufferPool
	codecs     codecs
	requests   *requests
	errorLog   *log.Logger
	logger     logr.Logger
}

// before serves clusters/proxy and leaves the rest to next. The way through
// next would refuse a dry run, which is the cluster's to answer.
func (p *proxy) before(next http.Handler) http.Handler {
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

// passage is a request in whose favour everything is decided.
type passage struct {
	cluster   string
	path      string // on the cluster's API server, canonical
	protocol  string // to switch to, if any
	principal impersonation.Principal
	session   Session
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pass, err := p.admit(r)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	leave, err := p.requests.enter(pass.cluster, pass.principal.User)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	defer leave()
	if pass.protocol != "" {
		p.upgrade(w, r, pass)
		return
	}
	(&httputil.ReverseProxy{
		Rewrite:        func(pr *httputil.ProxyRequest) { pass.address(pr.Out) },
		Transport:      passable{RoundTripper: pass.session},
		BufferPool:     p.buffers,
		ErrorLog:       p.errorLog,
		ModifyResponse: func(res *http.Response) error { supersede(w.Header(), res.Header); return nil },
		ErrorHandler:   func(w http.ResponseWriter, r *http.Request, err error) { p.broken(w, r, pass, err) },
	}).ServeHTTP(w, r)
}

// admit decides about a request. Whatever goes wrong is an error, and nothing
// is forwarded.
func (p *proxy) admit(r *http.Request) (*passage, error) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok {
		return nil, apierrors.NewInternalError(errNoRequestInfo)
	}
	path, err := targetPath(r, info.Name)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	protocol, err := httpproxy.UpgradeOf(r)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	caller, err := callerOf(r.Context(), info.Name)
	if err != nil {
		return nil, err
	}
	if protocol != "" {
		if err := p.authorizeUpgrade(r.Context(), info); err != nil {
			return nil, err
		}
	}
	if !p.board.known(info.Name) {
		return nil, unknownCluster(info.Name)
	}
	session, err := p.sessions.Get(r.Context(), info.Name)
	if err != nil {
		return nil, unreachable(info.Name, err)
	}
	return &passage{cluster: info.Name, path: path, protocol: protocol, principal: caller, session: session}, nil
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

// callerOf is the principal on whose behalf a cluster is asked.
func callerOf(ctx context.Context, cluster string) (impersonation.Principal, error) {
	u, ok := request.UserFrom(ctx)
	if !ok {
		return impersonation.Principal{}, apierrors.NewUnauthorized("caller is unknown")
	}
	caller := principalOf(u)
	if err := caller.Validate(); err != nil {
		return impersonation.Principal{}, apierrors.NewForbidden(livev1alpha1.Resource(clustersResource), cluster, err)
	}
	return caller, nil
}

func principalOf(u user.Info) impersonation.Principal {
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

// address points out at the kube door, as the principal and nobody else.
func (pass *passage) address(out *http.Request) {
	out.URL = &url.URL{Scheme: "http", Host: kubeDoor, Path: pass.path, RawQuery: out.URL.RawQuery}
	out.Host = kubeDoor
	out.Trailer = nil
	assert(out.Context(), out.Header, pass.principal)
}

// assert replaces whatever h says about the caller, the caller's credentials
// included, by p, and carries the audit id along.
func assert(ctx context.Context, h http.Header, p impersonation.Principal) {
	impersonation.Scrub(h)
	delete(h, "Authorization")
	delete(h, "Cookie")
	for k := range h {
		if strings.HasPrefix(k, "X-Remote-") {
			delete(h, k)
		}
	}
	httpproxy.SetSocketProtocols(h, h)
	impersonation.Set(h, p)
	if id, ok := audit.AuditIDFrom(ctx); ok {
		h["Audit-Id"] = []string{string(id)}
	}
}

// passable gives the answers that may be passed on; any other is an error.
type passable struct {
	http.RoundTripper
	// switches says that the request is an upgrade, which 101 answers.
	switches bool
}

// RoundTrip implements http.RoundTripper.
func (p passable) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := p.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	created := res.StatusCode >= http.StatusOK && res.StatusCode < http.StatusMultipleChoices
	switch _, located := res.Header["Location"]; {
	case located && !created:
		err = fmt.Errorf("%w: %d", errRedirect, res.StatusCode)
	case p.switches && res.StatusCode == http.StatusSwitchingProtocols:
		return res, nil
	case res.StatusCode < http.StatusOK || res.StatusCode > 599:
		err = fmt.Errorf("%w: %d", errStatusCode, res.StatusCode)
	default:
		return res, nil
	}
	_ = res.Body.Close()
	return nil, err
}

// supersede removes what this server has put into the answer's header and the
// cluster's API server says too.
func supersede(own, theirs http.Header) {
	for k := range theirs {
		delete(own, k)
	}
}

// upgrade forwards an upgrade request over a raw stream of its own.
func (p *proxy) upgrade(w http.ResponseWriter, r *http.Request, pass *passage) {
	out := r.Clone(r.Context())
	out.RequestURI = ""
	out.Body = nil
	httpproxy.KeepUpgrade(out.Header, pass.protocol)
	pass.address(out)
	stream := followed{passable{switches: true, RoundTripper: httpproxy.SwitchTransport(func(ctx context.Context) (net.Conn, error) {
		return pass.session.Dial(ctx, kubeDoor)
	})}}
	if err := httpproxy.Exchange(w, out, stream); err != nil {
		p.broken(w, r, pass, err)
	}
}

// broken answers when the cluster gave no answer.
func (p *proxy) broken(w http.ResponseWriter, r *http.Request, pass *passage, err error) {
	if r.Context().Err() != nil {
		// Nobody waits for an answer; a broken stream is the honest one.
		panic(http.ErrAbortHandler)
	}
	p.refuse(w, r, unreachable(pass.cluster, err))
}

func (p *proxy) refuse(w http.ResponseWriter, r *http.Request, err error) {
	recordRefusal(p.logger, r, err)
	if r.ProtoMajor == 1 && len(r.Header["Upgrade"])+len(r.Header["Connection"]) > 0 {
		// What follows a refused upgrade on its connection is not HTTP.
		w.Header().Set("Connection", "close")
	}
	responsewriters.ErrorNegotiated(err, p.codecs, livev1alpha1.SchemeGroupVersion, w, r)
}
