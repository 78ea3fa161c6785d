// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/tunnel/pipe"
)

func checkManyDials(t *testing.T) {
	const dials = 1000
	h := startHub(t, func(o *HubConfig) { o.DialTimeout = 5 * soon })
	network := newNetwork(-1)
	p, link := h.connect(t, h.agentConfig(t, func(o *pipe.DialConfig) { o.DialContext = network.dialContext }))
	network.freeze()
	before := goleak.IgnoreCurrent()
	errs := make(chan error, dials)
	var dialers sync.WaitGroup
	for range dials {
		dialers.Go(func() {
			_, err := p.Dial(t.Context())
			errs <- err
		})
	}
	dialers.Wait()
	close(errs)
	for err := range errs {
		if !errors.Is(err, pipe.ErrBusy) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Dial() = %v, want %v or %v", err, pipe.ErrBusy, context.DeadlineExceeded)
		}
	}
	// One attempt may still be on its way; a thousand may not.
	_ = p.Close()
	receive(t, link.Done(), "the link to end")
	goleak.VerifyNone(t, before)
}

func checkCycles(t *testing.T) {
	h := startHub(t, nil)
	options := h.agentConfig(t, nil)
	before := goleak.IgnoreCurrent()
	for i := range 200 {
		network := newNetwork(-1)
		options.DialContext = network.dialContext
		p, link := h.connect(t, options)
		hub, agent := openStream(t, p, link)
		exchange(t, hub, agent)
		switch i % 4 {
		case 0:
			network.cut()
		case 1:
			_ = p.Close()
		case 2:
			_ = link.Close()
		case 3:
			p.release()
		}
		receive(t, p.Done(), "the pipe to end")
		receive(t, link.Done(), "the link to end")
	}
	goleak.VerifyNone(t, before)
}

func checkOffsets(t *testing.T) {
	h := startHub(t, nil)
	options := h.agentConfig(t, nil)
	const stride = 61 // Prime, so that frames are cut in all places.
	for offset := 0; ; offset += stride {
		network := newNetwork(offset)
		options.DialContext = network.dialContext
		options.Process = "agent-" + strconv.Itoa(offset)
		if cutAt(t, h, options) {
			if offset < 4096 {
				t.Errorf("all passed a network that is cut after %d bytes", offset)
			}
			return
		}
	}
}

// cutAt runs one conversation on a network that may be cut and says whether it
// came to its end.
func cutAt(t *testing.T, h *testHub, options pipe.DialConfig) bool {
	t.Helper()
	link, err := h.dial(t, options)
	if err != nil {
		return false
	}
	defer func() {
		_ = link.Close()
		receive(t, link.Done(), "the link to end")
	}()
	p, ok := pipeOf(h, link, options.Process)
	if !ok {
		return false
	}
	defer func() {
		_ = p.Close()
		receive(t, p.Done(), "the pipe to end")
	}()
	go echo(link)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := p.Dial(ctx)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	return converse(t, conn)
}

// pipeOf returns the pipe of a process, and false when its link ends before.
// Pipes of agents that were cut off before they knew may come first.
func pipeOf(h *testHub, link pipe.Link, process string) (connectedPipe, bool) {
	for {
		select {
		case p := <-h.pipes:
			if p.peer.Process == process {
				return p, true
			}
		case <-link.Done():
			return connectedPipe{}, false
		}
	}
}

func echo(link pipe.Link) {
	conn, err := link.Accept()
	if err != nil {
		return
	}
	_, _ = io.Copy(conn, conn)
	_ = conn.Close()
}

func converse(t *testing.T, conn net.Conn) bool {
	t.Helper()
	setDeadline(t, conn.SetDeadline, time.Now().Add(patience))
	for i := range 8 {
		want := []byte("message " + strconv.Itoa(i))
		if _, err := conn.Write(want); err != nil {
			return false
		}
		got := make([]byte, len(want))
		n, err := readFull(conn, got)
		if !bytes.HasPrefix(want, got[:n]) {
			t.Errorf("read %q, want a prefix of %q", got[:n], want)
		}
		if err != nil {
			if errors.Is(err, io.EOF) || isTimeout(err) {
				t.Errorf("cut stream ended with %v", err)
			}
			return false
		}
	}
	return true
}

// readFull is io.ReadFull without its io.ErrUnexpectedEOF, which would hide an
// io.EOF.
func readFull(conn net.Conn, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = conn.Read(p[n:])
		n += m
	}
	return n, err
}
