// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

// conn is a connection of which only reading matters.
type conn struct {
	net.Conn

	io.Reader
}

func (c conn) Read(p []byte) (int, error) { return c.Reader.Read(p) }

func TestFirstFrameSkipsUnmaskedText(t *testing.T) {
	short := append([]byte{0x81, 125}, strings.Repeat("a", 125)...)
	cases := map[string]struct {
		in, want []byte
		reason   string
	}{
		"wrangler's":    {in: append(unmasked(`{"debug":false}`), 0x89, 0x80), want: []byte{0x89, 0x80}, reason: "the library reads the next frame"},
		"an empty one":  {in: []byte{0x81, 0, 1}, want: []byte{1}, reason: "it is a message, too"},
		"the longest":   {in: append(bytes.Clone(short), 1), want: []byte{1}, reason: "its length is in the second byte"},
		"a longer one":  {in: []byte{0x81, 126, 0, 1}, want: []byte{0x81, 126, 0, 1}, reason: "the library refuses it"},
		"two":           {in: []byte{0x81, 0, 0x81, 0}, want: []byte{0x81, 0}, reason: "the library refuses the second"},
		"a masked one":  {in: []byte{0x81, 0x80, 1, 2, 3, 4}, want: []byte{0x81, 0x80, 1, 2, 3, 4}, reason: "the library reads it"},
		"a binary one":  {in: []byte{0x82, 0, 1}, want: []byte{0x82, 0, 1}, reason: "wrangler's is a text"},
		"a part":        {in: []byte{0x01, 0, 1}, want: []byte{0x01, 0, 1}, reason: "what follows would make no sense"},
		"half a head":   {in: []byte{0x81}, want: []byte{0x81}, reason: "the library says what is wrong"},
		"half a frame":  {in: []byte{0x81, 5, 1}, want: nil, reason: "there is nothing behind it"},
		"no frame":      {in: nil, want: nil, reason: "the client went"},
		"with reserved": {in: []byte{0xc1, 0}, want: []byte{0xc1, 0}, reason: "no extension was agreed on"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for how, in := range map[string]io.Reader{
				"at once": bytes.NewReader(tc.in), "byte by byte": iotest.OneByteReader(bytes.NewReader(tc.in)),
				"with the end": iotest.DataErrReader(bytes.NewReader(tc.in)),
			} {
				got, err := io.ReadAll(iotest.OneByteReader(&firstFrame{Conn: conn{Reader: in}}))
				if err != nil || !bytes.Equal(got, tc.want) {
					t.Errorf("%s (%s): %x and %v, not %x", how, tc.reason, got, err, tc.want)
				}
			}
		})
	}
}

// A hijacked is a response whose connection was read ahead by the server.
type hijacked struct {
	http.ResponseWriter

	early, later string
}

func (h hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	in := bufio.NewReader(io.MultiReader(strings.NewReader(h.early), strings.NewReader(h.later)))
	in.Peek(1)
	return conn{Reader: strings.NewReader(h.later)}, bufio.NewReadWriter(in, bufio.NewWriter(io.Discard)), nil
}

func TestHijackKeepsBufferedBytes(t *testing.T) {
	frame := string(unmasked(`{"debug":false}`))
	for at := range len(frame) {
		w := firstFrameWriter{ResponseWriter: hijacked{early: frame[:at], later: frame[at:] + "rest"}}
		c, rw, err := w.Hijack()
		if err != nil {
			t.Fatal(err)
		}
		if n := rw.Reader.Buffered(); n > 0 {
			t.Errorf("the library would read %d bytes around the connection", n)
		}
		if at == 0 {
			continue // nothing was read ahead: all comes from the connection in any case
		}
		got, err := io.ReadAll(c)
		if err != nil || string(got) != "rest" {
			t.Errorf("cut at %d: %q and %v", at, got, err)
		}
	}
}

// FuzzFirstFrame: whatever comes in whatever pieces, it is read as it is, but for an unmasked
// first text of at most 125 bytes.
func FuzzFirstFrame(f *testing.F) {
	f.Add(append(unmasked(`{"debug":false}`), 0x89, 0x80), uint8(3), uint8(5))
	f.Fuzz(func(t *testing.T, in []byte, piece, early uint8) {
		want := in
		if len(in) >= 2 && in[0] == 0x81 && in[1] < 126 {
			want = in[min(len(in), 2+int(in[1])):]
		}
		cut := min(int(early), len(in))
		c := &firstFrame{Conn: conn{Reader: bytes.NewReader(in[cut:])}, early: bytes.Clone(in[:cut])}
		var got []byte
		buffer := make([]byte, 1+int(piece))
		for {
			n, err := c.Read(buffer)
			got = append(got, buffer[:n]...)
			if err != nil {
				break
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%x and not %x", got, want)
		}
	})
}
