// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var errBoom = errors.New("boom")

func TestBufferDeadlinesMayPassAndBeSetAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuffer()
		p := make([]byte, 8)
		b.setReadDeadline(time.Now().Add(time.Second))
		began := time.Now()
		if _, err := b.Read(p); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Second {
			t.Fatalf("Read() error = %v after %v, want the deadline after 1s", err, time.Since(began))
		}
		if _, err := b.Read(p); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("second Read() error = %v, want the deadline", err)
		}
		b.setReadDeadline(time.Time{})
		if _, err := b.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if n, err := b.Read(p); err != nil || string(p[:n]) != "hello" {
			t.Errorf("after the deadline was cleared: %q, %v", p[:n], err)
		}
		full := make([]byte, streamBuffer+1)
		b.setWriteDeadline(time.Now().Add(time.Second))
		if n, err := b.Write(full); n != streamBuffer || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Write() = %d, %v, want all that fits and the deadline", n, err)
		}
	})
}

func TestBufferWakesAReaderByDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuffer()
		got := make(chan error, 1)
		go func() {
			_, err := b.Read(make([]byte, 1))
			got <- err
		}()
		synctest.Wait()
		// This is how net/http interrupts its background read before a hijack.
		b.setReadDeadline(time.Unix(1, 0))
		if err := <-got; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read() error = %v, want the deadline", err)
		}
	})
}

func TestBufferEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		do       func(*buffer)
		wantRead string
		wantErr  error
	}{
		"in order":           {"bytes, then the end", func(b *buffer) { b.finish(io.EOF) }, "bytes", nil},
		"aborted":            {"bytes, then the error", func(b *buffer) { b.finish(errBoom) }, "bytes", errBoom},
		"the first end wins": {"an abort after the end is late", func(b *buffer) { b.finish(io.EOF); b.finish(errBoom) }, "bytes", nil},
		"refused":            {"the reader is gone", func(b *buffer) { b.refuse(errBoom) }, "", errBoom},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBuffer()
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
	b := newBuffer()
	go func() {
		_, _ = b.Write(want)
		b.finish(io.EOF)
	}()
	got, err := io.ReadAll(b)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v, want %d", len(got), err, len(want))
	}
	if b.data != nil {
		t.Error("an empty buffer holds memory")
	}
}

func FuzzParseDoor(f *testing.F) {
	for _, s := range []string{"kube", "KUBE", "kube:443", "kube.", "-kube", "ku-be", "", "k\x00", "κ"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, authority string) {
		door, err := ParseDoor(authority)
		if err != nil {
			if !errors.Is(err, ErrDoor) || len(err.Error()) > 400 {
				t.Fatalf("error %q", err)
			}
			return
		}
		if door != authority || len(door) > maxDoorName || strings.ContainsAny(door, ":.@/ \\%") {
			t.Fatalf("%q names door %q", authority, door)
		}
	})
}

func TestBackoff(t *testing.T) {
	b := Backoff{}.Default()
	for failures, want := range []time.Duration{0, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second} {
		if got := b.limit(failures); got != want {
			t.Errorf("limit(%d) = %v, want %v", failures, got, want)
		}
		for range 100 {
			if got := b.wait(failures); got > want {
				t.Fatalf("wait(%d) = %v, want at most %v", failures, got, want)
			}
		}
	}
	if got := b.limit(1000); got != b.Cap {
		t.Errorf("limit(1000) = %v, want the cap", got)
	}
}
