// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/spokelet/spokelet/e2e/testbed"
)

// idle is longer than what proxies, servers and libraries let a silent connection
// live: 30 or 60 seconds. It is no multiple of the 5 seconds between a client's pings:
// one that meets the end of what runs may destroy it.
const idle = 67 * time.Second

// silent is the pod of the idle streams. Nobody else speaks to it.
const silent = "idle"

// idleStreamsLive keeps one stream of each kind silent, of both clients, and then uses it.
func (s *tests) idleStreamsLive(t *testing.T) {
	const listens = "startupProbe: {tcpSocket: {port: 8081}, periodSeconds: 1, failureThreshold: 60}, "
	s.Hub.Apply(t, testbed.Pod(silent, "", testbed.Container("main", "exec nc -ll -p 8081 -e cat", listens),
		testbed.Container("side", `for i in $(seq 1 5); do echo "side $i"; done; exec sleep 1d`, "")))
	testbed.UntilPod(t, s.Hub, silent, "ready", testbed.Ready)
	var all []*idleStreams
	for _, c := range s.Clients() {
		all = append(all, beginIdle(t, c))
	}
	testbed.Wait(t, idle)
	for _, streams := range all {
		s.use(t, streams)
	}
	s.Hub.InPods(t, "delete", "pod", silent, "--timeout=300s")
}

// idleStreams are those of a client.
type idleStreams struct {
	client              string
	run, logs, attached *testbed.Following
	echo                net.Conn
}

// beginIdle opens them, and sees that each of them works.
func beginIdle(t *testing.T, c testbed.Client) *idleStreams {
	t.Helper()
	streams := &idleStreams{
		client:   c.Name,
		run:      testbed.Follow(t, c.Hub, "exec", silent, "-c", "side", "--", "sh", "-c", fmt.Sprintf("echo begun; sleep %.0f; echo alive; exit 4", idle.Seconds())),
		logs:     testbed.Follow(t, c.Hub, "logs", "-f", silent, "-c", "side", "--tail=1"),
		attached: testbed.Follow(t, c.Hub, "attach", silent, "-c", "side"),
	}
	_, local := testbed.Forward(t, c.Hub, silent, "8081")
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", local["8081"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	streams.echo = conn
	says(t, conn, "before")
	streams.run.Until(t, "begun\n")
	streams.logs.Until(t, "side 5\n")
	return streams
}

// use expects that the streams are as they were.
func (s *tests) use(t *testing.T, streams *idleStreams) {
	t.Helper()
	says(t, streams.echo, "after")
	mark := "alive, " + streams.client
	s.Spoke().InPods(t, "exec", silent, "-c", "side", "--", "sh", "-c", "echo '"+mark+"' >/proc/1/fd/1")
	streams.logs.Until(t, mark)
	streams.attached.Until(t, mark)
	if code := streams.run.Ended(t, testbed.Patience); code != 4 {
		t.Errorf("%s: exec ends with %d: %q", streams.client, code, streams.run.Text())
	}
	streams.run.Until(t, "alive\n")
}

// says sends a text to an echo.
func says(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(testbed.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != text {
		t.Errorf("the echo says %q, %v; want %q", got, err, text)
	}
}
