// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/remotecommand"
)

func TestEachPathHasItsOwnRight(t *testing.T) {
	// As a kubelet with fine-grained authorization asks (KEP-2862).
	want := map[string][]string{
		"/stats": {"stats"}, "/stats/summary": {"stats"}, "/metrics/resource": {"metrics"}, "/metrics/cadvisor": {"metrics"},
		"/logs/": {"log"}, "/logs/kubelet.log": {"log"}, "/checkpoint/team/web/main": {"checkpoint"},
		"/healthz": {"healthz", "proxy"}, "/configz": {"configz", "proxy"},
		"/pods": {"pods", "proxy"}, "/pods/": {"pods", "proxy"}, "/runningpods/": {"pods", "proxy"},
		"/exec/team/web/main": {"proxy"}, "/attach/team/web/main": {"proxy"}, "/portForward/team/web": {"proxy"},
		"/run/team/web/main": {"proxy"}, "/containerLogs/team/web/main": {"proxy"}, "/": {"proxy"}, "": {"proxy"},
		"/podsX": {"proxy"}, "/metricsX": {"proxy"}, "//metrics": {"proxy"}, "/x/../metrics": {"proxy"},
	}
	got := map[string][]string{}
	for path := range want {
		got[path] = subresources(path)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("subresources (-want +got):\n%s", diff)
	}
}

func TestADoubtAboutOneRightIsNotSettledByAnother(t *testing.T) {
	var asked []string
	e := &endpoint{node: "spoke1", config: Config{
		Authorizer: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			asked = append(asked, a.GetName()+"/"+a.GetSubresource())
			if a.GetSubresource() == "healthz" {
				return authorizer.DecisionNoOpinion, "", errors.New("boom")
			}
			return authorizer.DecisionAllow, "", nil
		}),
	}}
	r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: pathHealthz}}
	if e.authorize(r, &user.DefaultInfo{Name: "prober"}) {
		t.Error("it was not found out whether they may, and they did")
	}
	if diff := cmp.Diff([]string{"spoke1/healthz"}, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// anybody may do anything.
func anybody() (authenticator.Request, authorizer.Authorizer) {
	return authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: "apiserver"}}, true, nil
		}), authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		})
}

func TestThePodsOfANodeAreServedByNoOther(t *testing.T) {
	authn, _ := anybody()
	var asked []string
	e := &endpoint{node: "spoke2", config: Config{
		Authenticator: authn,
		Authorizer: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			asked = append(asked, a.GetName())
			return authorizer.DecisionAllow, "", nil
		}),
		Pods: testPods{web()}, // of spoke1
		Door: testDoor{"spoke1": says(http.StatusOK, "scrape_error 1\n"), "spoke2": says(http.StatusOK, "scrape_error 2\n"+webMetric)},
	}}
	for path, want := range map[string]string{
		"/exec/team/web/main?output=1":     "404 pod does not exist",
		"/attach/team/web/main?output=1":   "404 pod does not exist",
		"/portForward/team/web":            "404 pod does not exist",
		"/containerLogs/team/web/main":     `404 pod "web" does not exist`,
		"/pods":                            `200 {"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`,
		"/runningpods/":                    `200 {"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`,
		"/metrics/resource":                "200 # TYPE scrape_error gauge\nscrape_error 2\n",
		"/exec/team/web/u1/main?output=1":  "404 pod does not exist",
		"/portForward/team/web/u1?port=80": "404 pod does not exist",
	} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if got := fmt.Sprint(w.Code, " ", w.Body); got != want {
			t.Errorf("%s: answered %s, want %s", path, got, want)
		}
	}
	if slices.ContainsFunc(asked, func(node string) bool { return node != "spoke2" }) {
		t.Errorf("rights were asked for nodes %v", asked)
	}
}

func TestTheServingCertificateChangesWhileThePortIsOpen(t *testing.T) {
	ca := newAuthority(t)
	var serial atomic.Int64
	authn, authz := anybody()
	s, err := New(Config{
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			c := ca.issue(t, "kubelet", func(c *x509.Certificate) { c.SerialNumber = big.NewInt(serial.Add(1)) })
			return &c, nil
		},
		Authenticator: authn, Authorizer: authz, Door: testDoor{}, Logger: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.serve(t.Context(), "spoke1", listener)
	defer s.Close("spoke1")
	for want := int64(1); want <= 2; want++ {
		conn, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{RootCAs: ca.pool()})
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(); got != want {
			t.Errorf("connection %d is shown certificate %d", want, got)
		}
		_ = conn.Close()
	}
}

func TestThePortOfANodeIsFreeOnceItIsClosed(t *testing.T) {
	const host = "127.31.7.1" // that no other test listens on
	authn, authz := anybody()
	s, err := New(Config{
		Address:       host,
		Certificate:   func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.ErrUnsupported },
		Authenticator: authn, Authorizer: authz, Door: testDoor{}, Logger: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	_ = listener.Close()
	// A node that is made anew gets the port that it had.
	for range 100 {
		if err := s.Open(t.Context(), "spoke1", int32(port)); err != nil {
			t.Fatal(err)
		}
		s.Close("spoke1")
	}
}

// tunnelled switches a connection of the endpoint to a protocol that is nobody's,
// and returns it.
func (f *fixture) tunnelled(request string) *bufferedConn {
	f.t.Helper()
	conn, err := tls.Dial("tcp", f.address, &tls.Config{RootCAs: f.ca.pool()})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.Close() })
	_, _ = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer t\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n", request)
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		f.t.Fatalf("%s: answered %v, %v", request, response, err)
	}
	return &bufferedConn{Conn: conn, reader: reader}
}

type bufferedConn struct {
	net.Conn
	reader io.Reader
}

func (c *bufferedConn) Read(p []byte) (int, error) { return c.reader.Read(p) }

// pours answers port-forward with bytes without end, until it cannot, and runs
// commands.
func pours(ended chan<- error, run http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/portforward") {
			run(w, r)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		for piece := make([]byte, 64<<10); err == nil; {
			_, err = conn.Write(piece)
		}
		ended <- err
	}
}

const forwardPath = "POST /portForward/team/web"

func TestAPortForwardThatNobodyReadsHoldsUpNobodyElse(t *testing.T) {
	const many = 3
	ended := make(chan error, many+1)
	s := newSpoke(t, pours(ended, execs(func(p *proc) int {
		_, _ = io.WriteString(p.stdout, "out")
		return 0
	})))
	for range many {
		s.tunnelled(forwardPath) // and reads nothing
	}
	var stdout bytes.Buffer
	err := s.executor(t, protocolSPDY, execPath+"&output=1").
		StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &stdout})
	if err != nil || stdout.String() != "out" {
		t.Errorf("a command ended with %v and said %q", err, &stdout)
	}
	if _, err := io.CopyN(io.Discard, s.tunnelled(forwardPath), 1<<20); err != nil {
		t.Errorf("a port-forward that is read: %v", err)
	}
}

func TestAPortForwardWhoseClientGoesAwayEnds(t *testing.T) {
	ended := make(chan error, 1)
	s := newSpoke(t, pours(ended, nil))
	_ = s.tunnelled(forwardPath).Close()
	<-ended
}

func TestAPortForwardThatWasCutHasNoCleanEnd(t *testing.T) {
	ended := make(chan error, 1)
	s := newSpoke(t, pours(ended, nil))
	conn := s.tunnelled(forwardPath)
	s.agent.Network.Cut()
	if _, err := io.Copy(io.Discard, conn); err == nil {
		t.Error("the client takes the cut for the end of what it forwards")
	}
	<-ended
}

func TestAClientThatIsCutOffIsNoCleanEndForTheCluster(t *testing.T) {
	ended := make(chan error, 1)
	s := newSpoke(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		_, err = io.Copy(io.Discard, conn)
		ended <- err
	})
	secure := s.tunnelled("POST " + execPath + "&input=1").Conn.(*tls.Conn)
	beneath := secure.NetConn().(*net.TCPConn)
	if err := beneath.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	_ = beneath.Close()
	if err := <-ended; err == nil {
		t.Error("a command would take half of its input for all")
	}
}

// comes connects, has one request answered, and stays.
func (f *fixture) comes() {
	f.t.Helper()
	conn, err := tls.Dial("tcp", f.address, &tls.Config{RootCAs: f.ca.pool()})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.Close() })
	_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer t\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || response.StatusCode != http.StatusOK {
		f.t.Fatalf("answered %v, %v", response, err)
	}
	_ = response.Body.Close()
}

func TestWhoComesLaterEndsNoStream(t *testing.T) {
	late := make(chan struct{})
	s := newSpoke(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/log") {
			_, _ = io.WriteString(w, "one\n")
			_ = http.NewResponseController(w).Flush()
			<-late
			_, _ = io.WriteString(w, "two\n")
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		_, _ = io.Copy(conn, conn)
	})
	stream := s.tunnelled(forwardPath)
	log := s.open(t.Context(), logPath+"?follow=true").Body
	if _, err := io.ReadFull(log, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	for range connectionLimits().Idle + 8 {
		s.comes()
	}
	close(late)
	if rest, err := io.ReadAll(log); string(rest) != "two\n" || err != nil {
		t.Errorf("the log went on with %q, %v", rest, err)
	}
	frame := []byte("\x00\x00\x00\x01\x00\x00\x00\x05still")
	_, _ = stream.Write(frame)
	if _, err := io.ReadFull(stream, make([]byte, len(frame))); err != nil {
		t.Errorf("the stream: %v", err)
	}
}
