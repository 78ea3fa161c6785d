// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// mint makes tokens that count up: "figures-1" and so on.
type mint struct {
	refuse error
	// life is what is granted: 0 what was asked for, less than 0 no token at all.
	life time.Duration

	mu       sync.Mutex
	requests []string // guarded by mu; account and seconds
}

func (m *mint) CreateToken(_ context.Context, account string, request *authenticationv1.TokenRequest, _ metav1.CreateOptions) (*authenticationv1.TokenRequest, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, fmt.Sprintf("%s %d", account, *request.Spec.ExpirationSeconds))
	if m.refuse != nil {
		return nil, m.refuse
	}
	made := request.DeepCopy()
	if m.life < 0 {
		return made, nil
	}
	if m.life > 0 {
		made.Spec.ExpirationSeconds = new(int64(m.life.Seconds()))
	}
	made.Status.Token = fmt.Sprintf("figures-%d", len(m.requests))
	return made, nil
}

func (m *mint) asked() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests)
}

// TestKubeletsNeverReceiveAgentCredential gives the agent every kind of
// credential that a configuration can hold.
func TestKubeletsNeverReceiveAgentCredential(t *testing.T) {
	cases := map[string]func(*rest.Config, *httptest.Server){
		"a token":          func(c *rest.Config, _ *httptest.Server) { c.BearerToken = "agents-own" },
		"a password":       func(c *rest.Config, _ *httptest.Server) { c.Username, c.Password = "agents-own", "agents-own" },
		"an impersonation": func(c *rest.Config, _ *httptest.Server) { c.Impersonate.UserName = "agents-own" },
		"a plugin":         func(c *rest.Config, _ *httptest.Server) { c.Wrap(authorizeAsAgent) },
		"a certificate": func(c *rest.Config, kubelet *httptest.Server) {
			c.CertData, c.KeyData = pairOf(t, kubelet)
		},
	}
	for name, give := range cases {
		t.Run(name, func(t *testing.T) {
			seen := make(chan *http.Request, 1)
			kubelet := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r }))
			kubelet.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS13}
			kubelet.StartTLS()
			defer kubelet.Close()
			config := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: toPEM("CERTIFICATE", kubelet.Certificate().Raw)}}
			give(config, kubelet)

			visit(t, newKubelets(t, KubeletConfig{REST: config, Tokens: &mint{}, Account: "figures"}), kubelet.URL)

			got := <-seen
			want := http.Header{"Authorization": {"Bearer figures-1"}}
			got.Header.Del("Accept-Encoding")
			got.Header.Del("User-Agent")
			if diff := cmp.Diff(want, got.Header); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
			if n := len(got.TLS.PeerCertificates); n != 0 {
				t.Errorf("the kubelet was shown %d certificates, want none", n)
			}
		})
	}
}

// authorizeAsAgent is how plugins for credentials add theirs.
func authorizeAsAgent(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.Header.Set("X-Remote-User", "agents-own")
		return next.RoundTrip(r)
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func toPEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// pairOf is a certificate with its key, here the server's: whose matters not.
func pairOf(t *testing.T, server *httptest.Server) (certificate, key []byte) {
	t.Helper()
	pair := server.TLS.Certificates[0]
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return toPEM("CERTIFICATE", pair.Certificate[0]), toPEM("PRIVATE KEY", der)
}

func newKubelets(t *testing.T, config KubeletConfig) *Kubelets {
	t.Helper()
	kubelets, err := NewKubelets(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kubelets.CloseIdleConnections)
	return kubelets
}

func visit(t *testing.T, kubelets *Kubelets, url string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := kubelets.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
}

func TestAccountTokenIsRenewedBeforeExpiry(t *testing.T) {
	cases := map[string]struct {
		reason string
		life   time.Duration
		after  time.Duration
		want   []string
	}{
		"at once":                 {reason: "it is held", want: []string{"figures 600"}},
		"after seven minutes":     {reason: "there is enough left", after: 7 * time.Minute, want: []string{"figures 600"}},
		"after eight minutes":     {reason: "a fifth is left", after: 8 * time.Minute, want: []string{"figures 600", "figures 600"}},
		"of a life that is short": {reason: "the API server decides", life: 10 * time.Second, after: 8 * time.Second, want: []string{"figures 600", "figures 600"}},
		"of a life that is long":  {reason: "the API server decides", life: time.Hour, after: 47 * time.Minute, want: []string{"figures 600"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				minted := &mint{life: tc.life}
				token := newAccountToken(minted, "figures")
				var last string
				for _, wait := range []time.Duration{0, tc.after} {
					timer := time.NewTimer(wait)
					<-timer.C
					got, err := token.get(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					last = got
				}
				if diff := cmp.Diff(tc.want, minted.asked()); diff != "" {
					t.Errorf("%s: requests (-want +got):\n%s", tc.reason, diff)
				}
				if want := fmt.Sprintf("figures-%d", len(tc.want)); last != want {
					t.Errorf("%s: got %q, want %q", tc.reason, last, want)
				}
			})
		})
	}
}

func TestConcurrentRequestsShareAccountToken(t *testing.T) {
	minted := &mint{}
	token := newAccountToken(minted, "figures")
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if got, err := token.get(t.Context()); got != "figures-1" || err != nil {
				t.Errorf("get(): %q, %v", got, err)
			}
		})
	}
	all.Wait()
	if got := minted.asked(); len(got) != 1 {
		t.Errorf("%d tokens were made, want one", len(got))
	}
}

func TestKubeletsFailWithoutToken(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, "figures", errors.New("no rights"))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	cases := map[string]struct {
		reason string
		ctx    context.Context
		mint   *mint
		held   bool
		want   error
	}{
		"refused":   {reason: "the cause is kept", ctx: t.Context(), mint: &mint{refuse: refused}, want: refused},
		"nameless":  {reason: "an answer without a token is none", ctx: t.Context(), mint: &mint{life: -1}, want: errToken},
		"cancelled": {reason: "who waits for another may give up", ctx: gone, mint: &mint{}, held: true, want: context.Canceled},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			kubelets := &Kubelets{token: newAccountToken(tc.mint, "figures"), next: roundTrip(func(*http.Request) (*http.Response, error) {
				t.Error("the kubelet was asked")
				return nil, http.ErrServerClosed
			})}
			if tc.held {
				kubelets.token.semaphore <- struct{}{}
			}
			request := httptest.NewRequestWithContext(tc.ctx, http.MethodGet, "https://192.0.2.1:10250/metrics/resource", nil)
			response, err := kubelets.RoundTrip(request)
			if err == nil {
				_ = response.Body.Close()
			}
			if !errors.Is(err, tc.want) || !errors.Is(err, errToken) {
				t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
			}
		})
	}
}
