// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pipetest

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

	"github.com/spokelet/spokelet/internal/testing/testscale"
)

// eachWay runs a check from hub to agent and from agent to hub.
func eachWay(t *testing.T, kind Kind, check func(t *testing.T, from, to net.Conn)) {
	t.Helper()
	for name, reverse := range map[string]bool{"hub to agent": false, "agent to hub": true} {
		t.Run(name, func(t *testing.T) {
			h := Start(t, kind, nil)
			p, link := h.Connect(t, h.Agent(t, nil))
			from, to := Open(t, p, link)
			if reverse {
				from, to = to, from
			}
			check(t, from, to)
		})
	}
}

func checkBytes(t *testing.T, kind Kind) {
	eachWay(t, kind, func(t *testing.T, from, to net.Conn) {
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

func checkLargeWrites(t *testing.T, kind Kind) {
	want := noise(8 << 20) // Twice what gRPC accepts as one message.
	eachWay(t, kind, func(t *testing.T, from, to net.Conn) {
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

func checkSmallWrites(t *testing.T, kind Kind) {
	want := noise(testscale.Of(4_000, 20_000))
	eachWay(t, kind, func(t *testing.T, from, to net.Conn) {
		written := make(chan error, 1)
		go func() {
			var err error
			for i := 0; i < len(want) && err == nil; i++ {
				_, err = from.Write(want[i : i+1])
			}
			written <- err
		}()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(to, got); err != nil {
			t.Fatal(err)
		}
		if err := receive(t, written, "the writes"); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Error("what was read is not what was written")
		}
	})
}

func checkAddresses(t *testing.T, kind Kind) {
	eachWay(t, kind, func(t *testing.T, from, _ net.Conn) {
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

func checkReadDeadline(t *testing.T, kind Kind) {
	eachWay(t, kind, func(t *testing.T, from, to net.Conn) {
		for range 2 {
			setDeadline(t, to.SetReadDeadline, time.Now().Add(soon))
			if n, err := to.Read(make([]byte, 1)); n != 0 || !isTimeout(err) {
				t.Fatalf("read %d bytes and %v, want a deadline", n, err)
			}
		}
		setDeadline(t, to.SetReadDeadline, time.Now().Add(patience))
		exchange(t, from, to)
		// A deadline wakes a read that waits already.
		setDeadline(t, to.SetReadDeadline, time.Time{})
		read := make(chan error, 1)
		go func() {
			_, err := to.Read(make([]byte, 1))
			read <- err
		}()
		setDeadline(t, to.SetDeadline, time.Now().Add(soon))
		if err := receive(t, read, "the deadline"); !isTimeout(err) {
			t.Errorf("read %v, want a deadline", err)
		}
	})
}

func checkWriteDeadline(t *testing.T, kind Kind) {
	want := noise(64 << 20) // More than all queues on the way hold.
	eachWay(t, kind, func(t *testing.T, from, to net.Conn) {
		setDeadline(t, from.SetWriteDeadline, time.Now().Add(filling))
		sent, err := from.Write(want)
		if !isTimeout(err) || sent == len(want) {
			t.Fatalf("wrote %d bytes and %v, want a deadline", sent, err)
		}
		setDeadline(t, from.SetWriteDeadline, time.Time{})
		got := make([]byte, sent)
		if _, err := io.ReadFull(to, got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want[:sent]) {
			t.Error("what was read is not what was reported as written")
		}
		exchange(t, from, to)
	})
}

func checkPastDeadline(t *testing.T, kind Kind) {
	eachWay(t, kind, func(t *testing.T, from, to net.Conn) {
		setDeadline(t, from.SetDeadline, time.Unix(1, 0))
		if _, err := from.Write([]byte("x")); !isTimeout(err) {
			t.Errorf("wrote with %v, want a deadline", err)
		}
		if _, err := from.Read(make([]byte, 1)); !isTimeout(err) {
			t.Errorf("read with %v, want a deadline", err)
		}
		setDeadline(t, from.SetDeadline, time.Time{})
		exchange(t, from, to)
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

func checkConcurrentClose(t *testing.T, kind Kind) {
	eachWay(t, kind, func(t *testing.T, from, to net.Conn) {
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
