// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
)

// terminal is a command that runs on a terminal of its own.
type terminal struct {
	testbed.Following

	tty    *os.File
	copied chan struct{} // closed when all of its output is here
}

// onTerminal starts a command on a terminal of a size.
func onTerminal(t *testing.T, ctl env.Command, rows, columns uint16, args ...string) (*terminal, error) {
	t.Helper()
	term := &terminal{Following: testbed.Following{Cmd: ctl.Cmd(t.Context(), args...), Done: make(chan error, 1)}}
	tty, err := pty.StartWithSize(term.Cmd, &pty.Winsize{Rows: rows, Cols: columns})
	if err != nil {
		return nil, err
	}
	term.tty, term.copied = tty, make(chan struct{})
	go func() {
		defer close(term.copied)
		_, _ = io.Copy(term, tty) // ends with the terminal, by an error
	}()
	go func() { term.Done <- term.Cmd.Wait() }()
	t.Cleanup(func() {
		_ = term.Cmd.Process.Kill() // it may have ended
		term.Ended(t, testbed.Patience)
		_ = tty.Close()
		<-term.copied
	})
	return term, nil
}

// say types a line and returns what comes after it, up to a text.
func (term *terminal) say(ctx context.Context, line, want string) error {
	if _, err := term.tty.WriteString(line + "\n"); err != nil {
		return err
	}
	return term.await(ctx, want)
}

// await waits for a text, no longer than the command runs.
func (term *terminal) await(ctx context.Context, want string) error {
	ctx, cancel := context.WithTimeout(ctx, testbed.Patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(term.Text(), want) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("no %q in %q", want, term.Text())
		case <-term.copied:
			if strings.Contains(term.Text(), want) {
				return nil
			}
			return fmt.Errorf("%w: no %q in %q", errEnded, want, term.Text())
		case <-tick.C:
		}
	}
	return nil
}

// errEnded is of a command that ended before it said all that it should.
var errEnded = errors.New("the command has ended")

func (s *tests) terminalsAgree(t *testing.T, c testbed.Client) {
	c.Both(t, func(ctl env.Command, way string) (string, error) {
		return testbed.Retry(t, "exec -it, "+way, func(int) (string, error) {
			return speakOnTerminal(t, ctl, way, 7, "exec", "-it", testbed.LongLived, "-c", "side", "--", "sh")
		})
	})
	// One that no screen has.
	c.Both(t, func(ctl env.Command, way string) (string, error) {
		return testbed.Retry(t, "a large terminal, "+way, func(int) (string, error) {
			term, err := onTerminal(t, ctl, 20000, 20000, "exec", "-it", testbed.LongLived, "-c", "side", "--", "sh", "-c",
				`until [ "$(stty size)" = "20000 20000" ]; do sleep 0.05; done; echo as large`)
			if err != nil {
				return "", err
			}
			return term.ends(t, way, 0, term.await(t.Context(), "as large"))
		})
	})
}

// ends waits for the end of a command that was spoken with, and returns the exit code,
// which has to be the one that is wanted.
func (term *terminal) ends(t *testing.T, way string, want int, said error) (string, error) {
	t.Helper()
	if said != nil && !errors.Is(said, errEnded) {
		return "", said // it may run on for ever
	}
	got := testbed.Answer{Code: term.Ended(t, testbed.Patience), Out: term.Text()}
	if said != nil || got.Code != want {
		return "", errors.Join(said, got.Wrong(way, want))
	}
	return fmt.Sprint("exit code ", got.Code), nil
}

// speakOnTerminal speaks with a shell, changes the size of the window, and returns
// how it ended: with the code that is wanted.
func speakOnTerminal(t *testing.T, ctl env.Command, way string, want int, args ...string) (string, error) {
	t.Helper()
	term, err := onTerminal(t, ctl, 33, 99, args...)
	if err != nil {
		return "", err
	}
	return term.ends(t, way, want, term.speak(t.Context()))
}

// speak changes the size of the window, and has the shell end with the code 7.
func (term *terminal) speak(ctx context.Context) error {
	for _, size := range []pty.Winsize{{Rows: 33, Cols: 99}, {Rows: 44, Cols: 120}} {
		if err := pty.Setsize(term.tty, &size); err != nil {
			return err
		}
		want := fmt.Sprint(size.Rows, " ", size.Cols)
		resized := `until [ "$(stty size)" = "` + want + `" ]; do sleep 0.05; done; echo now $(stty size)`
		if err := term.say(ctx, resized, "now "+want); err != nil {
			return err
		}
	}
	if err := term.say(ctx, "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo all three", "\nall three"); err != nil {
		return err
	}
	_, err := term.tty.WriteString("exit 7\n")
	return err
}

func (s *tests) portForwardAgrees(t *testing.T, c testbed.Client) {
	for _, way := range []struct {
		name string
		ctl  env.Command
	}{{testbed.WaySpoke, c.Spoke}, {testbed.WayHub, c.Hub}} {
		f, local := testbed.Forward(t, way.ctl, testbed.LongLived, "8080", "8081", "9")
		small, err := testbed.Fetch(t.Context(), "http://"+local["8080"]+"/")
		if err != nil || string(small) != "hello from the pod\n" {
			t.Errorf("%s: got %q, %v", way.name, small, err)
		}
		large, err := testbed.Fetch(t.Context(), "http://"+local["8080"]+"/large")
		if sum := sha256.Sum256(large); err != nil || hex.EncodeToString(sum[:]) != sumOfLarge() {
			t.Errorf("%s: got %d bytes, %v", way.name, len(large), err)
		}
		manyEchoes(t, way.name, local["8081"])
		// Nobody listens there. What is said ends, and with SPDY the other ports go on.
		if got, err := echo(t.Context(), local["9"], "nobody"); err == nil && got != "" {
			t.Errorf("%s: a closed port answers %q", way.name, got)
		}
		f.Until(t, "refused")
	}
	c.Verbs(t, map[string]testbed.Verb{
		"a port out of range": {Args: []string{"port-forward", testbed.LongLived, ":70000"}, Code: 1, Err: "70000"},
		"no such pod":         {Args: []string{"port-forward", "nowhere", ":80"}, Code: 1, Err: "not found"},
	})
}

// manyEchoes speaks on several connections of one port at the same time.
func manyEchoes(t *testing.T, way, address string) {
	t.Helper()
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			text := fmt.Sprint("there and back, ", i)
			if got, err := echo(t.Context(), address, text); err != nil || got != text {
				t.Errorf("%s: the echo: got %q, %v", way, got, err)
			}
		})
	}
	group.Wait()
}

func sumOfLarge() string {
	var text strings.Builder
	for i := range 400_000 {
		fmt.Fprintf(&text, "%d\n", i+1)
	}
	sum := sha256.Sum256([]byte(text.String()))
	return hex.EncodeToString(sum[:])
}

// echo sends a text, reads it, says that no more comes, and reads to the end. In this order:
// a runtime closes a second, at most, after either end is through (portForward in containerd's
// internal/cri/server), which may be sooner than a pod answers.
func echo(ctx context.Context, address, text string) (string, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(testbed.Patience)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	got := make([]byte, len(text))
	if n, err := io.ReadFull(conn, got); err != nil {
		return string(got[:n]), err
	}
	half, ok := conn.(*net.TCPConn)
	if !ok {
		return "", errors.New("no TCP connection")
	}
	if err := half.CloseWrite(); err != nil {
		return "", err
	}
	rest, err := io.ReadAll(conn)
	return string(got) + string(rest), err
}
