// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// authority is a CA that signs for a test.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{certificate: certificate, key: key}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw}))
}

// pool trusts the authority alone.
func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// issue signs a certificate; change may be nil.
func (a *authority) issue(t *testing.T, name string, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// right is "user verb node/subresource".
type right string

// reviews is an API server that knows tokens and rights.
type reviews struct {
	tokens map[string]string // token -> user
	rights map[right]bool
	// broken fails every review.
	broken bool
	ca     *authority
}

// ServeHTTP answers as the API server does, where it is asked.
func (v *reviews) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch resource := path.Base(r.URL.Path); {
	case resource == "configmaps":
		v.watch(w, r)
	case v.broken:
		w.WriteHeader(http.StatusInternalServerError)
	case resource == "tokenreviews":
		var review authenticationv1.TokenReview
		v.read(r, &review)
		name, ok := v.tokens[review.Spec.Token]
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: ok, User: authenticationv1.UserInfo{Username: name}}
		v.write(w, &review)
	case resource == "subjectaccessreviews":
		var review authorizationv1.SubjectAccessReview
		v.read(r, &review)
		a := review.Spec.ResourceAttributes
		asked := right(review.Spec.User + " " + a.Verb + " " + a.Name + "/" + a.Subresource)
		review.Status.Allowed = a.Resource == "nodes" && a.Group == "" && v.rights[asked]
		v.write(w, &review)
	default:
		http.NotFound(w, r)
	}
}

// watch sends the one ConfigMap, as client-go asks for it (KEP-3157), and
// nothing more.
func (v *reviews) watch(w http.ResponseWriter, r *http.Request) {
	object := corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: authNamespace, Name: authConfigMap, ResourceVersion: "1"},
		Data:       map[string]string{authClientCA: v.ca.pem()},
	}
	v.write(w, map[string]any{"type": "ADDED", "object": object})
	object.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	v.write(w, map[string]any{"type": "BOOKMARK", "object": object})
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

func (v *reviews) read(r *http.Request, into any) {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		panic(err) // the client is client-go
	}
}

func (v *reviews) write(w http.ResponseWriter, object any) {
	if err := json.NewEncoder(w).Encode(object); err != nil {
		panic(err)
	}
}

// client is a real client of the API server that v plays.
func (v *reviews) client(t *testing.T, ca *authority) kubernetes.Interface {
	t.Helper()
	v.ca = ca
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	plain, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plain.CloseIdleConnections)
	client, err := kubernetes.NewForConfigAndClient(config, plain)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// testDoor is a Door whose clusters answer with a fixed response.
type testDoor map[string]func(*http.Request) (*http.Response, error)

func (d testDoor) RoundTripper(_ context.Context, cluster string) (http.RoundTripper, error) {
	answer, ok := d[cluster]
	if !ok {
		return nil, errors.New(`cluster "` + cluster + `": not connected: lost`)
	}
	return roundTripperFunc(answer), nil
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func says(status int, body string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
}

// fixture is a Server with the endpoint of node "spoke1" open.
type fixture struct {
	t       *testing.T
	ca      *authority
	server  *Server
	address string
}

// testPods are pods of the node spoke1.
type testPods []*corev1.Pod

func (p testPods) Pod(node, namespace, name string) (*corev1.Pod, bool) {
	for _, pod := range p.Pods(node) {
		if pod.Namespace == namespace && pod.Name == name {
			return pod, true
		}
	}
	return nil, false
}

func (p testPods) Pods(node string) []*corev1.Pod {
	if node != "spoke1" {
		return nil
	}
	return p
}

func newFixture(t *testing.T, v *reviews, door Door, pods ...*corev1.Pod) *fixture {
	t.Helper()
	f := &fixture{t: t, ca: newAuthority(t)}
	auth, err := NewAuth(v.client(t, f.ca))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { auth.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	if err := auth.Await(ctx); err != nil {
		t.Fatal(err)
	}
	serving := f.ca.issue(t, "kubelet", nil)
	var known Pods
	if len(pods) > 0 {
		known = testPods(pods)
	}
	f.server, err = New(Config{
		Pods:          known,
		Certificate:   func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &serving, nil },
		Authenticator: auth.Authenticator, Authorizer: auth.Authorizer,
		Door: door, Logger: testr.New(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.address = listener.Addr().String()
	f.server.serve(t.Context(), "spoke1", listener)
	t.Cleanup(func() { f.server.Close("spoke1") })
	return f
}

// do sends a request with a certificate or a token, or neither.
func (f *fixture) do(method, path, token string, certificate *tls.Certificate) (int, string) {
	f.t.Helper()
	return f.ask(method, path, token, certificate, nil)
}

// ask is do with a header.
func (f *fixture) ask(method, path, token string, certificate *tls.Certificate, header http.Header) (int, string) {
	f.t.Helper()
	config := &tls.Config{RootCAs: f.ca.pool()}
	if certificate != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
	}
	client := &http.Client{
		Transport:     &http.Transport{TLSClientConfig: config, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	request, err := http.NewRequestWithContext(f.t.Context(), method, "https://"+f.address+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	maps.Copy(request.Header, header)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		f.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}
