// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"github.com/spokelet/spokelet/tunnel/identity"
	"github.com/spokelet/spokelet/tunnel/pipe"
)

func admitAll(context.Context, identity.Cluster) error { return nil }

// testPipe is a pipe whose agent is the test.
func testPipe(tb testing.TB, patience time.Duration) *hubPipe {
	tb.Helper()
	raw, far := net.Pipe()
	tb.Cleanup(func() { _ = far.Close() })
	p := newHubPipe(HubConfig{DialTimeout: time.Minute, Patience: patience}, admittedAgent{
		ctx: tb.Context(), connection: &connection{raw: raw},
		peer: pipe.Peer{Cluster: identity.Cluster{Name: "store1"}, Process: "agent-1"},
	})
	tb.Cleanup(func() { _ = p.Close() })
	return p
}

func testFrontend(tb testing.TB, patience time.Duration) *frontend {
	tb.Helper()
	f := newFrontend(testPipe(tb, patience))
	if p, err := f.Recv(); err != nil || p.GetDialRequest().GetRandom() == 0 {
		tb.Fatalf("first packet is %v, %v, want a dial with a random", p, err)
	}
	return f
}

func dialClose() *client.Packet {
	return &client.Packet{Type: client.PacketType_DIAL_CLS, Payload: &client.Packet_CloseDial{CloseDial: &client.CloseDial{}}}
}

func dataError(err string) *client.Packet {
	return &client.Packet{Type: client.PacketType_DATA, Payload: &client.Packet_Data{Data: &client.Data{ConnectID: 1, Error: err}}}
}

func send(tb testing.TB, f *frontend, packets ...*client.Packet) {
	tb.Helper()
	for _, p := range packets {
		if err := f.Send(p); err != nil {
			tb.Fatalf("Send(%v) = %v", p, err)
		}
	}
}

func TestFrontendDialReturnsFailure(t *testing.T) {
	cases := map[string]struct {
		reason string
		answer *client.Packet
		want   error
	}{
		"an error":         {"the agent could not", dialResponse(0, 0, "dial unix: refused"), pipe.ErrLost},
		"an error and id":  {"the error counts", dialResponse(0, 1, "no"), pipe.ErrLost},
		"no connection":    {"nothing to send to", dialResponse(0, 0, ""), pipe.ErrLost},
		"closed":           {"the agent gave up", dialClose(), io.ErrUnexpectedEOF},
		"closed otherwise": {"the agent was lost", closeResponse(1, ""), io.ErrUnexpectedEOF},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := testFrontend(t, time.Second)
			send(t, f, tc.answer)
			conn, err := f.dial(t.Context())
			if conn != nil || !errors.Is(err, tc.want) || errors.Is(err, io.EOF) {
				t.Errorf("%s: dial() = %v, %v, want %v", tc.reason, conn, err, tc.want)
			}
			if p, err := f.Recv(); !errors.Is(err, io.EOF) {
				t.Errorf("%s: Recv() = %v, %v, want %v: else the proxy server leaks", tc.reason, p, err, io.EOF)
			}
		})
	}
}

func TestFrontendStreamNeverEndsWithEOF(t *testing.T) {
	cases := map[string]struct {
		reason string
		end    func(*testing.T, *frontend)
		want   error
	}{
		"closed without an error": {"the loss of an agent looks the same", func(t *testing.T, f *frontend) { send(t, f, closeResponse(1, "")) }, io.ErrUnexpectedEOF},
		"closed with an error":    {"the agent says why", func(t *testing.T, f *frontend) { send(t, f, closeResponse(1, "unknown connectID")) }, io.ErrUnexpectedEOF},
		"data with an error":      {"the agent says why", func(t *testing.T, f *frontend) { send(t, f, dataError("read failed")) }, io.ErrUnexpectedEOF},
		"a dial closed late":      {"out of place, and an end", func(t *testing.T, f *frontend) { send(t, f, dialClose()) }, io.ErrUnexpectedEOF},
		"the proxy server ended":  {"without a word", func(_ *testing.T, f *frontend) { f.fail(streamEnd("proxy server", nil)) }, io.ErrUnexpectedEOF},
		"the pipe was closed":     {"by its owner", func(_ *testing.T, f *frontend) { f.fail(streamEnd("pipe", pipe.ErrClosed)) }, pipe.ErrClosed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := testFrontend(t, time.Second)
			send(t, f, dialResponse(0, 1, ""))
			conn, err := f.dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			send(t, f, data(1, []byte("before")))
			tc.end(t, f)
			got, err := io.ReadAll(conn)
			if string(got) != "before" || !errors.Is(err, tc.want) {
				t.Errorf("%s: read %q, %v, want before, %v", tc.reason, got, err, tc.want)
			}
		})
	}
}

func TestFrontendSendsCloseOnceAfterData(t *testing.T) {
	f := testFrontend(t, time.Second)
	var sent []*client.Packet
	f.send = func(p *client.Packet) error {
		sent = append(sent, proto.CloneOf(p)) // its bytes are lent
		return nil
	}
	send(t, f, dialResponse(0, 7, ""))
	conn, err := f.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("bytes")); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if p, err := f.Recv(); err != nil || p.GetCloseRequest().GetConnectID() != 7 {
		t.Errorf("Recv() = %v, %v, want the close", p, err)
	}
	if len(sent) != 1 || string(sent[0].GetData().GetData()) != "bytes" || sent[0].GetData().GetConnectID() != 7 {
		t.Errorf("sent %v before the close, want the bytes", sent)
	}
	if p, err := f.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("Recv() = %v, %v, want %v", p, err, io.EOF)
	}
}

func TestFrontendRefusesLateDialResponse(t *testing.T) {
	f := testFrontend(t, time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if conn, err := f.dial(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("dial() = %v, %v", conn, err)
	}
	if err := f.Send(dialResponse(0, 3, "")); err == nil {
		t.Error("Send() took an answer that nobody waits for: the connection would leak")
	}
}

func TestStalledReaderLosesItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := testFrontend(t, 5*time.Second)
		send(t, f, dialResponse(0, 1, ""))
		conn, err := f.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for !f.conn.isClosed() {
			send(t, f, data(1, make([]byte, 4096)))
		}
		if waited := time.Since(start); waited != 5*time.Second {
			t.Errorf("the agent was held for %v, want 5s", waited)
		}
		send(t, f, data(1, []byte("more"))) // At once: nobody waits for a stream that has ended.
		if waited := time.Since(start); waited != 5*time.Second {
			t.Errorf("the agent was held for %v, want 5s", waited)
		}
		if _, err := io.ReadAll(conn); !errors.Is(err, pipe.ErrStalled) || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("read to the end with %v, want %v", err, pipe.ErrStalled)
		}
	})
}

func TestDialEndsWithPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := testPipe(t, time.Second)
		f := newFrontend(p)
		time.AfterFunc(time.Second, func() { p.closeWith(pipe.ErrLost) })
		if conn, err := f.dial(t.Context()); !errors.Is(err, pipe.ErrLost) {
			t.Errorf("dial() = %v, %v, want %v", conn, err, pipe.ErrLost)
		}
	})
}

// FuzzPackets feeds a front end what an agent could send, as it comes from the
// wire, and checks that its end is never clean.
func FuzzPackets(f *testing.F) {
	for _, p := range []*client.Packet{
		dialResponse(0, 1, ""), dialResponse(0, 0, "no"), data(1, []byte("bytes")), dataError("x"), closeResponse(1, "x"), dialClose(),
		{Type: client.PacketType_DRAIN}, {Type: client.PacketType_DIAL_RSP}, {Type: 99},
	} {
		wire, err := proto.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire, wire)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		fe := testFrontend(t, 0)
		for _, wire := range [][]byte{first, second} {
			p := new(client.Packet)
			if proto.Unmarshal(wire, p) != nil {
				return
			}
			if checkFromAgent(p) != nil {
				continue
			}
			_ = fe.Send(p)
		}
		fe.fail(streamEnd("pipe", pipe.ErrLost))
		if _, err := fe.conn.Read(make([]byte, 1<<16)); errors.Is(err, io.EOF) {
			t.Errorf("stream ended cleanly with %v", err)
		}
		for i := 0; ; i++ {
			if _, err := fe.Recv(); errors.Is(err, io.EOF) {
				return
			}
			if i > 1 {
				t.Fatal("front end does not end")
			}
		}
	})
}
