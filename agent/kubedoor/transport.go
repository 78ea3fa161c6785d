// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubedoor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/httpproxy"
	"github.com/spokelet/spokelet/internal/impersonation"
)

// Config is for clients inside the agent that act for a requester: each request takes
// the way of those that come through the door, allow-list and mapping included, and a
// refusal is answered with the Status that the door would send. The error is the
// door's refusal of the requester.
func (d *Door) Config(r wire.Requester) (*rest.Config, error) {
	p := principalOf(r)
	id, err := d.identityOf(p)
	if err != nil {
		return nil, err
	}
	base := d.upstream.base // its path is added as to every request that is admitted
	return &rest.Config{
		Host:      (&url.URL{Scheme: base.Scheme, Host: base.Host}).String(),
		Transport: &transport{door: d, requester: p, identity: id},
		QPS:       -1,
	}, nil
}

// Identity is whom the API server takes a requester for.
func (d *Door) Identity(r wire.Requester) (user string, groups []string, err error) {
	id, err := d.identityOf(principalOf(r))
	return id.user, id.groups, err
}

func principalOf(r wire.Requester) impersonation.Principal {
	return impersonation.Principal{Kind: impersonation.User, User: r.User, Groups: r.Groups}
}

func (d *Door) identityOf(p impersonation.Principal) (identity, error) {
	if err := p.Validate(); err != nil {
		return identity{}, fmt.Errorf("%w: %w", errIdentity, err)
	}
	return d.authorizeUser(p)
}

// transport makes the requests of one requester. The connections are the door's.
type transport struct {
	door      *Door
	requester impersonation.Principal
	identity  identity
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	path, err := t.admit(r)
	if err != nil {
		refusal := statusFor(err)
		t.door.logRefusal(r, t.requester, refusal)
		return refusalResponse(r, refusal)
	}
	out := r.Clone(r.Context())
	t.door.setTarget(out, &admitted{path: path, identity: t.identity})
	return t.door.upstream.pool.RoundTrip(out)
}

// admit returns the path below the API server's own.
func (t *transport) admit(r *http.Request) (string, error) {
	protocol, err := httpproxy.UpgradeProtocol(r)
	if err != nil {
		return "", err
	}
	if protocol != "" {
		return "", fmt.Errorf("%w: upgrades have no client here", httpproxy.ErrUpgrade)
	}
	path, err := httpproxy.Path(r)
	if err != nil {
		return "", err
	}
	return path, t.door.checkAllowed(r.Method, path)
}

// refusalResponse is the response to a refused request.
func refusalResponse(r *http.Request, s *metav1.Status) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close() // nobody reads it
	}
	body, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode refusal: %w", err)
	}
	code := int(s.Code)
	return &http.Response{
		Status: strconv.Itoa(code) + " " + http.StatusText(code), StatusCode: code,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": []string{"application/json"}},
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
		Request:       r,
	}, nil
}
