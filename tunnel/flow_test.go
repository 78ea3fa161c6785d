// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/net/http2"
)

// recorder is a connection that reads from one buffer and writes to another.
type recorder struct {
	net.Conn
	r io.Reader
	w bytes.Buffer
}

func (r *recorder) Read(p []byte) (int, error)  { return r.r.Read(p) }
func (r *recorder) Write(p []byte) (int, error) { return r.w.Write(p) }

// overRecorder is a flowConn without TLS under it.
func overRecorder(t *testing.T, client bool, in []byte) (*flowConn, *recorder) {
	t.Helper()
	rec := &recorder{r: bytes.NewReader(in)}
	c := newFlowConn(rec, rec, client, 512<<10)
	t.Cleanup(c.closeWrites)
	return c, rec
}

// frames writes frames.
func frames(f func(*http2.Framer)) []byte {
	var b bytes.Buffer
	f(http2.NewFramer(&b, nil))
	return b.Bytes()
}

func ack(f *http2.Framer) { _ = f.WriteSettingsAck() }

func TestFlowConnConsumesItsOwnAcknowledgements(t *testing.T) {
	data := func(f *http2.Framer) { _ = f.WriteData(1, false, bytes.Repeat([]byte("x"), 100)) }
	for name, tc := range map[string]struct {
		reason   string
		injected int64
		in, want func(*http2.Framer)
	}{
		"without windows of its own": {
			reason: "what HTTP/2 asked for and what it did not ask for are its business",
			in:     func(f *http2.Framer) { ack(f); data(f); ack(f) },
			want:   func(f *http2.Framer) { ack(f); data(f); ack(f) },
		},
		"one window": {
			reason:   "the first acknowledgement is HTTP/2's, the second ours",
			injected: 1,
			in:       func(f *http2.Framer) { ack(f); data(f); ack(f); data(f) },
			want:     func(f *http2.Framer) { ack(f); data(f); data(f) },
		},
		"two windows in a row": {
			reason:   "nothing but ours arrives, then something",
			injected: 2,
			in:       func(f *http2.Framer) { ack(f); ack(f); ack(f); data(f) },
			want:     func(f *http2.Framer) { ack(f); data(f) },
		},
		"one too many": {
			reason:   "an acknowledgement of nothing is for HTTP/2 to refuse",
			injected: 1,
			in:       func(f *http2.Framer) { ack(f); ack(f); ack(f) },
			want:     func(f *http2.Framer) { ack(f); ack(f) },
		},
	} {
		for _, slices := range []string{"whole", "single bytes"} {
			t.Run(name+" in "+slices, func(t *testing.T) {
				c, rec := overRecorder(t, true, nil)
				in := io.Reader(bytes.NewReader(frames(tc.in)))
				if slices == "single bytes" {
					in = iotest.OneByteReader(in)
				}
				rec.r = in
				c.injected.Store(tc.injected)
				got, err := io.ReadAll(c)
				if err != nil || !bytes.Equal(got, frames(tc.want)) {
					t.Errorf("read %x, %v, want %x: %s", got, err, frames(tc.want), tc.reason)
				}
			})
		}
	}
}

func TestFlowConnReadReturnsWhatHasArrived(t *testing.T) {
	data := frames(func(f *http2.Framer) { _ = f.WriteData(1, true, []byte("answer")) })
	for name, behind := range map[string]func(*http2.Framer){
		"nothing behind it":               func(*http2.Framer) {},
		"one acknowledgement behind it":   ack,
		"three acknowledgements":          func(f *http2.Framer) { ack(f); ack(f); ack(f) },
		"acknowledgement and half header": func(f *http2.Framer) { ack(f); _ = f.WriteRawFrame(http2.FramePing, 0, 0, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			here, there := net.Pipe()
			defer here.Close()
			defer there.Close()
			c := newFlowConn(here, here, true, 512<<10)
			defer c.closeWrites()
			c.firstAckSeen = true
			c.injected.Store(3)
			go func() { _, _ = there.Write(append(slices.Clone(data), frames(behind)...)) }()
			// The other side says no more: a Read that waits for it never ends.
			got := make([]byte, 1<<10)
			n, err := io.ReadAtLeast(c, got, len(data))
			if err != nil || !bytes.Equal(got[:len(data)], data) {
				t.Errorf("read %x, %v, want %x", got[:n], err, data)
			}
		})
	}
}

func TestFlowConnReportsTruncatedFrame(t *testing.T) {
	whole := frames(func(f *http2.Framer) { _ = f.WriteData(1, true, []byte("hello")) })
	for cut := range whole {
		c, _ := overRecorder(t, true, whole[:cut])
		got, err := io.ReadAll(c)
		if !bytes.HasPrefix(whole, got) {
			t.Errorf("cut at %d: %x is no prefix", cut, got)
		}
		if cut > 0 && cut < frameHeader && err == nil {
			t.Errorf("cut at %d: clean end inside a header", cut)
		}
	}
}

func TestFlowConnSendsWindowsBetweenFrames(t *testing.T) {
	c, rec := overRecorder(t, true, nil)
	c.setWindow(128 << 10)
	if c.queuedBytes() != 0 {
		t.Fatalf("wrote %d bytes before HTTP/2's own preface", c.queuedBytes())
	}
	stream := append([]byte(http2.ClientPreface), frames(func(f *http2.Framer) {
		_ = f.WriteSettings()
		_ = f.WriteData(1, false, bytes.Repeat([]byte("x"), 5000))
		_ = f.WritePing(false, [8]byte{})
	})...)
	for _, part := range [][]byte{stream[:30], stream[30:1000], stream[1000:3000], stream[3000:]} {
		if _, err := c.Write(part); err != nil {
			t.Fatal(err)
		}
		if len(part) == 970 {
			c.setWindow(256 << 10)
		}
	}
	c.setWindow(64 << 10) // nothing is being written: at once
	c.closeWrites()
	c.flush()
	var windows []uint32
	r := bytes.NewReader(rec.w.Bytes()[clientPreface:])
	framer := http2.NewFramer(nil, r)
	for {
		frame, err := framer.ReadFrame()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("what was written is not HTTP/2: %v", err)
		}
		if s, ok := frame.(*http2.SettingsFrame); ok {
			if v, ok := s.Value(http2.SettingInitialWindowSize); ok {
				windows = append(windows, v)
			}
		}
	}
	if len(windows) != 2 || windows[0] != 256<<10 || windows[1] != 64<<10 {
		t.Errorf("windows told: %v, want the newest at each boundary: 262144, 65536", windows)
	}
	if c.injected.Load() != 2 {
		t.Errorf("%d acknowledgements expected, want 2", c.injected.Load())
	}
}

func FuzzFlowRead(f *testing.F) {
	f.Add(frames(ack), 1)
	f.Add(frames(func(f *http2.Framer) { ack(f); ack(f); _ = f.WriteData(1, true, []byte("x")) }), 1)
	f.Add([]byte{0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1}, 0)
	f.Fuzz(func(t *testing.T, in []byte, injected int) {
		c, _ := overRecorder(t, true, in)
		c.injected.Store(int64(injected & 7))
		got, err := io.ReadAll(c)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("error %v of a reader that has none", err)
		}
		if err == nil && len(got)+frameHeader*(injected&7) < len(in) {
			t.Fatalf("%d of %d bytes came through with %d to keep", len(got), len(in), injected&7)
		}
	})
}

func TestWindowSizer(t *testing.T) {
	const kib, ms = 1 << 10, time.Millisecond
	limits := Limits{}.Default()
	for name, tc := range map[string]struct {
		reason string
		do     func(*windowSizer) int
		want   int
	}{
		"one stream": {
			"all of it",
			func(w *windowSizer) int { return w.setStreams(1) }, 512 * kib,
		},
		"as many as the budget holds": {
			"64 MiB are 128 windows",
			func(w *windowSizer) int { return w.setStreams(128) }, 512 * kib,
		},
		"one more": {
			"the sum stays within the budget",
			func(w *windowSizer) int { return w.setStreams(129) }, 256 * kib,
		},
		"the most": {
			"2048 streams share 64 MiB",
			func(w *windowSizer) int { return w.setStreams(2048) }, 32 * kib,
		},
		"one less again": {
			"a stream more and a stream less are not two SETTINGS",
			func(w *windowSizer) int { w.setStreams(129); return w.setStreams(128) }, 256 * kib,
		},
		"half of them gone": {
			"there is room for twice as many",
			func(w *windowSizer) int { w.setStreams(129); return w.setStreams(64) }, 512 * kib,
		},
		"two bulk streams": {
			"they share one window",
			func(w *windowSizer) int { return w.recordPing(50*ms, 2) }, 256 * kib,
		},
		"bulk streams that ended": {
			"the window comes back",
			func(w *windowSizer) int { w.recordPing(50*ms, 4); return w.recordPing(50*ms, 0) }, 512 * kib,
		},
		"a queue in the network": {
			"pings take three times as long as they could",
			func(w *windowSizer) int { w.recordPing(50*ms, 1); return w.recordPing(150*ms, 1) }, 256 * kib,
		},
		"a link that is slow without bulk": {
			"a smaller window would not help",
			func(w *windowSizer) int { w.recordPing(50*ms, 0); return w.recordPing(150*ms, 0) }, 512 * kib,
		},
		"a queue that went": {
			"the window comes back",
			func(w *windowSizer) int {
				w.recordPing(50*ms, 1)
				w.recordPing(150*ms, 1)
				return w.recordPing(50*ms, 1)
			}, 512 * kib,
		},
		"a queue that stays": {
			"not below the least",
			func(w *windowSizer) int {
				w.recordPing(50*ms, 1)
				for range 40 {
					w.recordPing(400*ms, 1)
				}
				return w.current
			}, 32 * kib,
		},
		"a queue of seconds": {
			"the least would be seconds too, and the next ping takes as long",
			func(w *windowSizer) int { w.recordPing(50*ms, 1); return w.recordPing(16*time.Second, 1) }, 8 * kib,
		},
		"a queue of seconds that stays": {
			"HTTP/2 gives back no smaller pieces",
			func(w *windowSizer) int {
				w.recordPing(50*ms, 1)
				for range 40 {
					w.recordPing(time.Second, 1)
				}
				return w.current
			}, 4 * kib,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.do(newWindowSizer(limits)); got != tc.want {
				t.Errorf("window = %d KiB, want %d KiB: %s", got/kib, tc.want/kib, tc.reason)
			}
		})
	}
}
