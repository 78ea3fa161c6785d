// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudflare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/spokelet/spokelet/internal/connlimit"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/workers/access"
	"github.com/spokelet/spokelet/workers/deployer"
	"github.com/spokelet/spokelet/workers/script"
)

const (
	// bodyTimeout is how long the body of a request may take to arrive, uploadTimeout that of an
	// upload.
	bodyTimeout   = 20 * time.Second
	uploadTimeout = 2 * time.Minute
	// answerTimeout is how long an answer may take from then on; a deployment is waited for.
	answerTimeout = 4 * time.Minute
	// maxBody bounds the body of a request that is no upload, in bytes.
	maxBody = 2 << 20
	// maxDrained is how much of a refused upload is read, so that the client reads the answer.
	maxDrained = 64 << 20
)

// call is an authenticated request.
type call struct {
	*http.Request

	user    authenticationv1.UserInfo
	account deployer.Account
	script  string
	token   *token
	memory  *bodyMemory
	control *http.ResponseController
}

// setBodyDeadline limits how long the body may take to arrive. Servers of net/http support it.
func (c *call) setBodyDeadline(d time.Duration) { _ = c.control.SetReadDeadline(time.Now().Add(d)) }

// clearBodyDeadline removes the limit once the body was read to its end: while a deployment is
// waited for nothing is read, and an expired deadline would break the connection. The rest of an
// unread body is read by the server within the limit.
func (c *call) clearBodyDeadline() { _ = c.control.SetReadDeadline(time.Time{}) }

// author returns the caller as the author of a change.
func (c *call) author(message string) deployer.Author {
	return deployer.Author{Name: c.user.Username, Message: message}
}

// readBody returns a body that is no upload, and charges the memory to decode it.
func (c *call) readBody() ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(meteredBody{c.Body, c.memory}, maxBody+1))
	failed, refused := errors.AsType[*apiError](err)
	switch {
	case refused:
		return nil, failed
	case err != nil:
		return nil, newAPIError(http.StatusBadRequest, codeInvalid, "the request ended before its body did")
	case len(raw) > maxBody:
		return nil, newAPIError(http.StatusRequestEntityTooLarge, codeTooLarge, fmt.Sprintf("the body has more than %d bytes", maxBody))
	}
	c.clearBodyDeadline()
	return raw, c.memory.Grow(quota.DecodedJSON(raw))
}

// meteredBody charges memory for a body as it arrives: twice its bytes, because the buffer of the
// reader doubles as it grows.
type meteredBody struct {
	body   io.Reader
	memory *bodyMemory
}

func (p meteredBody) Read(b []byte) (int, error) {
	n, err := p.body.Read(b)
	if refused := p.memory.Grow(2 * int64(n)); refused != nil {
		return 0, refused
	}
	return n, err
}

// handler handles a call.
type handler func(ctx context.Context, c *call) (result any, err error)

// handleRoute registers a route. verb is the required permission on WorkerDeployments of the
// account's namespace; if it is empty, a valid token is enough.
func (a *API) handleRoute(pattern, verb string, h handler) {
	a.patterns = append(a.patterns, pattern)
	method, path, _ := strings.Cut(pattern, " ")
	a.mux.HandleFunc(method+" /client/v4"+path, func(w http.ResponseWriter, r *http.Request) {
		a.serve(w, r, verb, h)
	})
}

func (a *API) serve(w http.ResponseWriter, r *http.Request, verb string, h handler) {
	c := &call{Request: r, script: r.PathValue("script"), control: http.NewResponseController(w)}
	_ = c.control.SetWriteDeadline(time.Now().Add(uploadTimeout + answerTimeout))
	if r.ContentLength != 0 {
		c.setBodyDeadline(a.bodyTimeout)
	}
	ctx, cancel := context.WithTimeout(r.Context(), uploadTimeout+answerTimeout)
	defer cancel()
	leave, err := a.authenticate(ctx, c)
	var result any
	if err == nil {
		defer leave()
		w.Header().Del("Connection")
		defer connlimit.Hold(r.Context()).Release()
		result, err = a.callHandler(ctx, c, verb, h)
	}
	c.setBodyDeadline(a.bodyTimeout) // the server reads what is left of a body
	if err == nil {
		writeEnvelope(w, result, nil)
		return
	}
	failed, known := toAPIError(err)
	if !known {
		a.config.Log.Error(err, "request failed", "method", r.Method, "path", r.URL.Path)
	}
	if failed.status == http.StatusRequestEntityTooLarge {
		_, _ = io.CopyN(io.Discard, r.Body, maxDrained)
	}
	writeEnvelope(w, nil, failed)
}

// authenticate sets the user of a call and counts the request until leave is called. The hub reviews
// the token once, after the limits of its holder, or of its address if it is not known.
func (a *API) authenticate(ctx context.Context, c *call) (leave func(), err error) {
	bearer, err := bearerToken(c.Request)
	if err != nil {
		return nil, err
	}
	digest := tokenDigest(bearer)
	c.token = a.limits.tokens.get(digest)
	if c.token == nil {
		if err := a.reviewNewToken(ctx, c, bearer, digest); err != nil {
			return nil, err
		}
		return a.limits.beginRequest(c.token)
	}
	leave, err = a.limits.beginRequest(c.token)
	if err != nil {
		return nil, err
	}
	if c.user, err = a.config.Reviewer.Authenticate(ctx, bearer); err != nil {
		if errors.Is(err, access.ErrInvalidToken) {
			a.limits.tokens.remove(c.token)
		}
		leave()
		return nil, err
	}
	return leave, nil
}

// reviewNewToken has the hub review an unknown token.
func (a *API) reviewNewToken(ctx context.Context, c *call, bearer, digest string) error {
	leave, err := a.limits.beginReview(connlimit.Host(c.Context()))
	if err != nil {
		return err
	}
	defer leave()
	if c.user, err = a.config.Reviewer.Authenticate(ctx, bearer); err != nil {
		return err
	}
	c.token = a.limits.tokens.add(digest, c.user, a.limits.newTokenLimiter())
	return nil
}

// bearerToken returns the token of a request if its claims name the audience of this API. The claims
// are not verified, and are used for nothing else.
func bearerToken(r *http.Request) (string, error) {
	scheme, bearer, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") || bearer == "" {
		return "", newAPIError(http.StatusUnauthorized, codeNoCredentials, "there is no bearer token: set CLOUDFLARE_API_TOKEN to a token of the hub for the audience "+access.Audience)
	}
	if !access.HasAudience(bearer) {
		return "", newAPIError(http.StatusUnauthorized, codeUnauthorized, "Invalid access token: it is no token of the hub for the audience "+access.Audience)
	}
	return bearer, nil
}

// callHandler authorizes a call and calls its handler.
func (a *API) callHandler(ctx context.Context, c *call, verb string, h handler) (result any, err error) {
	if verb == "" {
		return h(ctx, c)
	}
	if c.account, err = a.authorize(ctx, c.user, c.PathValue("account"), verb); err != nil {
		return nil, err
	}
	leave, err := a.limits.beginAccountRequest(c.account.ID)
	if err != nil {
		return nil, err
	}
	defer leave()
	c.memory = a.limits.newBodyMemory(ctx, c.account.ID, c.token)
	defer c.memory.close()
	if c.PathValue("script") != "" {
		if err := script.CheckName(c.script); err != nil {
			return nil, err
		}
	}
	return h(a.config.Deployer.WithMemory(ctx, c.account), c)
}

// authorize returns the account if the user has the permission. A forbidden account is answered like
// one that does not exist.
func (a *API) authorize(ctx context.Context, user authenticationv1.UserInfo, id, verb string) (deployer.Account, error) {
	refused := newAPIError(http.StatusForbidden, codeUnauthorized, fmt.Sprintf(
		"Unauthorized to access requested resource: there is no account %q, or user %s may not %s its workerdeployments", id, user.Username, verb))
	namespace, ok := a.config.Accounts.Namespace(id)
	if !ok {
		return deployer.Account{}, refused
	}
	err := a.config.Reviewer.Authorize(ctx, user, namespace, verb)
	if errors.Is(err, access.ErrForbidden) {
		err = refused
	}
	return deployer.Account{ID: id, Namespace: namespace}, err
}
