// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/utils/lru"
)

// testCA is a certificate authority.
type testCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newTestCA(t testing.TB) *testCA {
	t.Helper()
	return (*testCA)(nil).issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, NotBefore: noon.AddDate(-1, 0, 0), NotAfter: noon.AddDate(100, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
}

// issue signs a certificate for a new key; without an authority, with that key.
func (ca *testCA) issue(t testing.TB, template *x509.Certificate) *testCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, parent := key, template
	if ca != nil {
		signer, parent = ca.key, ca.cert
	}
	template.SerialNumber = big.NewInt(1)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &testCA{cert: cert, key: key}
}

func (ca *testCA) client(t testing.TB, name string, change ...func(*x509.Certificate)) *testCA {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: noon.Add(-time.Hour), NotAfter: noon.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, c := range change {
		c(template)
	}
	return ca.issue(t, template)
}

func (ca *testCA) bundle() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})
}

func (ca *testCA) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// authenticatorServer is a front proxy's authenticator with all that it goes by.
type authenticatorServer struct {
	*frontProxyAuthenticator
	ca    *testCA
	leaf  *testCA
	shown []*x509.Certificate
	roots *x509.CertPool
	names []string
	at    time.Time
}

func newAuthenticatorServer(t *testing.T) *authenticatorServer {
	t.Helper()
	g := &authenticatorServer{ca: newTestCA(t), names: []string{"front-proxy"}, at: noon}
	g.roots, g.leaf = g.ca.pool(), g.ca.client(t, "front-proxy")
	g.shown = []*x509.Certificate{g.leaf.cert}
	g.frontProxyAuthenticator = &frontProxyAuthenticator{
		options: func() (x509.VerifyOptions, bool) {
			return x509.VerifyOptions{Roots: g.roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, g.roots != nil
		},
		names: headerrequest.StringSliceProviderFunc(func() []string { return g.names }),
		headers: headerrequest.NewDynamic(
			headerrequest.StaticStringSlice{"X-Remote-User"}, headerrequest.StaticStringSlice{},
			headerrequest.StaticStringSlice{"X-Remote-Group"}, headerrequest.StaticStringSlice{"X-Remote-Extra-"}),
		now:      func() time.Time { return g.at },
		verified: lru.New(maxVerifiedChains),
	}
	return g
}

// authenticate sends a request of alice's; the name is empty when nobody is believed.
func (g *authenticatorServer) authenticate(t *testing.T) (string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://hub/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Remote-User", "alice")
	r.TLS = &tls.ConnectionState{PeerCertificates: g.shown}
	res, ok, err := g.AuthenticateRequest(r)
	if !ok {
		return "", err
	}
	return res.User.GetName(), err
}

// TestFrontProxyIsVerifiedAgainAfterChange shows a certificate that was verified
// before, after something that the proof went by has changed.
func TestFrontProxyIsVerifiedAgainAfterChange(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(t *testing.T, g *authenticatorServer)
		silent bool // no opinion in place of an error
	}{
		"changed bundle": {reason: "its CA is trusted no more", change: func(t *testing.T, g *authenticatorServer) { g.roots = newTestCA(t).pool() }},
		"no bundle":      {reason: "nobody says whom to trust", change: func(_ *testing.T, g *authenticatorServer) { g.roots = nil }, silent: true},
		"expired":        {reason: "its time is over", change: func(_ *testing.T, g *authenticatorServer) { g.at = g.leaf.cert.NotAfter.Add(time.Second) }},
		"clock set back": {reason: "its time has not come", change: func(_ *testing.T, g *authenticatorServer) { g.at = g.leaf.cert.NotBefore.Add(-time.Second) }},
		"other name":     {reason: "the name was taken off the list", change: func(_ *testing.T, g *authenticatorServer) { g.names = []string{"aggregator"} }},
		"other certificate": {reason: "the name is the same, the CA is not", change: func(t *testing.T, g *authenticatorServer) {
			g.shown = []*x509.Certificate{newTestCA(t).client(t, "front-proxy").cert}
		}},
		"server's": {reason: "it is not for clients", change: func(t *testing.T, g *authenticatorServer) {
			g.shown = []*x509.Certificate{g.ca.client(t, "front-proxy", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }).cert}
		}},
		"no certificate": {reason: "headers alone prove nothing", change: func(_ *testing.T, g *authenticatorServer) { g.shown = nil }, silent: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := newAuthenticatorServer(t)
			for range 2 {
				if user, err := g.authenticate(t); user != "alice" || err != nil {
					t.Fatalf("at first: %q, %v", user, err)
				}
			}
			tc.change(t, g)
			for range 2 {
				if user, err := g.authenticate(t); user != "" || (err == nil) != tc.silent {
					t.Errorf("%s: believed as %q, %v", tc.reason, user, err)
				}
			}
		})
	}
}

func TestVerifiedChainExpiresWithFirstCertificate(t *testing.T) {
	g := newAuthenticatorServer(t)
	between := g.ca.issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "between"}, NotBefore: noon.Add(-time.Minute), NotAfter: noon.Add(time.Minute),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	leaf := between.client(t, "front-proxy").cert
	g.shown = []*x509.Certificate{leaf, between.cert}
	if user, err := g.authenticate(t); user != "alice" || err != nil {
		t.Fatalf("at first: %q, %v", user, err)
	}
	g.at = noon.Add(time.Minute + time.Second)
	if user, err := g.authenticate(t); user != "" || err == nil {
		t.Errorf("the CA between has expired: believed as %q, %v", user, err)
	}
	g.at = noon.Add(-time.Minute - time.Second)
	if user, err := g.authenticate(t); user != "" || err == nil {
		t.Errorf("the CA between is not valid yet: believed as %q, %v", user, err)
	}
	g.at, g.shown = noon, []*x509.Certificate{leaf}
	if user, err := g.authenticate(t); user != "" || err == nil {
		t.Errorf("the chain is broken now: believed as %q, %v", user, err)
	}
}

func TestFrontProxyIsAcceptedAfterBundleReload(t *testing.T) {
	g := newAuthenticatorServer(t)
	for range 3 {
		g.roots = g.ca.pool()
		if user, err := g.authenticate(t); user != "alice" || err != nil {
			t.Fatalf("believed as %q, %v", user, err)
		}
	}
}

func TestVerifiedChainsAreLimitedAndValid(t *testing.T) {
	g := newAuthenticatorServer(t)
	strangers := newTestCA(t)
	for range maxVerifiedChains + 1 {
		g.shown = []*x509.Certificate{g.ca.client(t, "front-proxy").cert}
		if user, err := g.authenticate(t); user != "alice" || err != nil {
			t.Fatalf("believed as %q, %v", user, err)
		}
		before := g.verified.Len()
		g.shown = []*x509.Certificate{strangers.client(t, "front-proxy").cert}
		if user, err := g.authenticate(t); user != "" || err == nil || g.verified.Len() != before {
			t.Fatalf("a stranger: believed as %q, %v; %d chains, %d before", user, err, g.verified.Len(), before)
		}
		if before > maxVerifiedChains {
			t.Fatalf("%d chains are remembered; want at most %d", before, maxVerifiedChains)
		}
	}
}

func TestConcurrentRequestsShareVerifiedChains(t *testing.T) {
	g := newAuthenticatorServer(t)
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for range 50 {
				if user, err := g.authenticate(t); user != "alice" || err != nil {
					t.Errorf("believed as %q, %v", user, err)
				}
			}
		})
	}
	callers.Wait()
}

// frontProxyClient asks as the hub's API server does for a user.
func (s *liveServer) frontProxyClient(t testing.TB, name string) *http.Client {
	t.Helper()
	client := s.hub.frontCA.client(t, name, func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = s.hub.frontCA.cert.NotBefore, s.hub.frontCA.cert.NotAfter
	})
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true,
			Certificates:       []tls.Certificate{{Certificate: [][]byte{client.cert.Raw}, PrivateKey: client.key}},
		},
		ForceAttemptHTTP2: true,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// askThrough asks the cluster through the front proxy, for alice.
func (s *liveServer) askThrough(t testing.TB, client *http.Client, path string) (int, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.address+livePath+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Remote-User", "alice")
	r.Header.Set("X-Remote-Group", "devs")
	r.Header.Set("X-Remote-Extra-Scopes", "all")
	res, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}

// requireAlice is a kube door that knows nobody else.
func requireAlice(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if got := callerSeen(r); got != "alice devs,system:authenticated" {
			http.Error(w, got, http.StatusForbidden)
			return
		}
		next(w, r)
	}
}

// waitForStatus asks until the answer is the wanted one. A server that has just started
// has yet to learn whom to believe.
func (s *liveServer) waitForStatus(t testing.TB, client *http.Client, want int) {
	t.Helper()
	var last int
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 30*time.Second, true, func(context.Context) (done bool, err error) {
		last, err = s.askThrough(t, client, "/clusters/c1/proxy/api")
		return last == want, err
	})
	if err != nil {
		t.Fatalf("answered %d, %v; want %d", last, err, want)
	}
}

// TestServerFollowsFrontProxyConfigMap has the hub's API server trust another CA while a
// connection goes on that was believed.
func TestServerFollowsFrontProxyConfigMap(t *testing.T) {
	a := newTestAgent(t, requireAlice(func(http.ResponseWriter, *http.Request) {}))
	s := start(t, &fleet{clusters: map[string]Session{"c1": a}}, allowAll, Limits{})
	client := s.frontProxyClient(t, "front-proxy")
	s.waitForStatus(t, client, http.StatusOK)
	if code, err := s.askThrough(t, s.frontProxyClient(t, "somebody"), "/clusters/c1/proxy/api"); code != http.StatusUnauthorized || err != nil {
		t.Errorf("another name is answered %d, %v; want 401", code, err)
	}
	s.hub.trust(newTestCA(t).bundle())
	s.waitForStatus(t, client, http.StatusUnauthorized)
}
