// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spokelet/spokelet/e2e/env"
)

// forwarding is the line that kubectl prints for each port.
var forwarding = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+) -> (\d+)`)

// Forward starts port-forward and returns the local address of each port.
func Forward(t *testing.T, ctl env.Command, pod string, ports ...string) (*Following, map[string]string) {
	t.Helper()
	args := []string{"port-forward", pod}
	for _, port := range ports {
		args = append(args, ":"+port)
	}
	f := Follow(t, ctl, args...)
	local := map[string]string{}
	Until(t, fmt.Sprintf("%v listens", args), Patience, func(context.Context) error {
		for _, m := range forwarding.FindAllStringSubmatch(f.Text(), -1) {
			local[m[2]] = m[1]
		}
		if len(local) < len(ports) {
			return fmt.Errorf("got %q", f.Text())
		}
		return nil
	})
	return f, local
}

// Fetch reads what an address answers to a GET, over a connection of its own.
func Fetch(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	return io.ReadAll(resp.Body)
}

// Following is a command that runs until the test ends, or it is stopped.
type Following struct {
	Cmd  *exec.Cmd
	Done chan error

	mu  sync.Mutex
	out bytes.Buffer
}

// Write implements io.Writer for the command's output, of both kinds.
func (f *Following) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.out.Write(p)
}

// Text is what the command has printed so far.
func (f *Following) Text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.out.String()
}

// Follow starts a command that is ended with the test, if it has not ended.
func Follow(t *testing.T, ctl env.Command, args ...string) *Following {
	t.Helper()
	return FollowWith(t, nil, ctl, args...)
}

// FollowWith is Follow with an input.
func FollowWith(t *testing.T, in *os.File, ctl env.Command, args ...string) *Following {
	t.Helper()
	f := &Following{Cmd: ctl.Cmd(t.Context(), args...), Done: make(chan error, 1)}
	f.Cmd.Stdout, f.Cmd.Stderr = f, f
	if in != nil {
		f.Cmd.Stdin = in
	}
	if err := f.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { f.Done <- f.Cmd.Wait() }()
	t.Cleanup(func() {
		_ = f.Cmd.Process.Kill() // it may have ended
		select {
		case err := <-f.Done:
			f.Done <- err
		case <-time.After(Patience):
			t.Errorf("%v does not end", f.Cmd.Args)
		}
	})
	return f
}

// Until waits for a text in the output.
func (f *Following) Until(t *testing.T, want string) {
	t.Helper()
	Until(t, fmt.Sprintf("%q from %v", want, f.Cmd.Args[1:]), Patience, func(context.Context) error {
		if got := f.Text(); !strings.Contains(got, want) {
			return fmt.Errorf("got %.400q", got)
		}
		return nil
	})
}

// Ended waits for the end of the command and returns its exit code.
func (f *Following) Ended(t *testing.T, within time.Duration) int {
	t.Helper()
	select {
	case err := <-f.Done:
		f.Done <- err
		return f.Cmd.ProcessState.ExitCode()
	case <-time.After(within):
		t.Errorf("%v runs on after %s", f.Cmd.Args[1:], within)
		return 0
	}
}
