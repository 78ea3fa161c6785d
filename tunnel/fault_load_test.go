// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/internal/testing/testscale"
	"github.com/spokelet/spokelet/internal/testing/tunneltest"
	"github.com/spokelet/spokelet/tunnel"
	"github.com/spokelet/spokelet/tunnel/pipe"
)

// TestThousandsOfRawStreamsLoseNothing holds many raw streams open at once and
// then sends 100 KB through each, both ways. Every byte comes back, and an open
// stream costs hub and agent together less than 96 KiB.
func TestThousandsOfRawStreamsLoseNothing(t *testing.T) {
	const clusters, perStream = 4, 96 << 10
	hub := tunneltest.NewHub(t, nil)
	for i := range clusters {
		hub.Connect(t, fmt.Sprintf("spoke%d", i), kube(upgrade))
	}
	streams := testscale.Of(200, 5000)
	before := memory()
	conns := make([]net.Conn, streams)
	for i := range conns {
		conns[i] = openUpgrade(t, hub.Session(t, fmt.Sprintf("spoke%d", i%clusters)))
	}
	if each := (memory() - before) / streams; each > perStream {
		t.Errorf("an open stream holds %d bytes, want at most %d", each, perStream)
	}
	sent := make([]byte, 100_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(sent) // never fails
	var lost atomic.Int32
	var using sync.WaitGroup
	for _, conn := range conns {
		using.Go(func() {
			defer conn.Close()
			if err := echoed(conn, sent); err != nil {
				t.Error(err)
				lost.Add(1)
			}
		})
	}
	using.Wait()
	if lost.Load() != 0 {
		t.Errorf("%d of %d streams lost bytes", lost.Load(), streams)
	}
}

// openUpgrade returns a raw stream that echoes.
func openUpgrade(t *testing.T, session *tunnel.Session) net.Conn {
	t.Helper()
	conn, err := session.Dial(t.Context(), tunnel.DoorKube)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /exec HTTP/1.1\r\nHost: kube\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	answer := make([]byte, len("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"))
	if _, err := io.ReadFull(conn, answer); err != nil {
		t.Fatal(err)
	}
	return conn
}

// echoed sends and half-closes, and compares what comes back up to the end.
func echoed(conn net.Conn, sent []byte) error {
	written := make(chan error, 1)
	go func() {
		_, err := conn.Write(sent)
		written <- errors.Join(err, conn.(interface{ CloseWrite() error }).CloseWrite())
	}()
	got, err := io.ReadAll(conn)
	if err = errors.Join(err, <-written); err != nil {
		return fmt.Errorf("after %d of %d bytes: %w", len(got), len(sent), err)
	}
	if !bytes.Equal(got, sent) {
		return fmt.Errorf("%d bytes came back that are not the %d sent", len(got), len(sent))
	}
	return nil
}

// TestDialsToASilentAgentAreBounded dials a session whose network swallows
// everything. What is pending is bounded by the session's streams, the rest is
// refused at once, and every dial has ended when the silence is noticed.
func TestDialsToASilentAgentAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := testscale.Of(3000, 10_000)
		hub := tunneltest.NewHub(t, nil)
		agent := hub.Connect(t, "spoke1", kube(echo))
		session := hub.Session(t, "spoke1")
		agent.Network.Freeze(true, true)
		began := time.Now()
		var refused, ended atomic.Int32
		for range dials {
			go func() {
				conn, err := session.Dial(t.Context(), tunnel.DoorKube)
				switch {
				case err == nil:
					conn.Close()
					t.Error("a dial to a silent agent succeeded")
				case errors.Is(err, tunnel.ErrBusy):
					refused.Add(1)
				}
				ended.Add(1)
			}()
		}
		synctest.Wait()
		limits := tunnel.Limits{}.Default()
		if pending := dials - int(ended.Load()); pending > limits.Streams-limits.ReservedStreams || pending == 0 {
			t.Errorf("%d dials are pending, want up to %d", pending, limits.Streams-limits.ReservedStreams)
		}
		if refused.Load() == 0 {
			t.Error("no dial was refused: the bound was not reached")
		}
		<-session.Done()
		synctest.Wait()
		if int(ended.Load()) != dials {
			t.Errorf("%d of %d dials have ended with the session", ended.Load(), dials)
		}
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("the last dial ended after %v, want at most 15s", took)
		}
	})
}

// TestReconnectsOfManyAgentsSpreadOut refuses fifty agents for ten
// minutes. Their attempts do not fall together, and become rare.
func TestReconnectsOfManyAgentsSpreadOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The waits are drawn, at first of at most half a second: in 50 ms fall 8 attempts, give
		// or take 3. In 100 ms 25 did so in one of fifty runs.
		const agents, together = 50, 50 * time.Millisecond
		hub := tunneltest.NewHub(t, nil)
		began := time.Now()
		var mu sync.Mutex
		var attempts []time.Duration
		refuse := func(context.Context, pipe.DialConfig) (pipe.Link, error) {
			mu.Lock()
			defer mu.Unlock()
			attempts = append(attempts, time.Since(began))
			return nil, errBoom
		}
		for i := range agents {
			hub.Run(t, hub.Authority.NewCluster(fmt.Sprintf("spoke%d", i)), nil, func(c *tunnel.AgentConfig) { c.DialPipe = refuse })
		}
		time.Sleep(10 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if most := agents * 60; len(attempts) > most {
			t.Errorf("%d attempts in ten minutes, want at most one in ten seconds from each agent", len(attempts))
		}
		again := attempts[agents:] // the first attempt waits for nothing
		for i, at := range again {
			if end := i + agents/2; end < len(again) && again[end]-at < together {
				t.Fatalf("half of the agents came back within %v, after %v", together, at)
			}
		}
	})
}

// TestManyAgentsReconnectThroughFullPort has every agent of a hub lose its session
// at the same moment. The public port holds only a few connections that have
// not shown a certificate; the agents come back all the same.
func TestManyAgentsReconnectThroughFullPort(t *testing.T) {
	agents := testscale.Of(40, 1000)
	hub, address := listen(t, func(c *tunnel.ServerConfig) {
		places := max(16, agents/4)
		c.Limits = tunnel.Limits{Handshakes: places, HandshakesPerHost: places}
	})
	name := func(i int) string { return fmt.Sprintf("spoke%d", i) }
	for i := range agents {
		runOver(t, hub, address, name(i), kube(echo))
	}
	for i := range agents {
		hub.Session(t, name(i))
	}
	began := time.Now()
	for i := range agents {
		hub.Server.Disconnect(name(i), errBoom)
	}
	for i := range agents {
		hub.Session(t, name(i))
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the last agent was back after %v, want at most 60s", took)
	}
}

// TestConnectsAndCutsLeaveNothing connects over TCP and cuts, again and again,
// with a stream open. No goroutine and no file is left of it.
func TestConnectsAndCutsLeaveNothing(t *testing.T) {
	hub, address := listen(t, nil)
	agent := hub.Run(t, hub.Authority.NewCluster("spoke1"), nil, func(c *tunnel.AgentConfig) {
		c.Address, c.DialPipe = address, nil
		c.Doors = holding(newHold())
		c.Backoff = tunnel.Backoff{Reset: time.Nanosecond} // each session has lived long enough
	})
	hub.Session(t, "spoke1")
	before, files := goleak.IgnoreCurrent(), openFiles(t)
	for range testscale.Of(20, 10_000) {
		session := hub.Session(t, "spoke1")
		body := open(t, session)
		hub.Server.Disconnect("spoke1", errBoom)
		if _, err := io.Copy(io.Discard, body); !errors.Is(err, errBoom) {
			t.Fatalf("the stream ended with %v, want the reason of the cut", err)
		}
		<-session.Done()
	}
	agent.Stop()
	goleak.VerifyNone(t, before)
	if now := openFiles(t); now > files {
		t.Errorf("%d files are open, %d were", now, files)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("open files cannot be counted here: %v", err)
	}
	return len(files)
}
