// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package bufconn

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/internal/bufpool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBoom = errors.New("boom")

func TestBufferDeadlinesMayPassAndBeSetAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBuffer(1)
		p := make([]byte, 8)
		b.SetReadDeadline(time.Now().Add(time.Second))
		began := time.Now()
		if _, err := b.Read(p); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Second {
			t.Fatalf("Read() error = %v after %v, want the deadline after 1s", err, time.Since(began))
		}
		if _, err := b.Read(p); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("second Read() error = %v, want the deadline", err)
		}
		b.SetReadDeadline(time.Time{})
		if _, err := b.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if n, err := b.Read(p); err != nil || string(p[:n]) != "hello" {
			t.Errorf("after the deadline was cleared: %q, %v", p[:n], err)
		}
		full := make([]byte, bufpool.Size+1)
		b.SetWriteDeadline(time.Now().Add(time.Second))
		if n, err := b.Write(full); n != bufpool.Size || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Write() = %d, %v, want all that fits and the deadline", n, err)
		}
	})
}

func TestBufferDeadlineWakesReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBuffer(1)
		got := make(chan error, 1)
		go func() {
			_, err := b.Read(make([]byte, 1))
			got <- err
		}()
		synctest.Wait()
		// This is how net/http interrupts its background read before a hijack.
		b.SetReadDeadline(time.Unix(1, 0))
		if err := <-got; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read() error = %v, want the deadline", err)
		}
	})
}

func TestBufferEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		do       func(*Buffer)
		wantRead string
		wantErr  error
	}{
		"in order":           {"bytes, then the end", func(b *Buffer) { b.CloseWrite(io.EOF) }, "bytes", nil},
		"aborted":            {"bytes, then the error", func(b *Buffer) { b.CloseWrite(errBoom) }, "bytes", errBoom},
		"the first end wins": {"an abort after the end is late", func(b *Buffer) { b.CloseWrite(io.EOF); b.CloseWrite(errBoom) }, "bytes", nil},
		"refused":            {"the reader is gone", func(b *Buffer) { b.CloseRead(errBoom) }, "", errBoom},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBuffer(1)
			if _, err := b.Write([]byte("bytes")); err != nil {
				t.Fatal(err)
			}
			tc.do(b)
			got, err := io.ReadAll(b)
			if string(got) != tc.wantRead || !errors.Is(err, tc.wantErr) {
				t.Errorf("read %q, %v, want %q, %v: %s", got, err, tc.wantRead, tc.wantErr, tc.reason)
			}
			if _, err := b.Write([]byte("more")); err == nil {
				t.Error("Write() after the end has no error")
			}
		})
	}
}

func TestBufferCarriesMoreThanItHolds(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789"), 10<<10)
	b := NewBuffer(1)
	go func() {
		_, _ = b.Write(want)
		b.CloseWrite(io.EOF)
	}()
	got, err := io.ReadAll(b)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v, want %d", len(got), err, len(want))
	}
	if len(b.blocks) > 0 {
		t.Error("an empty buffer holds memory")
	}
}

func TestBufferDeadlineMovesWhileItIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New("here", "there", 1)
		_, _ = c.Write(make([]byte, bufpool.Size)) // fills it
		for name, tc := range map[string]struct {
			set func(time.Time) error
			use func([]byte) (int, error)
		}{
			"read":       {c.SetReadDeadline, c.Read},
			"write":      {c.SetWriteDeadline, c.Write},
			"both read":  {c.SetDeadline, c.Read},
			"both write": {c.SetDeadline, c.Write},
		} {
			start := time.Now()
			_ = tc.set(start.Add(time.Minute))
			time.AfterFunc(30*time.Second, func() { _ = tc.set(start.Add(time.Hour)) })
			time.AfterFunc(30*time.Minute, func() { _ = tc.set(start.Add(40 * time.Minute)) })
			if _, err := tc.use(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != 40*time.Minute {
				t.Errorf("%s: %v after %v, want a deadline after 40m", name, err, time.Since(start))
			}
			_ = c.SetDeadline(time.Time{})
		}
	})
}

func TestWriteWithinWaitsNoLongerThanItsPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBuffer(1)
		_, _ = b.Write(make([]byte, bufpool.Size))
		start := time.Now()
		if err := b.WriteWithin([]byte("x"), 3*time.Second); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != 3*time.Second {
			t.Errorf("WriteWithin() = %v after %v, want the deadline after 3s", err, time.Since(start))
		}
		// A reader who comes in time makes room.
		time.AfterFunc(time.Second, func() { _, _ = b.Read(make([]byte, bufpool.Size)) })
		start = time.Now()
		if err := b.WriteWithin([]byte("x"), 3*time.Second); err != nil || time.Since(start) != time.Second {
			t.Errorf("WriteWithin() = %v after %v, want nil after 1s", err, time.Since(start))
		}
		time.AfterFunc(time.Second, func() { b.CloseRead(net.ErrClosed) })
		if err := b.WriteWithin(make([]byte, bufpool.Size), time.Hour); !errors.Is(err, net.ErrClosed) {
			t.Errorf("WriteWithin() = %v, want %v", err, net.ErrClosed)
		}
	})
}

func TestNextReturnsWhatWasWritten(t *testing.T) {
	b := NewBuffer(2)
	want := bytes.Repeat([]byte("0123456789"), 2000)
	written := bytes.Clone(want)
	if _, err := b.Write(written); err != nil {
		t.Fatal(err)
	}
	clear(written)
	b.CloseWrite(io.EOF)
	var got []byte
	for {
		p, block, err := b.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p...)
		bufpool.Put(block)
	}
	if !bytes.Equal(got, want) {
		t.Error("Next() returned other bytes than were written")
	}
}

// FuzzBuffer compares the buffer with a slice.
func FuzzBuffer(f *testing.F) {
	f.Add([]byte{10, 3, 0, 200, 7, 129, 255})
	f.Fuzz(func(t *testing.T, steps []byte) {
		b := NewBuffer(2)
		var want, got []byte
		for i, step := range steps {
			n := (int(step&0x7f) + 1) * 200
			switch {
			case step&0x80 == 0:
				chunk := bytes.Repeat([]byte{byte(i)}, n)
				b.mu.Lock()
				m, _ := b.write(chunk, false)
				b.mu.Unlock()
				want = append(want, chunk[:m]...)
			case len(b.blocks) == 0:
			case i%2 == 0:
				p, block, _ := b.Next()
				got = append(got, p...)
				bufpool.Put(block)
			default:
				p := make([]byte, n)
				m, _ := b.Read(p)
				got = append(got, p[:m]...)
			}
		}
		b.CloseWrite(io.EOF)
		rest, err := io.ReadAll(b)
		if got = append(got, rest...); err != nil || !bytes.Equal(got, want) {
			t.Errorf("read %d bytes and %v, want the %d that were written", len(got), err, len(want))
		}
		if len(b.blocks) > 0 {
			t.Error("an empty buffer holds memory")
		}
	})
}
