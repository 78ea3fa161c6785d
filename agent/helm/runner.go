// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"

	"github.com/spokelet/spokelet/agent/helm/message"
	"github.com/spokelet/spokelet/api/wire"
)

// maxStderr bounds the standard error of a process that is logged, in bytes.
const maxStderr = 1 << 10

var (
	// ErrNotEnabled tells the owner of the cluster how to enable Helm.
	ErrNotEnabled = errors.New("helm is not enabled in this cluster: the values of its agent's chart name no URLs that charts may be read from (helm.charts)")
	// ErrEnded is returned if a process ended without an answer.
	ErrEnded = errors.New("the process of helm ended without an answer")
)

// Events notify a caller during a request.
type Events struct {
	// BeforeChange is called before the first request that may change something is forwarded.
	// An error ends the process.
	BeforeChange func(context.Context) error
	// Progress is called with the present step, by one goroutine.
	Progress func(what string)
}

// Runner runs processes.
type Runner struct{ cfg Config }

// New returns a runner.
func New(cfg Config) (*Runner, error) {
	cfg.Default()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Runner{cfg: cfg}, nil
}

// Run executes a request as a requester, and returns a release or a failure. Nothing was changed if Begin was not called. Otherwise, after an error that
// wraps ErrEnded, message.Settle determines the outcome. The other errors are a
// refusals.AccessError,
// ErrNotEnabled, that of Begin, and what keeps a process from being started.
func (r *Runner) Run(ctx context.Context, by wire.Requester, request message.Request, on Events) (message.Answer, error) {
	if len(r.cfg.Allowed) == 0 {
		return message.Answer{}, ErrNotEnabled
	}
	request.Allowed = r.cfg.Allowed
	most := request.Timeout + r.cfg.extraTime
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	passes, err := r.newClusterProxy(ctx, by, on.BeforeChange)
	if err != nil {
		return message.Answer{}, err
	}
	ours, theirs, err := newConnection()
	if err != nil {
		return message.Answer{}, fmt.Errorf("way to the cluster: %w", err)
	}
	defer serve(ours, passes, most, r.cfg.Logger)()
	answer, err := r.execute(ctx, request, theirs, on.Progress)
	if failed := passes.close(); failed != nil {
		return message.Answer{}, failed
	}
	return answer, err
}

// execute runs a process to its end. It closes theirs.
func (r *Runner) execute(ctx context.Context, request message.Request, theirs *os.File, progress func(string)) (message.Answer, error) {
	defer func() { _ = theirs.Close() }()         // the process has a copy
	cmd := exec.CommandContext(ctx, r.cfg.Binary) //nolint:gosec // it is of the agent's image
	said := &prefixBuffer{}
	cmd.Env, cmd.ExtraFiles, cmd.Stderr = r.environment(), []*os.File{theirs}, said
	in, err := cmd.StdinPipe()
	if err != nil {
		return message.Answer{}, fmt.Errorf("start helm: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return message.Answer{}, fmt.Errorf("start helm: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return message.Answer{}, fmt.Errorf("start helm: %w", err)
	}
	defer func() { _ = in.Close() }() // open until the end: the process ends when it is closed
	answer, err := r.exchange(cmd.Process.Pid, request, in, out, progress)
	if err != nil {
		_ = cmd.Process.Kill() // its answers are not valid
	}
	_ = in.Close()
	ended := cmd.Wait()
	switch {
	case answer.Release != nil || answer.Failure != nil:
		return answer, nil
	case ctx.Err() != nil:
		ended = context.Cause(ctx)
	case ended == nil || err != nil:
		ended = err
	}
	r.cfg.Logger.Info("Process of helm ended without an answer", "why", fmt.Sprint(ended), "said", said.String())
	return message.Answer{}, fmt.Errorf("%w: %s; it may use %d MiB and %s", ErrEnded, exitReason(ended), r.cfg.Memory>>20, request.Timeout)
}

// exchange sends a request and reads the answers, until the last.
func (r *Runner) exchange(pid int, request message.Request, in io.Writer, out io.Reader, progress func(string)) (message.Answer, error) {
	if err := setLimits(pid, r.cfg.Memory); err != nil {
		return message.Answer{}, fmt.Errorf("limit helm: %w", err)
	}
	if err := json.NewEncoder(in).Encode(request); err != nil {
		return message.Answer{}, fmt.Errorf("write request: %w", err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, message.MaxAnswer)
	for lines.Scan() {
		var answer message.Answer
		if err := json.Unmarshal(lines.Bytes(), &answer); err != nil {
			return message.Answer{}, fmt.Errorf("read answer: %w", err)
		}
		if answer.Release != nil || answer.Failure != nil {
			return answer, nil
		}
		progress(answer.Progress)
	}
	return message.Answer{}, lines.Err()
}

// exitReason describes how a process ended, without details that differ each time.
func exitReason(err error) string {
	var exit *exec.ExitError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "it took too long"
	case errors.As(err, &exit):
		return exit.String()
	case err == nil:
		return "exit status 0"
	default:
		return err.Error()
	}
}

// environment returns the environment of a process: proxies, certificate authorities, and the
// limit of its heap, which is below its memory limit.
func (r *Runner) environment() []string {
	env := []string{"GOMEMLIMIT=" + strconv.FormatInt(heapLimit(r.cfg.Memory), 10), "HOME=/nonexistent"}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// heapLimit returns GOMEMLIMIT, so that the garbage collector works hardest before the memory of
// the process is exhausted.
func heapLimit(memory int64) int64 { return max(memory-uncountedMemory, memory/2) }

// prefixBuffer keeps the first bytes that are written.
type prefixBuffer struct{ buf bytes.Buffer }

func (h *prefixBuffer) Write(p []byte) (int, error) {
	h.buf.Write(p[:min(len(p), maxStderr-h.buf.Len())])
	return len(p), nil
}

func (h *prefixBuffer) String() string { return h.buf.String() }

// newConnection returns the two ends of a connection, of which the process gets the second.
func newConnection() (net.Conn, *os.File, error) {
	files, err := socketPair()
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = files[0].Close() }() // FileConn has one of its own
	conn, err := net.FileConn(files[0])
	if err != nil {
		_ = files[1].Close()
		return nil, nil, err
	}
	return conn, files[1], nil
}
