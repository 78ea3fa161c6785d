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
	// bodyTime is how long the body of a request may take to arrive, uploadTime that of an
	// upload.
	bodyTime   = 20 * time.Second
	uploadTime = 2 * time.Minute
	// answerTime is how long an answer may take from then on; a deployment is waited for.
	answerTime = 4 * time.Minute
	// maxBody bounds the body of a request that is no upload, in bytes.
	maxBody = 2 << 20
	// drained is how much of a refused upload is read, so that the client reads the answer.
	drained = 64 << 20
)

// call is a request of a user who may make it.
type call struct {
	*http.Request

	user    authenticationv1.UserInfo
	account deployer.Account
	script  string
	token   *token
	memory  *held
	control *http.ResponseController
}

// readFor bounds how long the body may take to arrive. It fails with no server of net/http.
func (c *call) readFor(d time.Duration) { _ = c.control.SetReadDeadline(time.Now().Add(d)) }

// arrived takes the bound away when the body was read to its end: a connection that nothing is
// read from any more would be one that has failed when it is over, and a deployment is waited
// for. Where the body was not, the server reads the rest of it within the bound.
func (c *call) arrived() { _ = c.control.SetReadDeadline(time.Time{}) }

// by is who calls, for what is written.
func (c *call) by(message string) deployer.Author {
	return deployer.Author{Name: c.user.Username, Message: message}
}

// body returns a body that is no upload, when there is memory for what it is decoded to.
func (c *call) body() ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(paid{c.Body, c.memory}, maxBody+1))
	failed, refused := errors.AsType[*failure](err)
	switch {
	case refused:
		return nil, failed
	case err != nil:
		return nil, fail(http.StatusBadRequest, codeInvalid, "the request ended before its body did")
	case len(raw) > maxBody:
		return nil, fail(http.StatusRequestEntityTooLarge, codeTooLarge, fmt.Sprintf("the body has more than %d bytes", maxBody))
	}
	c.arrived()
	return raw, c.memory.Grow(quota.DecodedJSON(raw))
}

// paid is a body whose memory is taken as it arrives. What reads it whole has twice as much, as
// its buffer grows.
type paid struct {
	body   io.Reader
	memory *held
}

// Read implements io.Reader.
func (p paid) Read(b []byte) (int, error) {
	n, err := p.body.Read(b)
	if refused := p.memory.Grow(2 * int64(n)); refused != nil {
		return 0, refused
	}
	return n, err
}

// handler answers a call.
type handler func(ctx context.Context, c *call) (result any, err error)

// handle serves a route. verb is the right on WorkerDeployments of the account's namespace
// that it needs; without one a valid token is enough.
func (a *API) handle(pattern, verb string, h handler) {
	a.patterns = append(a.patterns, pattern)
	method, path, _ := strings.Cut(pattern, " ")
	a.mux.HandleFunc(method+" /client/v4"+path, func(w http.ResponseWriter, r *http.Request) {
		a.serve(w, r, verb, h)
	})
}

func (a *API) serve(w http.ResponseWriter, r *http.Request, verb string, h handler) {
	c := &call{Request: r, script: r.PathValue("script"), control: http.NewResponseController(w)}
	_ = c.control.SetWriteDeadline(time.Now().Add(uploadTime + answerTime))
	if r.ContentLength != 0 {
		c.readFor(a.bodyTime)
	}
	ctx, cancel := context.WithTimeout(r.Context(), uploadTime+answerTime)
	defer cancel()
	leave, err := a.admit(ctx, c)
	var result any
	if err == nil {
		defer leave()
		w.Header().Del("Connection")
		defer connlimit.Hold(r.Context()).Release()
		result, err = a.answer(ctx, c, verb, h)
	}
	c.readFor(a.bodyTime) // the server reads what is left of a body
	if err == nil {
		write(w, result, nil)
		return
	}
	failed, known := failureOf(err)
	if !known {
		a.config.Log.Error(err, "request failed", "method", r.Method, "path", r.URL.Path)
	}
	if failed.status == http.StatusRequestEntityTooLarge {
		_, _ = io.CopyN(io.Discard, r.Body, drained)
	}
	write(w, nil, failed)
}

// admit says who calls, and counts the request until leave is called. The hub reviews the token
// once, after the limits of those that it is of by then.
func (a *API) admit(ctx context.Context, c *call) (leave func(), err error) {
	bearer, err := bearerOf(c.Request)
	if err != nil {
		return nil, err
	}
	digest := digestOf(bearer)
	c.token = a.limits.tokens.of(digest)
	if c.token == nil {
		if err := a.meet(ctx, c, bearer, digest); err != nil {
			return nil, err
		}
		return a.limits.holder(c.token)
	}
	leave, err = a.limits.holder(c.token)
	if err != nil {
		return nil, err
	}
	if c.user, err = a.config.Reviewer.Authenticate(ctx, bearer); err != nil {
		if errors.Is(err, access.ErrToken) {
			a.limits.tokens.drop(c.token)
		}
		leave()
		return nil, err
	}
	return leave, nil
}

// meet has the hub review a token that is not known.
func (a *API) meet(ctx context.Context, c *call, bearer, digest string) error {
	leave, err := a.limits.review(connlimit.Host(c.Context()))
	if err != nil {
		return err
	}
	defer leave()
	if c.user, err = a.config.Reviewer.Authenticate(ctx, bearer); err != nil {
		return err
	}
	c.token = a.limits.tokens.add(digest, c.user, a.limits.ofTokens())
	return nil
}

// bearerOf returns the token of a request, if it says that it is for this API. What it says is
// not verified, and counts for nothing else.
func bearerOf(r *http.Request) (string, error) {
	scheme, bearer, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") || bearer == "" {
		return "", fail(http.StatusUnauthorized, codeNoCredentials, "there is no bearer token: set CLOUDFLARE_API_TOKEN to a token of the hub for the audience "+access.Audience)
	}
	if !access.HasAudience(bearer) {
		return "", fail(http.StatusUnauthorized, codeUnauthorized, "Invalid access token: it is no token of the hub for the audience "+access.Audience)
	}
	return bearer, nil
}

// answer answers a request of a known user.
func (a *API) answer(ctx context.Context, c *call, verb string, h handler) (result any, err error) {
	if verb == "" {
		return h(ctx, c)
	}
	if c.account, err = a.authorize(ctx, c.user, c.PathValue("account"), verb); err != nil {
		return nil, err
	}
	leave, err := a.limits.account(c.account.ID)
	if err != nil {
		return nil, err
	}
	defer leave()
	c.memory = a.limits.held(ctx, c.account.ID, c.token)
	defer c.memory.close()
	if c.PathValue("script") != "" {
		if err := script.CheckName(c.script); err != nil {
			return nil, err
		}
	}
	return h(a.config.Deployer.Counted(ctx, c.account), c)
}

// authorize returns the account if the user may do with its scripts what verb says. Who may
// not gets the answer of an account that there is not.
func (a *API) authorize(ctx context.Context, user authenticationv1.UserInfo, id, verb string) (deployer.Account, error) {
	refused := fail(http.StatusForbidden, codeUnauthorized, fmt.Sprintf(
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
