// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

type testAddr string

func (testAddr) Network() string  { return "test" }
func (a testAddr) String() string { return string(a) }

var errBoom = errors.New("boom")

func newConn(tb testing.TB, limit, chunk int) *Conn {
	tb.Helper()
	c, err := New(Config{Local: testAddr("here"), Remote: testAddr("there"), Limit: limit, Chunk: chunk})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func deliver(t *testing.T, c *Conn, chunks ...string) {
	t.Helper()
	for _, chunk := range chunks {
		if err := c.Deliver([]byte(chunk), 0); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNewRefusesWhatCannotBeUsed(t *testing.T) {
	for name, config := range map[string]Config{
		"no local address":  {Remote: testAddr("there")},
		"no remote address": {Local: testAddr("here")},
		"negative limit":    {Local: testAddr("here"), Remote: testAddr("there"), Limit: -1},
		"negative chunk":    {Local: testAddr("here"), Remote: testAddr("there"), Chunk: -1},
	} {
		t.Run(name, func(t *testing.T) {
			if c, err := New(config); err == nil {
				t.Errorf("New(%+v) = %v", config, c)
			}
		})
	}
}

func TestReadReturnsWhatWasDelivered(t *testing.T) {
	cases := map[string]struct {
		reason    string
		delivered []string
		size      int
		want      []string
	}{
		"one chunk, one read":   {"as it came", []string{"hello"}, 16, []string{"hello"}},
		"several chunks joined": {"one read takes all there is", []string{"he", "ll", "o"}, 16, []string{"hello"}},
		"a chunk in parts":      {"the rest waits", []string{"hello"}, 2, []string{"he", "ll", "o"}},
		"across chunks":         {"no byte is lost between", []string{"he", "llo", "!"}, 4, []string{"hell", "o!"}},
		"an empty chunk":        {"nothing is nothing", []string{"", "x"}, 4, []string{"x"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newConn(t, 0, 0)
			deliver(t, c, tc.delivered...)
			var got []string
			for range tc.want {
				p := make([]byte, tc.size)
				n, err := c.Read(p)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(p[:n]))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestWriteIsSplitAndCopied(t *testing.T) {
	c := newConn(t, 0, 4)
	p := []byte("hello world")
	if n, err := c.Write(p); n != len(p) || err != nil {
		t.Fatalf("Write() = %d, %v", n, err)
	}
	clear(p)
	var got []string
	for range 3 {
		chunk, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(chunk))
	}
	if diff := cmp.Diff([]string{"hell", "o wo", "rld"}, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestTheEndOfAConn(t *testing.T) {
	cases := map[string]struct {
		reason    string
		end       func(*Conn)
		read      string
		readErr   error
		writeErr  error
		delivered error
		next      string
	}{
		"Close drops what was delivered and sends what was written": {
			"the user is gone, the peer is not", func(c *Conn) { _ = c.Close() },
			"", net.ErrClosed, net.ErrClosed, net.ErrClosed, "written",
		},
		"Fail keeps what was delivered and drops what was written": {
			"the peer is gone, the user is not", func(c *Conn) { c.Fail(errBoom) },
			"delivered", errBoom, errBoom, errBoom, "",
		},
		"the first Fail counts": {
			"later ones are its consequences", func(c *Conn) { c.Fail(errBoom); c.Fail(io.ErrNoProgress) },
			"delivered", errBoom, errBoom, errBoom, "",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newConn(t, 0, 0)
			deliver(t, c, "delivered")
			if _, err := c.Write([]byte("written")); err != nil {
				t.Fatal(err)
			}
			tc.end(c)
			<-c.Done()
			got, err := io.ReadAll(c)
			if string(got) != tc.read || !errors.Is(err, tc.readErr) {
				t.Errorf("%s: read %q, %v, want %q, %v", tc.reason, got, err, tc.read, tc.readErr)
			}
			if _, err := c.Write([]byte("x")); !errors.Is(err, tc.writeErr) {
				t.Errorf("%s: Write() = %v, want %v", tc.reason, err, tc.writeErr)
			}
			if err := c.Deliver([]byte("x"), time.Hour); !errors.Is(err, tc.delivered) {
				t.Errorf("%s: Deliver() = %v, want %v", tc.reason, err, tc.delivered)
			}
			var sent []byte
			for chunk, err := c.Next(); !errors.Is(err, io.EOF); chunk, err = c.Next() {
				sent = append(sent, chunk...)
			}
			if string(sent) != tc.next {
				t.Errorf("%s: the transport got %q, want %q", tc.reason, sent, tc.next)
			}
		})
	}
}

func TestFailWritesLeavesTheOtherDirection(t *testing.T) {
	c := newConn(t, 0, 0)
	c.FailWrites(errBoom)
	if _, err := c.Write([]byte("x")); !errors.Is(err, errBoom) {
		t.Errorf("Write() = %v, want %v", err, errBoom)
	}
	if _, err := c.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("Next() = %v, want %v", err, io.EOF)
	}
	deliver(t, c, "x")
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Errorf("Read() = %v", err)
	}
	select {
	case <-c.Done():
		t.Error("stream is done")
	default:
	}
}

func TestDeliverWaitsForASlowReaderNoLongerThanItsPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConn(t, 1000, 0)
		deliver(t, c, string(make([]byte, 900)))
		start := time.Now()
		if err := c.Deliver(make([]byte, 100), 3*time.Second); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Deliver() = %v, want %v", err, os.ErrDeadlineExceeded)
		}
		if waited := time.Since(start); waited != 3*time.Second {
			t.Errorf("Deliver() waited %v, want 3s", waited)
		}
		// A reader who comes in time makes room.
		time.AfterFunc(time.Second, func() { _, _ = c.Read(make([]byte, 900)) })
		start = time.Now()
		if err := c.Deliver(make([]byte, 100), 3*time.Second); err != nil {
			t.Errorf("Deliver() = %v", err)
		}
		if waited := time.Since(start); waited != time.Second {
			t.Errorf("Deliver() waited %v, want 1s", waited)
		}
	})
}

func TestDeliverIsFreedByTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConn(t, 1000, 0)
		deliver(t, c, string(make([]byte, 1000)))
		time.AfterFunc(time.Second, func() { _ = c.Close() })
		if err := c.Deliver([]byte("x"), time.Hour); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Deliver() = %v, want %v", err, net.ErrClosed)
		}
	})
}

func TestSingleBytesFillTheQueueNotTheMemory(t *testing.T) {
	c := newConn(t, 64<<10, 0)
	delivered := 0
	for c.Deliver([]byte("x"), 0) == nil {
		delivered++
	}
	if limit := (64 << 10) / chunkOverhead; delivered == 0 || delivered > limit {
		t.Errorf("delivered %d single bytes, want at most %d", delivered, limit)
	}
}

func TestAChunkLargerThanTheQueuePassesAnEmptyOne(t *testing.T) {
	c := newConn(t, 16, 1024)
	if _, err := c.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if chunk, err := c.Next(); len(chunk) != 1000 || err != nil {
		t.Errorf("Next() = %d bytes, %v", len(chunk), err)
	}
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConn(t, 100, 100)
		read := func() error { _, err := c.Read(make([]byte, 1)); return err }
		write := func() error { _, err := c.Write(make([]byte, 100)); return err }
		if err := write(); err != nil { // Fills the queue.
			t.Fatal(err)
		}
		for name, tc := range map[string]struct {
			set func(time.Time) error
			use func() error
		}{
			"read":       {c.SetReadDeadline, read},
			"write":      {c.SetWriteDeadline, write},
			"both read":  {c.SetDeadline, read},
			"both write": {c.SetDeadline, write},
		} {
			for range 2 {
				start := time.Now()
				_ = tc.set(start.Add(time.Minute))
				if err := tc.use(); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Minute {
					t.Errorf("%s: %v after %v", name, err, time.Since(start))
				}
				if err := tc.use(); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%s: %v after the deadline", name, err)
				}
			}
			// Moved while it is waited for, first away and then near.
			start := time.Now()
			_ = tc.set(start.Add(time.Minute))
			time.AfterFunc(30*time.Second, func() { _ = tc.set(start.Add(time.Hour)) })
			time.AfterFunc(30*time.Minute, func() { _ = tc.set(start.Add(40 * time.Minute)) })
			if err := tc.use(); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != 40*time.Minute {
				t.Errorf("%s: %v after %v, want a deadline after 40m", name, err, time.Since(start))
			}
			_ = c.SetDeadline(time.Time{})
		}
		deliver(t, c, "x")
		if err := read(); err != nil {
			t.Errorf("Read() = %v without a deadline", err)
		}
	})
}

func TestAWriteThatTimesOutSaysWhatItWrote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConn(t, 200, 50)
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		n, err := c.Write(make([]byte, 1000))
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("Write() = %d, %v", n, err)
		}
		_ = c.Close()
		sent := 0
		for chunk, err := c.Next(); err == nil; chunk, err = c.Next() {
			sent += len(chunk)
		}
		if sent != n || n == 0 {
			t.Errorf("Write() = %d, the transport got %d", n, sent)
		}
	})
}

func TestConcurrentWritesStayWhole(t *testing.T) {
	c := newConn(t, 64, 2)
	const writers, size = 8, 10
	for i := range writers {
		go func() { _, _ = c.Write(bytes.Repeat([]byte{byte('a' + i)}, size)) }()
	}
	var got []byte
	for len(got) < writers*size {
		chunk, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, chunk...)
	}
	for i := 0; i < len(got); i += size {
		if !bytes.Equal(got[i:i+size], bytes.Repeat(got[i:i+1], size)) {
			t.Fatalf("writes are mixed: %q", got)
		}
	}
}

// FuzzQueue checks the queue against a plain buffer.
func FuzzQueue(f *testing.F) {
	f.Add([]byte{10, 3, 0, 200, 7, 129, 255})
	f.Fuzz(func(t *testing.T, steps []byte) {
		q := newQueue(256)
		never := make(chan struct{})
		var want, got []byte
		next := byte(0)
		for _, step := range steps {
			n := int(step&0x7f) + 1
			if step&0x80 == 0 {
				chunk := make([]byte, n)
				for i := range chunk {
					chunk[i] = next
					next++
				}
				if pushed, _ := q.tryPush(chunk); pushed {
					want = append(want, chunk...)
				} else {
					next -= byte(n)
				}
				continue
			}
			p := make([]byte, n)
			m, _ := q.tryRead(p)
			got = append(got, p[:m]...)
			if q.size < 0 || q.size > 256 && len(q.chunks)-q.head > 1 {
				t.Fatalf("queue holds %d in %d chunks", q.size, len(q.chunks)-q.head)
			}
		}
		q.end(io.EOF, true)
		for {
			p := make([]byte, 7)
			n, err := q.read(p, never)
			got = append(got, p[:n]...)
			if err != nil {
				break
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("read %v, want %v", got, want)
		}
		if q.size != 0 {
			t.Errorf("empty queue holds %d", q.size)
		}
	})
}
