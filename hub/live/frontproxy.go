// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
)

// maxProofs bounds how many client certificates are remembered. An API server
// shows the same one on all its connections.
const maxProofs = 64

// errProxyCommonName says that a certificate is the front proxy's CA's, but not the
// front proxy's.
var errProxyCommonName = errors.New("front proxy: common name is not an allowed one")

// frontProxyAuthenticator believes the headers of the hub's front proxy, which shows that it
// is by its client certificate. It is headerrequest.NewDynamicVerifyOptionsSecure,
// except that a certificate is verified once and not with every request, which
// would take more time than all else that a small request needs here.
type frontProxyAuthenticator struct {
	options x509request.VerifyOptionFunc
	names   headerrequest.StringSliceProvider
	headers authenticator.Request
	proofs  *proofs
}

func newFrontProxyAuthenticator(c *authenticatorfactory.RequestHeaderConfig, now func() time.Time) *frontProxyAuthenticator {
	return &frontProxyAuthenticator{
		options: c.CAContentProvider.VerifyOptions,
		names:   c.AllowedClientNames,
		headers: headerrequest.NewDynamic(c.UsernameHeaders, c.UIDHeaders, c.GroupHeaders, c.ExtraHeaderPrefixes),
		proofs:  newProofs(now),
	}
}

// AuthenticateRequest implements authenticator.Request.
func (p *frontProxyAuthenticator) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	options, ok := p.options()
	if !ok {
		return nil, false, nil
	}
	shown := r.TLS.PeerCertificates
	if err := p.proofs.verify(shown, options); err != nil {
		return nil, false, fmt.Errorf("front proxy: %w", err)
	}
	if names := p.names.Value(); len(names) > 0 && !slices.Contains(names, shown[0].Subject.CommonName) {
		return nil, false, errProxyCommonName
	}
	return p.headers.AuthenticateRequest(r)
}

// proofs remembers which certificates have been verified. A proof holds for
// exactly the certificates that were shown, for the CA bundle that they were
// verified against, and for the time in which all of the chain is valid. That a
// peer holds the key is proved by each TLS handshake, and is no matter here.
type proofs struct {
	now func() time.Time

	mu    sync.Mutex
	roots *x509.CertPool // guarded by mu; the bundle of all the proofs
	held  map[[sha256.Size]byte]period
}

// period is a time, both ends included, as of certificates.
type period struct{ from, until time.Time }

func (p period) holds(at time.Time) bool { return !at.Before(p.from) && !at.After(p.until) }

func newProofs(now func() time.Time) *proofs {
	return &proofs{now: now, held: map[[sha256.Size]byte]period{}}
}

// verify says whether the first of the certificates is one of a client that the
// roots of o vouch for. The roots are compared as a pointer: whoever provides
// them makes a new pool of every bundle, and the pool that is compared with is
// held, so that its place is not given to another.
func (p *proofs) verify(shown []*x509.Certificate, o x509.VerifyOptions) error {
	at, key := p.now(), fingerprint(shown)
	if p.holds(key, o.Roots, at) {
		return nil
	}
	o.CurrentTime = at
	o.Intermediates = x509.NewCertPool()
	for _, c := range shown[1:] {
		o.Intermediates.AddCert(c)
	}
	chains, err := shown[0].Verify(o)
	if err != nil {
		return err
	}
	p.add(key, o.Roots, validity(chains[0]))
	return nil
}

func (p *proofs) holds(key [sha256.Size]byte, roots *x509.CertPool, at time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	valid, ok := p.held[key]
	return ok && roots == p.roots && valid.holds(at)
}

// add remembers a proof. Those of another bundle are forgotten, and all are when
// there are too many: only certificates that the front proxy's CA has issued
// get here, so that no caller can crowd the others out.
func (p *proofs) add(key [sha256.Size]byte, roots *x509.CertPool, valid period) {
	if roots == nil {
		return // those of the system, which may change unseen
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.roots != roots || len(p.held) >= maxProofs {
		clear(p.held)
	}
	p.roots = roots
	p.held[key] = valid
}

// fingerprint identifies what a peer has shown. The lengths of certificates are
// part of them (DER), so that no two rows of certificates run into the same.
func fingerprint(shown []*x509.Certificate) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, c := range shown {
		_, _ = h.Write(c.Raw)
	}
	h.Sum(sum[:0])
	return sum
}

// validity is the time in which every certificate of a chain is valid.
func validity(chain []*x509.Certificate) period {
	valid := period{from: chain[0].NotBefore, until: chain[0].NotAfter}
	for _, c := range chain[1:] {
		if c.NotBefore.After(valid.from) {
			valid.from = c.NotBefore
		}
		if c.NotAfter.Before(valid.until) {
			valid.until = c.NotAfter
		}
	}
	return valid
}
