// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	// serverStarts bounds how long a server may take until it listens.
	serverStarts = 30 * time.Second
	// serverEnds bounds how long it may take to end when it is asked to.
	serverEnds = 10 * time.Second
)

// Server is a program of this machine that listens on one address and keeps its data when
// it is stopped and started again. It ends with this process. Of one that runs in a cluster
// the address alone is known: it is neither started nor stopped here.
type Server struct {
	// Address is where it listens, as host:port.
	Address string
	// Log is the file that it writes to, of all of its lives.
	Log string

	command Command
	args    []string
	running *running
}

// running is a process. Ended is closed after err was written.
type running struct {
	process *os.Process
	ended   chan struct{}
	err     error
}

// freeAddress is one of a host on which nobody listens now.
func freeAddress(ctx context.Context, host string) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", fmt.Errorf("free port: %w", err)
	}
	address := listener.Addr().String()
	return address, listener.Close()
}

// Start starts the server and returns when it listens. One that runs is left alone.
func (s *Server) Start(ctx context.Context) error {
	if s.runs() {
		return nil
	}
	started, err := s.start()
	if err != nil {
		return err
	}
	s.running = started
	if err := s.listens(ctx, started); err != nil {
		return errors.Join(err, s.Stop())
	}
	return nil
}

// runs tells whether the process that was started last has not ended.
func (s *Server) runs() bool {
	if s.running == nil {
		return false
	}
	select {
	case <-s.running.ended:
		return false
	default:
		return true
	}
}

// start starts the process on a thread that waits for its end: the kernel ends the process
// with the thread that has started it, so that none is left of a test that was killed.
func (s *Server) start() (*running, error) {
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", s.command.line(nil), err)
	}
	cmd := s.command.Cmd(context.Background(), s.args...) // it ends by Stop
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	r, failed := &running{ended: make(chan struct{})}, make(chan error)
	go func() {
		defer close(r.ended)
		defer func() { _ = log.Close() }() // the process has its own descriptor
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		r.process = cmd.Process
		failed <- err
		if err == nil {
			r.err = cmd.Wait()
		}
	}()
	if err := <-failed; err != nil {
		return nil, fmt.Errorf("%s: %w", s.command.line(nil), err)
	}
	return r, nil
}

// listens waits until a connection is accepted, or the process has ended.
func (s *Server) listens(ctx context.Context, r *running) error {
	err := accepts(ctx, s.Address, r.ended)
	if errors.Is(err, errEnded) {
		err = errors.Join(err, r.err)
	}
	if err != nil {
		return &Error{Command: s.command.line(nil), Output: s.tail(), Err: err}
	}
	return nil
}

// accepts waits until a connection to an address is accepted. It gives up with errEnded when
// the channel is closed.
func accepts(ctx context.Context, address string, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, serverStarts)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ended:
			return errEnded
		case <-ctx.Done():
			return err
		case <-again.C:
		}
	}
}

// Stop ends the server and returns when it has ended. One that does not run is stopped.
func (s *Server) Stop() error {
	r := s.running
	if r == nil {
		return nil
	}
	alive := s.runs()
	s.running = nil
	if !alive {
		return &Error{Command: s.command.line(nil), Output: s.tail(), Err: errors.Join(errEnded, r.err)}
	}
	if err := r.process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: %w", s.command.line(nil), err)
	}
	late := time.NewTimer(serverEnds)
	defer late.Stop()
	select {
	case <-r.ended:
	case <-late.C:
		_ = r.process.Kill()
		<-r.ended
	}
	// How it takes a signal is its own.
	if _, exited := errors.AsType[*exec.ExitError](r.err); r.err != nil && !exited {
		return fmt.Errorf("%s: %w", s.command.line(nil), r.err)
	}
	return nil
}

var errEnded = errors.New("it ended before it was told to")

// tail is the end of the log.
func (s *Server) tail() string {
	const most = 2000
	content, err := os.ReadFile(s.Log)
	if err != nil {
		return err.Error()
	}
	return strings.ToValidUTF8(string(content[max(0, len(content)-most):]), "")
}
