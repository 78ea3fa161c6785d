// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package spdy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/spokelet/spokelet/internal/httpproxy"
)

// talk is a client's connection: what it says, and what it hears.
type talk struct {
	net.Conn
	says   io.Reader
	hears  bytes.Buffer
	halved bool
}

func (c *talk) Read(p []byte) (int, error)  { return c.says.Read(p) }
func (c *talk) Write(p []byte) (int, error) { return c.hears.Write(p) }
func (c *talk) CloseWrite() error           { c.halved = true; return nil }

func ping(id byte) []byte { return spdyControlFrame(spdyPing, 0, []byte{0, 0, 0, id}) }

func join(frames ...[]byte) []byte { return bytes.Join(frames, nil) }

// followed is a Follower that has passed frames on.
func followed(t *testing.T, frames ...[]byte) *Follower {
	t.Helper()
	all := join(frames...)
	f := FollowCommand(bytes.NewReader(all), headerV4)
	for n, chunk := 0, make([]byte, 512); n < len(all); {
		m, err := f.Read(chunk)
		if err != nil {
			t.Fatal(err)
		}
		n += m
	}
	return f
}

func TestPingsAreAnsweredBesideOutput(t *testing.T) {
	opened := join(reply(1, 0), reply(3, 0))
	out, end := spdyData(3, 0, "out"), spdyData(1, spdyFin, "{}")
	input := spdyData(5, 0, "input")
	cases := map[string]struct {
		reason       string
		server, says []byte
		passed       []byte
		answered     []byte
	}{
		"beside output": {
			reason: "the server may have closed its connection, with output on its way",
			server: join(opened, out), says: join(input, ping(1), input), passed: join(input, input), answered: ping(1),
		},
		"idle": {
			reason: "it keeps the way to the cluster alive",
			server: opened, says: join(ping(1), ping(3)), passed: join(ping(1), ping(3)),
		},
		"idle again": {
			reason: "nothing came since the last one",
			server: join(opened, out), says: join(ping(1), ping(3)), passed: ping(3), answered: ping(1),
		},
		"behind the end": {
			reason: "nobody else answers",
			server: join(opened, out, end), says: join(ping(1), ping(3), ping(5)), answered: join(ping(1), ping(3), ping(5)),
		},
		"an answer": {
			reason: "it is the server's ping", server: join(opened, out), says: ping(2), passed: ping(2),
		},
		"what looks like one in input": {
			reason: "it is input", server: join(opened, out),
			says: spdyData(5, 0, string(ping(1))), passed: spdyData(5, 0, string(ping(1))),
		},
		"a ping of a wrong size": {
			reason: "the server says what it thinks of it", server: join(opened, out),
			says: spdyControlFrame(spdyPing, 0, make([]byte, 5)), passed: spdyControlFrame(spdyPing, 0, make([]byte, 5)),
		},
		"another protocol": {
			reason: "nobody knows where its frames begin", server: join(opened, out),
			says: join([]byte("\x80\x02\x00\x06\x00\x00\x00\x00"), ping(1)), passed: join([]byte("\x80\x02\x00\x06\x00\x00\x00\x00"), ping(1)),
		},
		"behind what is not known of the server": {
			reason: "nobody knows where its frames begin",
			server: join(opened, out, []byte("\x80\x02\x00\x01\x00\x00\x00\x00")), says: ping(1), passed: ping(1),
		},
		"half a frame": {
			reason: "it is passed on as it is", server: join(opened, out), says: ping(1)[:9], passed: ping(1)[:9],
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{1, 5, 11, 512} {
				conn := &talk{says: &pieces{Reader: bytes.NewReader(tc.says), size: size}}
				server := followed(t, tc.server)
				got, err := readAll(&client{Conn: conn, server: server}, 64)
				server.between.settle()
				if err != nil || !bytes.Equal(got, tc.passed) || !bytes.Equal(conn.hears.Bytes(), tc.answered) {
					t.Errorf("%s: in pieces of %d: passed %q, %v, want %q; answered %q, want %q",
						tc.reason, size, got, err, tc.passed, &conn.hears, tc.answered)
				}
			}
		})
	}
}

// TestNothingIsAnsweredWithinAFrame of the server's, which is passed on in parts:
// between a Read and the Write of what it gave, and before the next Read.
func TestNothingIsAnsweredWithinAFrame(t *testing.T) {
	long := spdyControlFrame(spdySynReply, 0, append([]byte{0, 0, 0, 3}, make([]byte, 150)...))
	out := spdyData(3, 0, "out")
	server := FollowCommand(bytes.NewReader(join(out, long, out, long)), headerV4)
	client, chunk := &talk{}, make([]byte, 64)
	for id := byte(1); ; id += 2 {
		n, err := server.Read(chunk)
		if errors.Is(err, io.EOF) {
			break
		}
		server.output.Store(true)
		server.answer(client, ping(id))
		server.between.settle()
		client.hears.Write(chunk[:n])
		server.output.Store(true)
		server.answer(client, ping(id+100))
		server.between.settle()
	}
	if got := receive(t, client.hears.Bytes()); len(got.Control) < 4 || got.Streams[3] != "outout" {
		t.Errorf("the client hears %+v", got)
	}
}

// stuck is a client that reads nothing until it is told to.
type stuck struct{ read chan struct{} }

func (s stuck) Write(p []byte) (int, error) { <-s.read; return len(p), nil }

func TestAClientThatReadsNothingIsHeard(t *testing.T) {
	server := &Follower{}
	server.done.Store(true)
	client := stuck{make(chan struct{})}
	for range 3 * maxPut / pingFrame {
		if !server.answer(client, ping(1)) {
			t.Fatal("not answered")
		}
	}
	server.between.mu.Lock()
	if n := len(server.between.waiting); n > maxPut {
		t.Errorf("%d bytes wait for it", n)
	}
	server.between.mu.Unlock()
	close(client.read)
	server.between.settle()
}

func TestAPartOfAFrameWaitsForAnAnswerThatIsBeingWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, client, passed := &gap{}, stuck{make(chan struct{})}, make(chan struct{})
		if !g.put(client, ping(1)) {
			t.Fatal("not put")
		}
		go func() { defer close(passed); g.split(true) }()
		synctest.Wait()
		select {
		case <-passed:
			t.Error("a part of a frame is passed on while another frame is written")
		default:
		}
		if g.put(client, ping(3)) {
			t.Error("another frame is put behind a part")
		}
		close(client.read)
		<-passed
	})
}

// TestWhatHasComeOfAFrameOutlastsADeadline, which ends the reading by one and
// begins that by another.
func TestWhatHasComeOfAFrameOutlastsADeadline(t *testing.T) {
	input := spdyData(5, 0, "input")
	conn := &talk{says: io.MultiReader(bytes.NewReader(input[:3]), iotest.ErrReader(os.ErrDeadlineExceeded))}
	client := &client{Conn: conn, server: followed(t)}
	chunk := make([]byte, 64)
	if n, err := client.Read(chunk); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d, %v", n, err)
	}
	conn.says = bytes.NewReader(input[3:])
	if got, err := readAll(client, 64); err != nil || !bytes.Equal(got, input) {
		t.Errorf("then read %q, %v, want %q", got, err, input)
	}
}

func TestAClientThatWasSentEverythingEndsTheStream(t *testing.T) {
	opened := join(reply(1, 0), reply(3, 0), reply(5, 0))
	status := spdyData(1, spdyFin, "{}")
	cases := map[string]struct {
		reason string
		server []byte
		kept   bool
	}{
		"all streams have ended":  {"it knows", join(opened, spdyData(3, spdyFin, ""), reset(5), status, goAway()), true},
		"output has not":          {"it waits for the end of output", join(opened, reset(5), status), false},
		"no status":               {"it waits for one", join(opened, spdyData(3, spdyFin, ""), reset(5), reset(1)), false},
		"the server goes":         {"it may wait for more", join(opened, goAway()), false},
		"more streams than known": {"one may be open", join(opened, reply(7, 0), reply(9, 0), reply(11, 0), reply(13, 0), reply(15, 0), reply(17, 0), reset(3), reset(5), reset(7), reset(9), reset(11), reset(13), reset(15), status), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			conn, kept := &talk{}, false
			err := (&client{Conn: conn, server: followed(t, tc.server), kept: func() { kept = true }}).CloseWrite()
			if errors.Is(err, httpproxy.ErrKept) != tc.kept || kept != tc.kept || conn.halved == tc.kept {
				t.Errorf("%s: %v, kept %v, and told of the end: %v", tc.reason, err, kept, conn.halved)
			}
		})
	}
}

// FuzzClient has a client say bytes in pieces. What is not answered is
// passed on, in order.
func FuzzClient(f *testing.F) {
	f.Add(join(spdyData(5, 0, "input"), ping(1), ping(2), spdyData(5, spdyFin, "")), uint8(3), true)
	f.Add(join(ping(1), []byte("\x80\x02\x00\x06"), ping(3)), uint8(0), true)
	f.Add(ping(1)[:11], uint8(9), false)
	f.Fuzz(func(t *testing.T, says []byte, piece uint8, ending bool) {
		server := &Follower{}
		server.done.Store(ending)
		conn := &talk{says: &pieces{Reader: bytes.NewReader(says), size: int(piece) + 1}}
		got, err := readAll(&client{Conn: conn, server: server}, pingFrame+1+int(piece))
		if err != nil {
			t.Fatal(err)
		}
		passed, answered := says, []byte(nil)
		if ending {
			passed, answered = withoutPings(says)
		}
		if diff := cmp.Diff(passed, got, cmpEmpty); diff != "" {
			t.Errorf("passed (-want +got):\n%s", diff)
		}
		server.between.settle()
		if len(answered) > maxPut {
			return // some may have been dropped
		}
		if diff := cmp.Diff(answered, conn.hears.Bytes(), cmpEmpty); diff != "" {
			t.Errorf("answered (-want +got):\n%s", diff)
		}
	})
}

// cmpEmpty takes no bytes and nil for the same.
var cmpEmpty = cmp.Comparer(bytes.Equal)

// withoutPings takes a client's pings out of what it says.
func withoutPings(says []byte) (passed, pings []byte) {
	for len(says) >= spdyHeader {
		control := says[0]&spdyControl != 0
		if control && !bytes.HasPrefix(says, []byte{spdyControl, spdyVersion}) {
			break
		}
		size := int(says[5])<<16 + int(says[6])<<8 + int(says[7])
		frame := says[:min(spdyHeader+size, len(says))]
		says = says[len(frame):]
		if size == 4 && len(frame) == pingFrame && bytes.HasPrefix(frame, ping(1)[:4]) && frame[11]&1 == 1 {
			pings = append(pings, frame...)
		} else {
			passed = append(passed, frame...)
		}
	}
	return append(passed, says...), pings
}
