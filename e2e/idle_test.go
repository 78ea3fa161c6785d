// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// idle is longer than what proxies, servers and libraries let a silent connection
// live: 30 or 60 seconds.
const idle = 65 * time.Second

// idleStreamsLive keeps one stream of each kind silent, and then uses it.
func (s *suite) idleStreamsLive(t *testing.T, c client) {
	run := follow(t, c.hub, "exec", longLived, "-c", "side", "--", "sh", "-c", "echo begun; sleep 65; echo alive; exit 4")
	logs := follow(t, c.hub, "logs", "-f", longLived, "-c", "side", "--tail=1")
	attached := follow(t, c.hub, "attach", longLived, "-c", "side")
	_, local := forward(t, c.hub, longLived, "8081")
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", local["8081"])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	says(t, conn, "before")
	run.until(t, "begun\n")
	logs.until(t, "side 5\n")
	pass(t, idle)
	says(t, conn, "after")
	mark := "alive, " + c.name
	s.spoke().inPods(t, "exec", longLived, "-c", "side", "--", "sh", "-c", "echo '"+mark+"' >/proc/1/fd/1")
	logs.until(t, mark)
	attached.until(t, mark)
	if code := run.ended(t, patience); code != 4 {
		t.Errorf("exec ends with %d: %q", code, run.text())
	}
	run.until(t, "alive\n")
}

// outputIsReadLate has a client read long after what it ran has ended: nothing of the
// output is lost, for all the pings that it has sent by then. (By WebSocket it may be:
// there the hub's API server ends the stream. At the spoke itself it is.) A ping that is
// on its way when the output begins passes the hub, and may meet a server that has ended
// by then: that is the luck of one cluster, too, and is tried again.
func (s *suite) outputIsReadLate(t *testing.T, c client) {
	const tries = 3
	tests := map[string]func(*testing.T){}
	for _, size := range []int64{1 << 19, 1 << 20, 4 << 20, 16 << 20} {
		tests[fmt.Sprint(size, " bytes")] = func(t *testing.T) {
			var err error
			for try := range tries {
				if err = readLate(t, c, size); err == nil {
					return
				}
				t.Logf("try %d of %d: %v", try+1, tries, err)
			}
			t.Error(err)
		}
	}
	parallel(t, tests)
}

// readLate reads the output of a command that has long ended.
func readLate(t *testing.T, c client, size int64) error {
	t.Helper()
	cmd := c.hub.Cmd(t.Context(), "exec", longLived, "-c", "side", "--", "head", "-c", strconv.FormatInt(size, 10), "/dev/zero")
	said := &strings.Builder{}
	cmd.Stderr = said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	pass(t, late)
	got, err := io.Copy(io.Discard, out)
	if got != size {
		err = errors.Join(err, fmt.Errorf("got %d of %d bytes", got, size))
	}
	if err = errors.Join(err, cmd.Wait()); err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	return nil
}

// late is time for some pings of a client, which has one every five seconds.
const late = 22 * time.Second

// says sends a text to an echo.
func says(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
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
