// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/apiserver-network-proxy/proto/agent"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/internal/testing/tunneltest"
	"github.com/spokelet/spokelet/tunnel"
	"github.com/spokelet/spokelet/tunnel/identity"
)

// listen starts a hub with its public port on loopback.
func listen(tb testing.TB, change func(*tunnel.ServerConfig)) (hub *tunneltest.Hub, address string) {
	tb.Helper()
	hub = tunneltest.NewHub(tb, change)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	served := make(chan error, 1)
	go func() { served <- hub.Server.Serve(ctx, l) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			tb.Errorf("Serve() = %v", err)
		}
	})
	return hub, l.Addr().String()
}

// runOver runs an agent that dials the public port.
func runOver(tb testing.TB, hub *tunneltest.Hub, address, name string, doors map[string]http.Handler) *tunneltest.Agent {
	tb.Helper()
	return hub.Run(tb, hub.Authority.NewCluster(name), nil, func(c *tunnel.AgentConfig) {
		c.Address = address
		c.DialPipe = nil // konnectivity
		c.Doors = doors
	})
}

func TestKonnectivityCarriesSessions(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/", teach)
	mux.HandleFunc("/exec", upgrade)
	door := newHold()
	mux.Handle("/watch", door)
	hub, address := listen(t, nil)
	agent := runOver(t, hub, address, "spoke1", map[string]http.Handler{tunnel.DoorKube: mux})
	session := hub.Session(t, "spoke1")
	readLesson(t, session)
	checkUpgrade(t, session)
	readBeside(t, session)
	body := open(t, session)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		agent.Stop()
	}()
	close(door.release)
	if rest, err := io.ReadAll(body); err != nil || string(rest) != "done" {
		t.Errorf("stream in flight while the agent leaves: %q, %v", rest, err)
	}
	<-stopped
	<-session.Done()
}

func hubURI(hub *tunneltest.Hub) *url.URL { return identity.Hub{ID: hub.Authority.HubID}.URI() }

// readBeside reads the lesson beside stalled streams.
func readBeside(t *testing.T, session *tunnel.Session) {
	t.Helper()
	var stalled []io.Closer
	for range 20 {
		conn, err := session.Dial(t.Context(), tunnel.DoorKube)
		if err != nil {
			t.Fatal(err)
		}
		stalled = append(stalled, conn)
		if _, err := io.WriteString(conn, strings.Repeat("GET / HTTP/1.1\r\nHost: kube\r\n\r\n", 50)); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		readLesson(t, session)
	}
	for _, conn := range stalled {
		conn.Close()
	}
}

// enrollment answers as a hub would.
type enrollment struct {
	rpcv1.UnimplementedEnrollServiceServer
	hubID string
}

func (e enrollment) Enroll(context.Context, *rpcv1.EnrollRequest) (*rpcv1.EnrollResponse, error) {
	return &rpcv1.EnrollResponse{HubId: e.hubID}, nil
}

func fingerprint(hub *tunneltest.Hub) string {
	sum := sha256.Sum256(hub.Authority.Certificate.Raw)
	return hex.EncodeToString(sum[:])
}

func TestEnrollConnTrustsTheFingerprint(t *testing.T) {
	hub, address := listen(t, func(c *tunnel.ServerConfig) { c.Enroll = enrollment{hubID: c.HubID} })
	other := tunneltest.NewHub(t, nil)
	for name, tc := range map[string]struct {
		fingerprint string
		want        codes.Code
	}{
		"the hub's":          {fingerprint(hub), codes.OK},
		"in upper case":      {"SHA256:" + strings.ToUpper(fingerprint(hub)), codes.OK},
		"another hub's":      {fingerprint(other), codes.Unavailable},
		"one that is broken": {strings.Repeat("0", 64), codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := tunnel.EnrollConn(t.Context(), address, tc.fingerprint)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, err = rpcv1.NewEnrollServiceClient(conn).Enroll(t.Context(), &rpcv1.EnrollRequest{})
			if status.Code(err) != tc.want {
				t.Fatalf("Enroll() error = %v, want %v", err, tc.want)
			}
		})
	}
	if _, err := tunnel.EnrollConn(t.Context(), address, "abc"); err == nil {
		t.Error("a short fingerprint is accepted")
	}
}

func TestOnlyEnrollIsOpenWithoutCertificate(t *testing.T) {
	_, address := listen(t, func(c *tunnel.ServerConfig) { c.Enroll = enrollment{hubID: c.HubID} })
	conn := dialPort(t, address, nil)
	enroll := rpcv1.NewEnrollServiceClient(conn)
	if _, err := enroll.Enroll(t.Context(), &rpcv1.EnrollRequest{}); err != nil {
		t.Errorf("Enroll() error = %v", err)
	}
	big := &rpcv1.EnrollRequest{Csr: make([]byte, 65<<10)}
	if _, err := enroll.Enroll(t.Context(), big); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message of 65 KiB: %v, want ResourceExhausted", err)
	}
	stream, err := agent.NewAgentServiceClient(conn).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("Connect() error = %v, want Unauthenticated", err)
	}
}

func TestPublicPortRefusesForeignCertificates(t *testing.T) {
	hub, address := listen(t, func(c *tunnel.ServerConfig) { c.Enroll = enrollment{hubID: c.HubID} })
	stranger := tunneltest.NewAuthority(t)
	for name, cert := range map[string]*tls.Certificate{
		"another authority's": stranger.Issue(t, hub.Authority.NewCluster("spoke1").URI()),
		"a hub's":             hub.Authority.Issue(t, hubURI(hub)),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := rpcv1.NewEnrollServiceClient(dialPort(t, address, cert)).Enroll(t.Context(), &rpcv1.EnrollRequest{})
			if status.Code(err) != codes.Unavailable {
				t.Errorf("Enroll() error = %v, want a refused handshake", err)
			}
		})
	}
}

func dialPort(t *testing.T, address string, cert *tls.Certificate) *grpc.ClientConn {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true}
	if cert != nil {
		config.Certificates = []tls.Certificate{*cert}
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// TestSilentConnectionsAreBounded opens more connections than the port holds,
// says nothing on them, and has an agent connect meanwhile.
func TestSilentConnectionsAreBounded(t *testing.T) {
	hub, address := listen(t, func(c *tunnel.ServerConfig) {
		c.Limits = tunnel.Limits{HandshakeTimeout: 500 * time.Millisecond, Handshakes: 40, HandshakesPerHost: 30}
	})
	var ended atomic.Int32
	var silent sync.WaitGroup
	for range 100 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		silent.Go(func() {
			defer conn.Close()
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := io.Copy(io.Discard, conn); !errors.Is(err, os.ErrDeadlineExceeded) {
				ended.Add(1)
			}
		})
	}
	runOver(t, hub, address, "spoke1", kube(echo))
	hub.Session(t, "spoke1")
	silent.Wait() // the port ends each of them
	if ended.Load() != 100 {
		t.Errorf("%d of 100 silent connections were ended", ended.Load())
	}
}

func TestAgentDialsThroughProxy(t *testing.T) {
	_, address := listen(t, func(c *tunnel.ServerConfig) { c.Enroll = enrollment{hubID: c.HubID} })
	var asked atomic.Value
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.Method + " " + r.Host + " " + r.Header.Get("Proxy-Authorization"))
		if r.Header.Get("Proxy-Authorization") == "" {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		tunnelTo(w, address)
	}))
	t.Cleanup(proxy.Close)
	t.Setenv("NO_PROXY", "")
	for name, tc := range map[string]struct {
		user string
	}{
		"with its password": {"user:secret@"},
		"without":           {""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("HTTPS_PROXY", strings.Replace(proxy.URL, "http://", "http://"+tc.user, 1))
			conn, err := tunnel.EnrollConn(t.Context(), "hub.example:8443", strings.Repeat("0", 64))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, err = rpcv1.NewEnrollServiceClient(conn).Enroll(t.Context(), &rpcv1.EnrollRequest{})
			if status.Code(err) != codes.Unavailable {
				t.Errorf("Enroll() error = %v, want a failed handshake or dial", err)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error tells the proxy's password: %v", err)
			}
			reached := strings.Contains(err.Error(), "fingerprint")
			if want := tc.user != ""; reached != want {
				t.Errorf("reached the hub = %v, want %v: %v", reached, want, err)
			}
			if got, _ := asked.Load().(string); !strings.HasPrefix(got, "CONNECT hub.example:8443 ") {
				t.Errorf("proxy was asked for %q", got)
			}
		})
	}
}

// tunnelTo answers CONNECT with a connection to address.
func tunnelTo(w http.ResponseWriter, address string) {
	to, err := net.Dial("tcp", address)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer to.Close()
	w.WriteHeader(http.StatusOK)
	from, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer from.Close()
	go func() {
		_, _ = io.Copy(to, buffered)
		to.Close()
	}()
	_, _ = io.Copy(from, to)
}
