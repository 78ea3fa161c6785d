// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// eachWay runs a check from hub to agent and from agent to hub.
func eachDirection(t *testing.T, check func(t *testing.T, from, to net.Conn)) {
	t.Helper()
	for name, reverse := range map[string]bool{"hub to agent": false, "agent to hub": true} {
		t.Run(name, func(t *testing.T) {
			h := startHub(t, nil)
			p, link := h.connect(t, h.agentConfig(t, nil))
			from, to := openStream(t, p, link)
			if reverse {
				from, to = to, from
			}
			check(t, from, to)
		})
	}
}

func checkBytes(t *testing.T) {
	eachDirection(t, func(t *testing.T, from, to net.Conn) {
		exchange(t, from, to)
		exchange(t, to, from)
	})
}

// exchange sends a few bytes and reads them.
func exchange(t *testing.T, from, to net.Conn) {
	t.Helper()
	if _, err := from.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(to, got); err != nil || string(got) != "ping" {
		t.Fatalf("read %q, %v, want ping", got, err)
	}
}

// noise returns n bytes, always the same.
func noise(n int) []byte {
	source := rand.NewChaCha8([32]byte{1})
	p := make([]byte, n)
	_, _ = source.Read(p) // Never fails.
	return p
}

func checkLargeWrites(t *testing.T) {
	want := noise(8 << 20) // Twice what gRPC accepts as one message.
	eachDirection(t, func(t *testing.T, from, to net.Conn) {
		written := make(chan error, 1)
		buffer := bytes.Clone(want)
		go func() {
			_, err := from.Write(buffer)
			clear(buffer) // Ours again: what has not left must be a copy.
			written <- err
		}()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(to, got); err != nil {
			t.Fatal(err)
		}
		if err := receive(t, written, "the write"); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Error("what was read is not what was written")
		}
	})
}

func checkAddresses(t *testing.T) {
	eachDirection(t, func(t *testing.T, from, _ net.Conn) {
		for name, addr := range map[string]net.Addr{"local": from.LocalAddr(), "remote": from.RemoteAddr()} {
			if addr == nil || addr.String() == "" || addr.Network() == "" {
				t.Errorf("%s address is %v", name, addr)
			}
		}
		if _, ok := from.(interface{ CloseWrite() error }); ok {
			t.Error("stream has a half-close, which konnectivity cannot carry")
		}
	})
}

func setDeadline(t *testing.T, set func(time.Time) error, to time.Time) {
	t.Helper()
	if err := set(to); err != nil {
		t.Fatal(err)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) && errors.As(err, &timeout) && timeout.Timeout()
}

func checkConcurrentClose(t *testing.T) {
	eachDirection(t, func(t *testing.T, from, to net.Conn) {
		var users sync.WaitGroup
		moved := make(chan struct{})
		var once sync.Once
		for _, conn := range []net.Conn{from, to} {
			for range 4 {
				users.Go(func() {
					for err := error(nil); err == nil; {
						_, err = conn.Write([]byte("some bytes"))
					}
				})
				users.Go(func() {
					for p := make([]byte, 8); ; {
						if _, err := conn.Read(p); err != nil {
							return
						}
						once.Do(func() { close(moved) })
						_ = conn.SetDeadline(time.Now().Add(patience))
					}
				})
			}
		}
		receive(t, moved, "bytes")
		for range 2 {
			users.Go(func() { _ = from.Close() })
			users.Go(func() { _ = to.Close() })
		}
		finished := make(chan struct{})
		go func() {
			users.Wait()
			close(finished)
		}()
		receive(t, finished, "readers and writers to end")
	})
}
