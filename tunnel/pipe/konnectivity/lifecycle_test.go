// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/spokelet/spokelet/tunnel/pipe"
)

func checkBusy(t *testing.T) {
	h := startHub(t, nil)
	p, link := h.connect(t, h.agentConfig(t, nil))
	hub, agent := openStream(t, p, link)
	if _, err := p.Dial(t.Context()); !errors.Is(err, pipe.ErrBusy) {
		t.Fatalf("Dial() a second time = %v, want %v", err, pipe.ErrBusy)
	}
	exchange(t, hub, agent)
	if err := hub.Close(); err != nil {
		t.Fatal(err)
	}
	hub, agent = openStream(t, p, link)
	exchange(t, hub, agent)
}

// broken checks the end of a stream: what was sent before it, and no clean end.
func broken(t *testing.T, conn net.Conn, before string) {
	t.Helper()
	setDeadline(t, conn.SetReadDeadline, time.Now().Add(patience))
	got, err := io.ReadAll(conn)
	if string(got) != before {
		t.Errorf("read %q before the end, want %q", got, before)
	}
	if err == nil || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("read to the end with %v, want %v", err, io.ErrUnexpectedEOF)
	}
}

func checkAgentClose(t *testing.T) {
	h := startHub(t, nil)
	p, link := h.connect(t, h.agentConfig(t, nil))
	hub, agent := openStream(t, p, link)
	if _, err := agent.Write([]byte("last words")); err != nil {
		t.Fatal(err)
	}
	if err := agent.Close(); err != nil {
		t.Fatal(err)
	}
	broken(t, hub, "last words")
	if _, err := hub.Write([]byte("x")); err == nil {
		t.Error("wrote to a stream that has ended")
	}
	open(t, p, link)
}

func checkHubClose(t *testing.T) {
	h := startHub(t, nil)
	p, link := h.connect(t, h.agentConfig(t, nil))
	hub, agent := openStream(t, p, link)
	if err := hub.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := hub.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read %v after Close, want %v", err, net.ErrClosed)
	}
	if _, err := hub.Write(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("wrote with %v after Close, want %v", err, net.ErrClosed)
	}
	broken(t, agent, "")
	open(t, p, link)
}

// open checks that the pipe itself goes on.
func open(t *testing.T, p pipe.Pipe, link pipe.Link) {
	t.Helper()
	hub, agent := openStream(t, p, link)
	exchange(t, hub, agent)
	if err := link.Err(); err != nil {
		t.Errorf("link ended with %v", err)
	}
}

func checkPipeClose(t *testing.T) {
	h := startHub(t, nil)
	p, link := h.connect(t, h.agentConfig(t, nil))
	hub, agent := openStream(t, p, link)
	for range 2 {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	receive(t, p.Done(), "the pipe to end")
	receive(t, link.Done(), "the link to end")
	if err := link.Err(); !errors.Is(err, pipe.ErrLost) {
		t.Errorf("link ended with %v, want %v", err, pipe.ErrLost)
	}
	if _, err := link.Accept(); !errors.Is(err, pipe.ErrLost) {
		t.Errorf("Accept() = %v, want %v", err, pipe.ErrLost)
	}
	if _, err := p.Dial(t.Context()); !errors.Is(err, pipe.ErrClosed) {
		t.Errorf("Dial() = %v, want %v", err, pipe.ErrClosed)
	}
	broken(t, hub, "")
	if _, err := agent.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("agent read %v", err)
	}
}

func checkLinkClose(t *testing.T) {
	h := startHub(t, nil)
	p, link := h.connect(t, h.agentConfig(t, nil))
	hub, _ := openStream(t, p, link)
	for range 2 {
		if err := link.Close(); err != nil {
			t.Fatal(err)
		}
	}
	receive(t, link.Done(), "the link to end")
	receive(t, p.Done(), "the pipe to end")
	if err := link.Err(); !errors.Is(err, pipe.ErrClosed) {
		t.Errorf("link ended with %v, want %v", err, pipe.ErrClosed)
	}
	if _, err := link.Accept(); !errors.Is(err, pipe.ErrClosed) {
		t.Errorf("Accept() = %v, want %v", err, pipe.ErrClosed)
	}
	if _, err := p.Dial(t.Context()); !errors.Is(err, pipe.ErrLost) {
		t.Errorf("Dial() = %v, want %v", err, pipe.ErrLost)
	}
	broken(t, hub, "")
}

func checkHandlerReturn(t *testing.T) {
	h := startHub(t, nil)
	p, link := h.connect(t, h.agentConfig(t, nil))
	p.release()
	receive(t, p.Done(), "the pipe to end")
	receive(t, link.Done(), "the link to end")
}

func checkCut(t *testing.T) {
	h := startHub(t, nil)
	network := newNetwork(-1)
	p, link := h.connect(t, h.agentConfig(t, func(o *pipe.DialConfig) { o.DialContext = network.dialContext }))
	hub, agent := openStream(t, p, link)
	exchange(t, hub, agent)
	network.cut()
	receive(t, link.Done(), "the link to end")
	receive(t, p.Done(), "the pipe to end")
	if err := link.Err(); !errors.Is(err, pipe.ErrLost) {
		t.Errorf("link ended with %v, want %v", err, pipe.ErrLost)
	}
	broken(t, hub, "")
	if _, err := agent.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("agent read %v", err)
	}
}

// fill writes until nothing more is taken.
func fill(t *testing.T, conn net.Conn) {
	t.Helper()
	setDeadline(t, conn.SetWriteDeadline, time.Now().Add(filling))
	if _, err := conn.Write(make([]byte, 64<<20)); !isTimeout(err) {
		t.Fatalf("wrote with %v, want a deadline", err)
	}
	setDeadline(t, conn.SetWriteDeadline, time.Time{})
}

func checkWedge(t *testing.T) {
	h := startHub(t, nil)
	p, link := h.connect(t, h.agentConfig(t, nil))
	hub, _ := openStream(t, p, link)
	fill(t, hub)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	receive(t, link.Done(), "the link to end")
	receive(t, p.Done(), "the pipe to end")
}

func checkStalledHub(t *testing.T) {
	h := startHub(t, nil)
	p, link := h.connect(t, h.agentConfig(t, nil))
	_, agent := openStream(t, p, link)
	fill(t, agent)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	receive(t, link.Done(), "the link to end")
	receive(t, p.Done(), "the pipe to end")
}

func checkDeadAgent(t *testing.T) {
	h := startHub(t, func(o *HubConfig) { o.DialTimeout = soon })
	network := newNetwork(-1)
	p, _ := h.connect(t, h.agentConfig(t, func(o *pipe.DialConfig) { o.DialContext = network.dialContext }))
	network.freeze()
	for range 3 {
		if _, err := p.Dial(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Dial() = %v, want %v", err, context.DeadlineExceeded)
		}
	}
}

func checkCancelledDial(t *testing.T) {
	h := startHub(t, nil)
	p, link := h.connect(t, h.agentConfig(t, nil))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if conn, err := p.Dial(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("Dial() = %v, %v, want %v", conn, err, context.Canceled)
	}
	// The agent may have taken the stream before it was cancelled.
	hub, err := p.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for {
		agent, err := link.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := hub.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(agent, make([]byte, 4)); err == nil {
			return
		}
	}
}
