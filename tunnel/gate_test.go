// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/internal/testing/tunneltest"
	"github.com/spokelet/spokelet/tunnel"
)

// crowd is a number of connections to the public port that do nothing more.
type crowd struct {
	address string
	ended   chan struct{} // one for each connection that the port has closed
}

func newCrowd(address string) *crowd {
	return &crowd{address: address, ended: make(chan struct{}, 1000)}
}

// join opens a connection. prepare brings it to where it does nothing.
func (c *crowd) join(t *testing.T, prepare func(net.Conn) error) {
	t.Helper()
	conn, err := net.Dial("tcp", c.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := prepare(conn); err != nil {
		c.ended <- struct{}{} // closed before it came so far
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, conn) // until it ends, however
		c.ended <- struct{}{}
	}()
}

// waitFor waits until the port has closed so many connections.
func (c *crowd) waitFor(t *testing.T, want int) {
	t.Helper()
	for got := range want {
		select {
		case <-c.ended:
		case <-patience(t).Done():
			t.Fatalf("the port has closed %d connections, want %d", got, want)
		}
	}
}

// patience is how long what should happen at once may take on a busy machine.
func patience(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func silent(net.Conn) error { return nil }

// shakesHands begins HTTP/2, with a certificate or, of nil, without: gRPC has no
// reason to end the connection then.
func shakesHands(cert *tls.Certificate) func(net.Conn) error {
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}
	if cert != nil {
		config.Certificates = []tls.Certificate{*cert}
	}
	return func(c net.Conn) error {
		conn := tls.Client(c, config)
		if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
			return err
		}
		return http2.NewFramer(conn, nil).WriteSettings()
	}
}

// showsACertificate sends a certificate and not the signature that proves that
// the key is its own, as a thief of nothing but the certificate would.
func showsACertificate(cert *tls.Certificate) func(net.Conn) error {
	shake := shakesHands(cert)
	return func(c net.Conn) error { return shake(&unsigned{Conn: c}) }
}

// unsigned swallows what a TLS 1.3 client sends after its certificate, which is
// its first encrypted record (RFC 8446, 4.4).
type unsigned struct {
	net.Conn
	shown bool
}

func (u *unsigned) Write(b []byte) (int, error) {
	const header, encrypted = 5, 23
	n := 0
	for !u.shown && n < len(b) {
		u.shown = b[n] == encrypted
		n += header + int(binary.BigEndian.Uint16(b[n+3:]))
	}
	if _, err := u.Conn.Write(b[:n]); err != nil {
		return 0, err
	}
	return len(b), nil
}

func clusterCertificate(t *testing.T, hub *tunneltest.Hub, name string) *tls.Certificate {
	t.Helper()
	return hub.Authority.Issue(t, hub.Authority.NewCluster(name).URI())
}

func TestGateClosesConnectionWithoutPipe(t *testing.T) {
	hub, address := listen(t, func(c *tunnel.ServerConfig) {
		c.Limits = tunnel.Limits{HandshakeTimeout: 500 * time.Millisecond, ClusterConnections: 100}
		c.Enroll = enrollment{}
	})
	cert := clusterCertificate(t, hub, "spoke1")
	idle := newCrowd(address)
	for range 60 {
		idle.join(t, shakesHands(cert))
	}
	idle.waitFor(t, 60)
	// A call without a message keeps gRPC from seeing an idle connection. One that a busy
	// machine does not make in time is made again.
	stream, err := dialPort(t, address, cert).NewStream(patience(t), &grpc.StreamDesc{ClientStreams: true},
		rpcv1.EnrollService_Enroll_FullMethodName, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(&rpcv1.EnrollResponse{}); err == nil || stream.Context().Err() == context.DeadlineExceeded {
		t.Errorf("an enrolment without a message ended with %v, want the end of its connection", err)
	}
}

func TestGateBoundsConnectionsOfCluster(t *testing.T) {
	const places, others = 4, 8
	hub, address := listen(t, func(c *tunnel.ServerConfig) {
		c.Limits = tunnel.Limits{HandshakeTimeout: time.Minute, ClusterConnections: places}
	})
	cert := clusterCertificate(t, hub, "spoke1")
	idle := newCrowd(address)
	for range places + others {
		idle.join(t, shakesHands(cert))
	}
	idle.waitFor(t, others)
	runOver(t, hub, address, "spoke2", kube(echo))
	readEcho(t, hub.Session(t, "spoke2"))
	if more := len(idle.ended); more != 0 {
		t.Errorf("%d connections within the bound were closed", more)
	}
}

func TestGateCountsCertificateWithoutKeyAsAnonymous(t *testing.T) {
	const places, others = 4, 8
	hub, address := listen(t, func(c *tunnel.ServerConfig) {
		c.Limits = tunnel.Limits{HandshakeTimeout: time.Minute, Handshakes: places}
	})
	cert := clusterCertificate(t, hub, "spoke1")
	thieves := newCrowd(address)
	for range places + others {
		thieves.join(t, showsACertificate(cert))
	}
	thieves.waitFor(t, others)
}

// TestGateAdmitsAgentsWhileFullOfAnonymousConnections has strangers hold every place that there is for
// them, from the address that the agent comes from.
func TestGateAdmitsAgentsWhileFullOfAnonymousConnections(t *testing.T) {
	const places = 8
	for name, stranger := range map[string]func(net.Conn) error{
		"with TLS":    shakesHands(nil),
		"without TLS": silent,
	} {
		t.Run(name, func(t *testing.T) {
			hub, address := listen(t, func(c *tunnel.ServerConfig) {
				c.Limits = tunnel.Limits{
					HandshakeTimeout: time.Minute, Handshakes: places, HandshakesPerHost: places,
					Anonymous: places, AnonymousPerHost: places,
				}
			})
			strangers := newCrowd(address)
			for range 2 * places {
				strangers.join(t, stranger)
			}
			strangers.waitFor(t, places)
			runOver(t, hub, address, "spoke1", kube(echo))
			connected := make(chan struct{}, 10)
			defer hub.Server.Sessions().Subscribe(func(tunnel.Event) { connected <- struct{}{} })()
			select {
			case <-connected:
			case <-patience(t).Done():
				t.Fatal("the agent found no place")
			}
			readEcho(t, hub.Session(t, "spoke1"))
		})
	}
}

// waitingRoom is an enrolment that waits for people, of callers that hold a join token if
// they say so.
type waitingRoom struct {
	rpcv1.UnimplementedEnrollServiceServer
	entered, leave chan struct{}
}

func (w waitingRoom) Enroll(ctx context.Context, request *rpcv1.EnrollRequest) (*rpcv1.EnrollResponse, error) {
	if request.GetToken() == "held" {
		tunnel.MarkTokenHolder(ctx)
	}
	w.entered <- struct{}{}
	select {
	case <-w.leave:
		return &rpcv1.EnrollResponse{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestGateKeepsTokenHoldersApartFromAnonymous has strangers come from the address of one
// that holds a token, and of one that does not.
func TestGateKeepsTokenHoldersApartFromAnonymous(t *testing.T) {
	const places = 4
	for name, tc := range map[string]struct {
		token string
		stays bool
	}{"with a token": {token: "held", stays: true}, "without one": {token: "guessed"}} {
		t.Run(name, func(t *testing.T) {
			room := waitingRoom{entered: make(chan struct{}, 1), leave: make(chan struct{})}
			_, address := listen(t, func(c *tunnel.ServerConfig) {
				c.Limits = tunnel.Limits{HandshakeTimeout: time.Minute, Anonymous: places, AnonymousPerHost: places}
				c.Enroll = room
			})
			answered := make(chan error, 1)
			client := rpcv1.NewEnrollServiceClient(dialPort(t, address, nil))
			go func() {
				_, err := client.Enroll(patience(t), &rpcv1.EnrollRequest{Token: tc.token})
				answered <- err
			}()
			<-room.entered
			strangers := newCrowd(address)
			for range 3 * places {
				strangers.join(t, shakesHands(nil))
			}
			if tc.stays {
				strangers.waitFor(t, 2*places)
				close(room.leave)
			}
			if err := <-answered; (err == nil) != tc.stays {
				t.Errorf("the call ended with %v", err)
			}
		})
	}
}

// TestGateBoundsTokenHolders as strangers are, by four times as many: one may give a
// token to others.
func TestGateBoundsTokenHolders(t *testing.T) {
	const places = 8
	room := waitingRoom{entered: make(chan struct{}), leave: make(chan struct{})}
	_, address := listen(t, func(c *tunnel.ServerConfig) {
		c.Limits = tunnel.Limits{HandshakeTimeout: time.Minute, Anonymous: places / 4, AnonymousPerHost: places / 4}
		c.Enroll = room
	})
	answered := make(chan error, places+1)
	for range places + 1 {
		client := rpcv1.NewEnrollServiceClient(dialPort(t, address, nil))
		go func() {
			_, err := client.Enroll(patience(t), &rpcv1.EnrollRequest{Token: "held"})
			answered <- err
		}()
		<-room.entered
	}
	if err := <-answered; err == nil {
		t.Error("the oldest of one more than there are places was answered")
	}
	close(room.leave)
	for range places {
		if err := <-answered; err != nil {
			t.Errorf("one within the bound: %v", err)
		}
	}
}

// acceptedTogether is an enrolment that ends when so many callers wait at once.
type acceptedTogether struct {
	rpcv1.UnimplementedEnrollServiceServer
	want    int32
	waiting *atomic.Int32
	all     chan struct{}
}

func (a acceptedTogether) Enroll(ctx context.Context, _ *rpcv1.EnrollRequest) (*rpcv1.EnrollResponse, error) {
	tunnel.MarkTokenHolder(ctx)
	if a.waiting.Add(1) == a.want {
		close(a.all)
	}
	select {
	case <-a.all:
		return &rpcv1.EnrollResponse{}, nil
	case <-ctx.Done():
		a.waiting.Add(-1)
		return nil, ctx.Err()
	}
}

// TestGateHoldsFleetBehindOneAddress has callers that hold tokens wait until all of
// them do. One may lose its connection before its call has arrived, and tries again.
func TestGateHoldsFleetBehindOneAddress(t *testing.T) {
	const places, callers = 8, 32
	room := acceptedTogether{want: callers, waiting: &atomic.Int32{}, all: make(chan struct{})}
	_, address := listen(t, func(c *tunnel.ServerConfig) {
		c.Limits = tunnel.Limits{HandshakeTimeout: time.Minute, Anonymous: places, AnonymousPerHost: places}
		c.Enroll = room
	})
	ctx := patience(t)
	var calls sync.WaitGroup
	defer calls.Wait()
	for range callers {
		client := rpcv1.NewEnrollServiceClient(dialPort(t, address, nil))
		calls.Go(func() {
			_, err := client.Enroll(ctx, &rpcv1.EnrollRequest{}, grpc.WaitForReady(true))
			for err != nil && ctx.Err() == nil {
				_, err = client.Enroll(ctx, &rpcv1.EnrollRequest{}, grpc.WaitForReady(true))
			}
			if err != nil {
				t.Errorf("a caller was not answered: %v", err)
			}
		})
	}
}
