// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/spokelet/spokelet/internal/httpproxy/spdy"
)

// Frames as the two ends of SPDY/3.1 send them.

const fin = 0x01

func spdyData(stream uint32, flags byte, payload string) []byte {
	frame := binary.BigEndian.AppendUint32(nil, stream)
	frame = binary.BigEndian.AppendUint32(frame, uint32(flags)<<24|uint32(len(payload)))
	return append(frame, payload...)
}

// reply says that the server has taken a stream.
func reply(stream uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte("\x80\x03\x00\x02\x00\x00\x00\x04"), stream)
}

func ping(id byte) []byte { return append([]byte("\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00"), id) }

func join(frames ...[]byte) []byte { return bytes.Join(frames, nil) }

// halves is a connection that can be told of the end of one direction.
type halves struct{ net.Conn }

func (halves) CloseWrite() error { return nil }

// TestAClientPingsBesideOutput of a real endpoint, and reads on when the cluster's
// server has ended.
func TestAClientPingsBesideOutput(t *testing.T) {
	const upgrade = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
	begin := join(reply(1), reply(3), spdyData(3, 0, "out"))
	input, end := spdyData(5, 0, "input"), join(spdyData(3, fin, ""), spdyData(1, fin, "{}"))
	said := make(chan []byte, 1)
	s := newSpoke(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer close(said)
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n"+upgrade)
		_, _ = conn.Write(begin)
		got := make([]byte, len(input))
		_, _ = io.ReadFull(buffered, got)
		said <- got
		_, _ = conn.Write(end)
	})
	client, err := tls.Dial("tcp", s.address, &tls.Config{RootCAs: s.ca.pool()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if err := client.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(client, "POST "+execPath+"&output=1 HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer t\r\n"+upgrade)
	if err != nil {
		t.Fatal(err)
	}
	from := bufio.NewReader(client)
	if res, err := http.ReadResponse(from, nil); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(res, err)
	}
	hear := func(size int) []byte {
		t.Helper()
		got := make([]byte, size)
		if _, err := io.ReadFull(from, got); err != nil {
			t.Fatalf("heard %q, %v", got, err)
		}
		return got
	}
	hear(len(begin))
	if _, err := client.Write(join(ping(1), input)); err != nil {
		t.Fatal(err)
	}
	if got := hear(len(ping(1)) + len(end)); !bytes.Equal(bytes.Replace(got, ping(1), nil, 1), end) {
		t.Errorf("heard %q, want %q and an answer to the ping", got, end)
	}
	if got := <-said; !bytes.Equal(got, input) {
		t.Errorf("the cluster heard %q, want %q", got, input)
	}
	<-said
	for id := byte(3); id < 9; id += 2 {
		if _, err := client.Write(ping(id)); err != nil {
			t.Fatal(err)
		}
		if got := hear(len(ping(id))); !bytes.Equal(got, ping(id)) {
			t.Errorf("heard %q", got)
		}
	}
}

func TestWhoseConnectionsEndIsTold(t *testing.T) {
	cases := map[string]struct {
		reason string
		cord   cord
		conn   net.Conn
	}{
		"a port-forward":   {"no stream says how it ended", cord{server: spdy.FollowForward(nil, nil)}, &halves{}},
		"another protocol": {"nobody knows its frames", cord{}, &halves{}},
		"who spoke early":  {"nobody knows where a frame begins", cord{server: &spdy.Follower{}, early: true}, &halves{}},
		"a pipe":           {"it cannot be told", cord{server: &spdy.Follower{}}, struct{ net.Conn }{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.cord.Client(tc.conn); got != tc.conn {
				t.Errorf("%s: got %T", tc.reason, got)
			}
		})
	}
}
