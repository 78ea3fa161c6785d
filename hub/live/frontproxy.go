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
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/utils/lru"
)

// maxVerifiedChains limits how many client certificates are remembered. An API server shows
// the same one on all its connections.
const maxVerifiedChains = 64

// errProxyCommonName means that a certificate is the front proxy's CA's, but not the
// front proxy's.
var errProxyCommonName = errors.New("front proxy: common name is not an allowed one")

// frontProxyAuthenticator trusts the identity headers of the hub's front proxy, which
// authenticates by a client certificate. It is headerrequest.NewDynamicVerifyOptionsSecure,
// except that a certificate is verified once and not with every request, which would take
// more time than all else that a small request needs here.
type frontProxyAuthenticator struct {
	options x509request.VerifyOptionFunc
	names   headerrequest.StringSliceProvider
	headers authenticator.Request
	now     func() time.Time
	// verified has the validityPeriod of each verifiedChain. That a peer holds the key is
	// proved by each TLS handshake, and does not matter here.
	verified *lru.Cache
}

// verifiedChain identifies the certificates that a peer showed, and the CA bundle that they
// were verified against. The bundle is compared as a pointer: its provider makes a new pool
// of every bundle, and a pool that is part of a key is not freed, so that no other pool gets
// its address.
type verifiedChain struct {
	fingerprint [sha256.Size]byte
	roots       *x509.CertPool
}

func newFrontProxyAuthenticator(c *authenticatorfactory.RequestHeaderConfig, now func() time.Time) *frontProxyAuthenticator {
	return &frontProxyAuthenticator{
		options:  c.CAContentProvider.VerifyOptions,
		names:    c.AllowedClientNames,
		headers:  headerrequest.NewDynamic(c.UsernameHeaders, c.UIDHeaders, c.GroupHeaders, c.ExtraHeaderPrefixes),
		now:      now,
		verified: lru.New(maxVerifiedChains),
	}
}

// AuthenticateRequest returns the user that the headers name, if the front proxy sent them.
func (p *frontProxyAuthenticator) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	options, ok := p.options()
	if !ok {
		return nil, false, nil
	}
	shown := r.TLS.PeerCertificates
	if err := p.verify(shown, options); err != nil {
		return nil, false, fmt.Errorf("front proxy: %w", err)
	}
	if names := p.names.Value(); len(names) > 0 && !slices.Contains(names, shown[0].Subject.CommonName) {
		return nil, false, errProxyCommonName
	}
	return p.headers.AuthenticateRequest(r)
}

// verify returns nil if the first of the certificates is that of a client whom the roots of o
// trust. Only certificates that the front proxy's CA has issued are remembered, so that no
// other caller evicts them.
func (p *frontProxyAuthenticator) verify(shown []*x509.Certificate, o x509.VerifyOptions) error {
	now, key := p.now(), verifiedChain{fingerprint: fingerprint(shown), roots: o.Roots}
	if found, ok := p.verified.Get(key); ok {
		if valid, ok := found.(validityPeriod); ok && valid.contains(now) {
			return nil
		}
	}
	o.CurrentTime = now
	o.Intermediates = x509.NewCertPool()
	for _, c := range shown[1:] {
		o.Intermediates.AddCert(c)
	}
	chains, err := shown[0].Verify(o)
	if err != nil {
		return err
	}
	if o.Roots != nil { // those of the system may change unnoticed
		p.verified.Add(key, validityOf(chains[0]))
	}
	return nil
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

// validityPeriod is the time from NotBefore to NotAfter, both included.
type validityPeriod struct{ notBefore, notAfter time.Time }

func (p validityPeriod) contains(at time.Time) bool {
	return !at.Before(p.notBefore) && !at.After(p.notAfter)
}

// validityOf returns the time in which every certificate of a chain is valid.
func validityOf(chain []*x509.Certificate) validityPeriod {
	valid := validityPeriod{notBefore: chain[0].NotBefore, notAfter: chain[0].NotAfter}
	for _, c := range chain[1:] {
		if c.NotBefore.After(valid.notBefore) {
			valid.notBefore = c.NotBefore
		}
		if c.NotAfter.Before(valid.notAfter) {
			valid.notAfter = c.NotAfter
		}
	}
	return valid
}
