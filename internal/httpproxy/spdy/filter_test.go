// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package spdy

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var errLost = errors.New(`cluster "spoke1": connection lost`)

// Frames as a server of SPDY/3.1 sends them.

func dataBytes(stream uint32, flags byte, payload string) []byte {
	frame := binary.BigEndian.AppendUint32(nil, stream)
	frame = binary.BigEndian.AppendUint32(frame, uint32(flags)<<24|uint32(len(payload)))
	return append(frame, payload...)
}

func controlFrame(kind uint16, flags byte, payload []byte) []byte {
	frame := binary.BigEndian.AppendUint16(nil, 0x8000|version)
	frame = binary.BigEndian.AppendUint16(frame, kind)
	frame = binary.BigEndian.AppendUint32(frame, uint32(flags)<<24|uint32(len(payload)))
	return append(frame, payload...)
}

func reply(stream uint32, flags byte) []byte {
	return controlFrame(typeSynReply, flags, binary.BigEndian.AppendUint32(nil, stream))
}

func reset(stream uint32) []byte {
	return controlFrame(typeReset, 0, binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, stream), 5))
}

func goAway() []byte { return controlFrame(typeGoAway, 0, make([]byte, 8)) }

// broken gives bytes and then an error.
func broken(err error, frames ...[]byte) io.Reader {
	return io.MultiReader(bytes.NewReader(bytes.Join(frames, nil)), iotest.ErrReader(err))
}

// received is what a client makes of bytes: its streams, each with what it was
// sent and "FIN" if it has ended, and its control frames in order.
type received struct {
	Streams map[uint32]string
	Control []string
}

// receive reads frames up to the end, which is between two of them.
func receive(t *testing.T, b []byte) received {
	t.Helper()
	got := received{Streams: map[uint32]string{}}
	for len(b) > 0 {
		if len(b) < headerSize {
			t.Fatalf("%d bytes behind the last frame", len(b))
		}
		size := int(binary.BigEndian.Uint32(b[4:]) & maxDataSize)
		if len(b) < headerSize+size {
			t.Fatalf("frame of %d bytes has %d", size, len(b)-headerSize)
		}
		payload := string(b[headerSize : headerSize+size])
		if b[0]&controlBit != 0 {
			got.Control = append(got.Control, string(b[:headerSize+size]))
		} else {
			stream := binary.BigEndian.Uint32(b)
			got.Streams[stream] += payload
			if b[4]&flagFin != 0 {
				got.Streams[stream] += "FIN"
			}
		}
		b = b[headerSize+size:]
	}
	return got
}

// readAll is io.ReadAll with a buffer of a size.
func readAll(r io.Reader, size int) ([]byte, error) {
	var all []byte
	for chunk := make([]byte, size); ; {
		n, err := r.Read(chunk)
		all = append(all, chunk[:n]...)
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
	}
}

// answerOf is the header of a server that has switched.
func answerOf(protocol string) http.Header {
	return http.Header{"Upgrade": {upgradeProtocol}, streamProtocolHeader: {protocol}}
}

var (
	headerV4      = answerOf("v4.channel.k8s.io")
	forwardAnswer = answerOf(forwardProtocol)
)

// failure is what a farewell of protocol v4 says on the error stream.
func failure(message string) string {
	body, err := json.Marshal(metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Message: message, Code: 500})
	if err != nil {
		panic(err)
	}
	return string(body) + "FIN"
}

// ended is a stream that ends in some way, and what its client is told.
type ended struct {
	reason string
	header http.Header
	source io.Reader
	want   map[uint32]string
	err    error // of Read, in the end
}

func (e ended) check(t *testing.T) {
	t.Helper()
	got, err := readAll(Filter(e.header, iotest.OneByteReader(e.source)), 64)
	if !errors.Is(err, e.err) {
		t.Errorf("%s: error %v, want %v", e.reason, err, e.err)
	}
	if diff := cmp.Diff(e.want, receive(t, got).Streams); diff != "" {
		t.Errorf("%s (-want +got):\n%s", e.reason, diff)
	}
}

// cutMessage is what a client is told when errLost has ended its stream.
const cutMessage = `stream was cut: cluster "spoke1": connection lost`

func TestFilterReportsCutOnErrorStream(t *testing.T) {
	v1 := answerOf("channel.k8s.io")
	cases := map[string]ended{
		"a cut": {
			reason: "an end without a word would be success", header: headerV4,
			source: broken(errLost, reply(1, 0), reply(3, 0), dataBytes(3, 0, "out")),
			want:   map[uint32]string{1: failure(cutMessage), 3: "out"},
		},
		"a cut before the first frame": {
			reason: "the client waits for an answer", header: headerV4, source: broken(errLost), want: map[uint32]string{1: failure(cutMessage)},
		},
		"a cut in protocol v5": {
			reason: "it tells statuses too", header: answerOf("v5.channel.k8s.io"),
			source: broken(errLost), want: map[uint32]string{1: failure(cutMessage)},
		},
		"a cut in protocol v1": {
			reason: "it tells failures as text", header: v1, source: broken(errLost), want: map[uint32]string{1: cutMessage + "FIN"},
		},
		"a cut in protocol v3": {
			reason: "it tells failures as text", header: answerOf("v3.channel.k8s.io"),
			source: broken(errLost), want: map[uint32]string{1: cutMessage + "FIN"},
		},
		"a cut within DATA": {
			reason: "what came is passed on, and no more", header: headerV4,
			source: broken(errLost, dataBytes(3, flagFin, "0123456789")[:headerSize+4]),
			want:   map[uint32]string{1: failure(cutMessage), 3: "0123"},
		},
		"a cut within a header": {
			reason: "half a header is nothing", header: headerV4,
			source: broken(errLost, dataBytes(3, 0, "out"), reply(5, 0)[:3]),
			want:   map[uint32]string{1: failure(cutMessage), 3: "out"},
		},
		"a cut within a control frame": {
			reason: "half a frame is nothing", header: headerV4, source: broken(errLost, reply(5, 0)[:headerSize+2]),
			want: map[uint32]string{1: failure("stream was cut: control frame: cluster \"spoke1\": connection lost")},
		},
		"an end": {
			reason: "the server said how it ended", header: headerV4,
			source: broken(io.EOF, dataBytes(1, 0, `{"status":"Success"}`), reset(1), reset(3), goAway()),
			want:   map[uint32]string{1: `{"status":"Success"}`},
		},
		"an end in protocol v1": {
			reason: "silence is success there", header: v1, source: broken(io.EOF, reply(1, 0)), want: map[uint32]string{},
		},
		"an end without a status": {
			reason: "the server's node was lost", header: headerV4, source: broken(io.EOF, reply(1, 0), dataBytes(3, 0, "out")),
			want: map[uint32]string{1: failure("stream ended without the status of the command"), 3: "out"},
		},
		"an end within a frame": {
			reason: "no server ends there", header: headerV4, source: broken(io.EOF, dataBytes(1, 0, `{"status":"Success"}`)[:12]),
			want: map[uint32]string{1: `{"st` + failure("stream was cut: unexpected EOF")},
		},
	}
	for name, tc := range cases {
		t.Run(name, tc.check)
	}
}

func TestFilterReportsCutBehindStatus(t *testing.T) {
	cases := map[string]ended{
		"a status": {
			reason: "whether more was said is not known, and two statuses are an error", header: headerV4,
			source: broken(errLost, dataBytes(1, 0, "{}")), want: map[uint32]string{1: "{}" + failure(cutMessage)},
		},
		"the end": {
			reason: "nothing can be said any more", header: headerV4, source: broken(errLost, dataBytes(1, flagFin, "{}")),
			want: map[uint32]string{1: "{}FIN"},
		},
		"the end, with output to come": {
			reason: "what was said of the end is not all", header: headerV4,
			source: broken(errLost, reply(1, 0), reply(3, 0), dataBytes(1, flagFin, "{}")),
			want:   map[uint32]string{1: "{}FIN"},
		},
		"a part of the end": {
			reason: "half a status is an error", header: headerV4,
			source: broken(errLost, dataBytes(1, flagFin, "{}")[:headerSize+1]),
			want:   map[uint32]string{1: "{" + failure(cutMessage)},
		},
		"an empty end": {
			reason: "nothing can be said any more", header: headerV4, source: broken(errLost, dataBytes(1, 0, "{}"), dataBytes(1, flagFin, "")),
			want: map[uint32]string{1: "{}FIN"},
		},
		"a reset": {
			reason: "nothing can be said any more", header: headerV4, source: broken(errLost, reset(1)), want: map[uint32]string{},
		},
		"another's reset": {
			reason: "the error stream is open", header: headerV4, source: broken(errLost, reset(3)), want: map[uint32]string{1: failure(cutMessage)},
		},
		"a reply that ends": {
			reason: "nothing can be said any more", header: headerV4, source: broken(errLost, reply(1, flagFin)), want: map[uint32]string{},
		},
		"GOAWAY": {
			reason: "a client reads no further", header: headerV4, source: broken(errLost, goAway()), want: map[uint32]string{},
		},
	}
	for name, tc := range cases {
		t.Run(name, tc.check)
	}
}

func TestFilterEndsPortForwardWithGoAway(t *testing.T) {
	away := []string{"\x80\x03\x00\x07\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x02"}
	cases := map[string]struct {
		reason string
		source io.Reader
		want   received
		err    error // of Read, in the end
	}{
		"a cut": {
			"a client that waits for an answer says nothing", broken(errLost, dataBytes(3, 0, "out")),
			received{map[uint32]string{3: "out"}, away}, errLost,
		},
		"a cut within DATA": {
			"what came is passed on", broken(errLost, dataBytes(3, 0, "0123456789")[:headerSize+4]),
			received{map[uint32]string{3: "0123"}, away}, errLost,
		},
		"an end": {
			"a server that was killed says nothing either", broken(io.EOF, dataBytes(3, flagFin, "out")),
			received{map[uint32]string{3: "outFIN"}, away}, nil,
		},
		"an end within DATA": {
			"no server ends there", broken(io.EOF, dataBytes(3, 0, "out")[:headerSize+1]),
			received{map[uint32]string{3: "o"}, away}, io.ErrUnexpectedEOF,
		},
		"an end that was told": {
			"once is enough", broken(io.EOF, goAway()), received{map[uint32]string{}, []string{string(goAway())}}, nil,
		},
		"the end of an error stream": {
			"others go on", broken(errLost, dataBytes(1, flagFin, "")), received{map[uint32]string{1: "FIN"}, away}, errLost,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			all, err := readAll(Filter(forwardAnswer, iotest.OneByteReader(tc.source)), 64)
			if !errors.Is(err, tc.err) {
				t.Errorf("%s: error %v, want %v", tc.reason, err, tc.err)
			}
			if diff := cmp.Diff(tc.want, receive(t, all)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestFilterPassesWholeFrames(t *testing.T) {
	sent := bytes.Join([][]byte{
		reply(1, 0), reply(3, 0), dataBytes(3, 0, strings.Repeat("x", 5000)), dataBytes(5, flagFin, ""), dataBytes(7, 0, "y"),
		controlFrame(6, 0, []byte{0, 0, 0, 1}), dataBytes(1, 0, `{"status":"Success"}`), reset(1), goAway(),
	}, nil)
	got, err := readAll(Filter(headerV4, bytes.NewReader(sent)), 16<<10)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("error %v; %d bytes came as %d others", err, len(sent), len(got))
	}
}

func TestFilterPassesUnknownFrames(t *testing.T) {
	cases := map[string]struct{ reason, sent string }{
		"another version":       {"its frames are not known", "\x80\x02\x00\x01\x00\x00\x00\x04half"},
		"another kind of frame": {"the version has other bits", "\x83\x03\x00\x01\x00\x00\x00\x04half"},
		"a long control frame":  {"it is not held for ever", "\x80\x03\x00\x02\x00\xff\xff\xff" + strings.Repeat("x", 100)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := readAll(Filter(headerV4, broken(errLost, []byte(tc.sent))), 64)
			if !errors.Is(err, errLost) || string(got) != tc.sent {
				t.Errorf("%s: %v, %q came as %q", tc.reason, err, tc.sent, got)
			}
		})
	}
}

func TestFilterCutsLongError(t *testing.T) {
	long := errors.New(strings.Repeat("x", 1<<20))
	if got, err := readAll(Filter(headerV4, iotest.ErrReader(long)), 64); err != nil || len(got) > 2*maxCutMessage {
		t.Errorf("a farewell of %d bytes, %v", len(got), err)
	}
}

func TestFilterReturnsReaderOfOtherProtocols(t *testing.T) {
	for name, answer := range map[string]http.Header{
		"WebSocket":        {"Upgrade": {"websocket"}, streamProtocolHeader: {"v4.channel.k8s.io"}},
		"another protocol": answerOf("x"),
		"none":             {"Upgrade": {upgradeProtocol}},
	} {
		if server := strings.NewReader(""); Filter(answer, server) != io.Reader(server) {
			t.Errorf("%s: its frames are not known", name)
		}
	}
}

// FuzzFilter feeds bytes in pieces, and cuts them. What comes out is frames,
// and they say what went in.
func FuzzFilter(f *testing.F) {
	frames := bytes.Join([][]byte{reply(1, 0), dataBytes(3, 0, "out"), dataBytes(1, 0, "{}"), dataBytes(3, flagFin, ""), reset(3)}, nil)
	f.Add(frames, uint8(1), false)
	f.Add(frames[:30], uint8(0), true)
	f.Add([]byte("\x80\x02\x00\x01\x00\x00\x00\x04half"), uint8(3), true)
	f.Add(append(goAway(), "more"...), uint8(9), false)
	f.Fuzz(func(t *testing.T, sent []byte, piece uint8, clean bool) {
		end := errLost
		if clean {
			end = io.EOF
		}
		follow := Filter(headerV4, &pieces{Reader: broken(end, sent), size: int(piece) + 1}).(*filter)
		got, err := readAll(follow, headerSize+1+int(piece))
		switch {
		case follow.unknown: // from some frame on
			if !errors.Is(err, end) && !clean || !bytes.HasSuffix(sent, got[max(0, len(got)-headerSize):]) {
				t.Errorf("%q came as %q, %v", sent, got, err)
			}
			return
		case err != nil && !follow.ended:
			t.Errorf("a cut was not told: %v", err)
		}
		want, all := receive(t, wholeFrames(sent)), receive(t, got)
		if diff := cmp.Diff(want.Control, all.Control); diff != "" {
			t.Errorf("control frames (-want +got):\n%s", diff)
		}
		for stream, said := range all.Streams {
			if stream != errorStreamID && said != want.Streams[stream] {
				t.Errorf("stream %d: %q came as %q", stream, want.Streams[stream], said)
			}
		}
		if !strings.HasPrefix(all.Streams[errorStreamID], want.Streams[errorStreamID]) {
			t.Errorf("error stream: %q came as %q", want.Streams[errorStreamID], all.Streams[errorStreamID])
		}
	})
}

// wholeFrames cuts off what is no frame. Of a frame of DATA that has come in
// part the part is one.
func wholeFrames(b []byte) []byte {
	at := 0
	for len(b)-at >= headerSize {
		size := int(binary.BigEndian.Uint32(b[at+4:]) & maxDataSize)
		if at+headerSize+size > len(b) {
			if b[at]&controlBit != 0 || len(b)-at == headerSize {
				break
			}
			part := dataBytes(binary.BigEndian.Uint32(b[at:]), 0, string(b[at+headerSize:]))
			return append(bytes.Clone(b[:at]), part...)
		}
		at += headerSize + size
	}
	return b[:at]
}

// pieces reads so many bytes at once at most.
type pieces struct {
	io.Reader
	size int
}

func (p *pieces) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(len(b), p.size)]) }
