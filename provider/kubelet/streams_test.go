// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/util/httpstream"      //nolint:staticcheck // its successor would be a dependency for tests alone
	"k8s.io/apimachinery/pkg/util/httpstream/spdy" //nolint:staticcheck // as httpstream
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	clientspdy "k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
)

// config is that of a client of the endpoint, with the API server's rights.
func (f *fixture) config() *rest.Config {
	return &rest.Config{
		Host: "https://" + f.address, BearerToken: "t",
		TLSClientConfig: rest.TLSClientConfig{CAData: []byte(f.ca.pem())},
	}
}

// executor runs commands by a protocol, as clients of a kubelet do.
func (s *spoke) executor(t *testing.T, transport, path string, protocols ...string) remotecommand.Executor {
	t.Helper()
	target, err := url.Parse("https://" + s.address + path)
	if err != nil {
		t.Fatal(err)
	}
	if transport == protocolWebSocket {
		e, err := remotecommand.NewWebSocketExecutor(s.config(), http.MethodGet, target.String())
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	way, upgrader, err := clientspdy.RoundTripperFor(s.config())
	if err != nil {
		t.Fatal(err)
	}
	if len(protocols) == 0 {
		protocols = []string{"v5.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io"}
	}
	e, err := remotecommand.NewSPDYExecutorForProtocols(way, upgrader, http.MethodPost, target, protocols...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

const execPath = "/exec/team/web/main?command=sh&command=-c&command=a+%26+b"

func TestExecTellsExitCodes(t *testing.T) {
	for _, transport := range []string{protocolSPDY, protocolWebSocket} {
		for _, code := range []int{0, 1, 255} {
			t.Run(fmt.Sprint(transport, " ", code), func(t *testing.T) {
				s := newSpoke(t, execs(func(p *proc) int {
					_, _ = io.WriteString(p.stdout, "out")
					_, _ = io.WriteString(p.stderr, "err")
					return code
				}))
				var stdout, stderr bytes.Buffer
				err := s.executor(t, transport, execPath+"&output=1&error=1").
					StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr})
				var exit exec.CodeExitError
				if code == 0 && err != nil || code != 0 && (!errors.As(err, &exit) || exit.Code != code) {
					t.Errorf("ended with %v, want code %d", err, code)
				}
				if stdout.String() != "out" || stderr.String() != "err" {
					t.Errorf("said %q and %q", &stdout, &stderr)
				}
				method := http.MethodPost
				if transport == protocolWebSocket {
					method = http.MethodGet
				}
				s.checkAsked(t, method, "exec", url.Values{
					"container": {"main"}, "command": {"sh", "-c", "a & b"}, "stdout": {"true"}, "stderr": {"true"},
				})
			})
		}
	}
}

func TestExecCarriesInputToItsEnd(t *testing.T) {
	input := make([]byte, 1<<20)
	_, _ = rand.Read(input)
	for _, transport := range []string{protocolSPDY, protocolWebSocket} {
		t.Run(transport, func(t *testing.T) {
			s := newSpoke(t, execs(func(p *proc) int {
				if transport == protocolWebSocket { // its server knows no half-close
					_, _ = io.CopyN(p.stdout, p.stdin, int64(len(input)))
					return 0
				}
				all, _ := io.ReadAll(p.stdin)
				_, _ = p.stdout.Write(all)
				return 0
			}))
			var stdout bytes.Buffer
			err := s.executor(t, transport, execPath+"&input=1&output=1").
				StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: bytes.NewReader(input), Stdout: &stdout})
			if err != nil || !bytes.Equal(stdout.Bytes(), input) {
				t.Errorf("error %v, %d bytes of %d came back", err, stdout.Len(), len(input))
			}
		})
	}
}

// sizes is a remotecommand.TerminalSizeQueue.
type sizes chan remotecommand.TerminalSize

func (s sizes) Next() *remotecommand.TerminalSize {
	size, ok := <-s
	if !ok {
		return nil
	}
	return &size
}

func TestAttachCarriesTerminalSizes(t *testing.T) {
	want := []remotecommand.TerminalSize{{Width: 80, Height: 24}, {Width: 65535, Height: 65535}, {}}
	var got []remotecommand.TerminalSize
	s := newSpoke(t, execs(func(p *proc) int {
		for range want {
			var size remotecommand.TerminalSize
			if p.resize.Decode(&size) != nil {
				return 1
			}
			got = append(got, size)
		}
		return 0
	}))
	queue := make(sizes, len(want))
	for _, size := range want {
		queue <- size
	}
	close(queue)
	err := s.executor(t, protocolSPDY, "/attach/team/web/u1/debug?tty=1&output=1&error=1").
		StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard, Tty: true, TerminalSizeQueue: queue})
	if err != nil || len(got) != len(want) || got[1] != want[1] {
		t.Errorf("error %v, sizes %v, want %v", err, got, want)
	}
	s.checkAsked(t, http.MethodPost, "attach", url.Values{"container": {"debug"}, "stdout": {"true"}, "tty": {"true"}})
}

// first is a writer that calls f with the first piece.
type first struct {
	sync.Once
	f func()
}

func (w *first) Write(p []byte) (int, error) {
	w.Do(w.f)
	return len(p), nil
}

func TestACutTunnelIsAFailureOfTheCommand(t *testing.T) {
	cases := map[string]struct {
		reason, transport string
		protocols         []string
		path              string
		said              string
	}{
		"exec by SPDY":   {"kubectl would exit with 0", protocolSPDY, nil, execPath + "&output=1", `cluster "spoke1"`},
		"attach by SPDY": {"kubectl would exit with 0", protocolSPDY, nil, "/attach/team/web/main?output=1", `cluster "spoke1"`},
		"exec by SPDY, before statuses": {
			"the error stream is text", protocolSPDY, []string{"v3.channel.k8s.io"}, execPath + "&output=1", `cluster "spoke1"`,
		},
		// Not by the first protocol: its client takes the end of the output or what is on
		// the error stream, whichever it sees first.
		"exec by WebSocket":         {"a WebSocket that ends without a word is broken", protocolWebSocket, nil, execPath + "&output=1", ""},
		"exec by SPDY, all streams": {"output ends first", protocolSPDY, nil, execPath + "&input=1&output=1&error=1", `cluster "spoke1"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			over := make(chan struct{})
			s := newSpoke(t, execs(func(p *proc) int {
				_, _ = io.WriteString(p.stdout, "started")
				<-over
				return 0
			}))
			defer close(over)
			stdin, in := io.Pipe()
			defer func() { _ = in.Close() }()
			options := remotecommand.StreamOptions{Stdout: &first{f: s.agent.Network.Cut}}
			if strings.Contains(tc.path, "input=1") {
				options.Stdin, options.Stderr = stdin, io.Discard
			}
			err := s.executor(t, tc.transport, tc.path, tc.protocols...).StreamWithContext(t.Context(), options)
			if err == nil || !strings.Contains(err.Error(), tc.said) {
				t.Errorf("%s: ended with %v, want an error that says %q", tc.reason, err, tc.said)
			}
			t.Log(err)
		})
	}
}

func TestAClientThatGoesAwayEndsTheStream(t *testing.T) {
	for _, transport := range []string{protocolSPDY, protocolWebSocket} {
		t.Run(transport, func(t *testing.T) {
			ended := make(chan error, 1)
			s := newSpoke(t, execs(func(p *proc) int {
				_, _ = io.WriteString(p.stdout, "started")
				_, err := io.Copy(io.Discard, p.stdin)
				ended <- err
				return 0
			}))
			ctx, leave := context.WithCancel(t.Context())
			stdin, in := io.Pipe()
			defer func() { _ = in.Close() }()
			err := s.executor(t, transport, execPath+"&input=1&output=1").
				StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: &first{f: leave}})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v", err)
			}
			<-ended
		})
	}
}

func TestANodeThatIsRemovedEndsItsStreams(t *testing.T) {
	s := newSpoke(t, execs(func(p *proc) int {
		_, _ = io.WriteString(p.stdout, "started")
		<-p.gone
		return 0
	}))
	err := s.executor(t, protocolSPDY, execPath+"&output=1").
		StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &first{f: func() { s.server.Close("spoke1") }}})
	if err == nil || !strings.Contains(err.Error(), "stream was cut") {
		t.Errorf("ended with %v: a hub that shuts down closes its nodes, and kubectl would exit with 0", err)
	}
	t.Log(err)
}

// forwards serves port-forward as container runtimes do: a port answers, once it
// has been sent all, with its number and what it was sent.
func forwards(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
		return
	}
	streams := make(chan httpstream.Stream, 8)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		streams <- s
		return nil
	})
	if conn == nil {
		return
	}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer func() { _ = conn.Close() }()
	for {
		select {
		case s := <-streams:
			if s.Headers().Get("streamType") == "error" {
				serving.Go(func() {
					_, _ = io.Copy(io.Discard, s)
					_ = s.Close()
				})
				continue
			}
			serving.Go(func() {
				defer func() { _ = s.Close() }()
				all, _ := io.ReadAll(s)
				_, _ = fmt.Fprintf(s, "%s: %s", s.Headers().Get("port"), all)
			})
		case <-conn.CloseChan():
			return
		}
	}
}

func TestPortForwardCarriesHalfClosedStreams(t *testing.T) {
	for _, path := range []string{"/portForward/team/web", "/portForward/team/web/u1"} {
		t.Run(path, func(t *testing.T) {
			s := newSpoke(t, forwards)
			way, upgrader, err := clientspdy.RoundTripperFor(s.config())
			if err != nil {
				t.Fatal(err)
			}
			target := &url.URL{Scheme: "https", Host: s.address, Path: path}
			dialer := clientspdy.NewDialer(upgrader, &http.Client{Transport: way}, http.MethodPost, target)
			stop, ready := make(chan struct{}), make(chan struct{})
			forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:80", "0:8080"}, stop, ready, io.Discard, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- forwarder.ForwardPorts() }()
			select {
			case <-ready:
			case err := <-done:
				t.Fatal(err)
			}
			ports, err := forwarder.GetPorts()
			if err != nil {
				t.Fatal(err)
			}
			for _, port := range ports {
				if got, want := sendAll(t, port.Local, "hello"), fmt.Sprintf("%d: hello", port.Remote); got != want {
					t.Errorf("port %d answered %q, want %q", port.Remote, got, want)
				}
			}
			close(stop)
			if err := <-done; err != nil {
				t.Error(err)
			}
			s.checkAsked(t, http.MethodPost, "portforward", url.Values{})
		})
	}
}

// sendAll sends all there is to a port and reads all that comes back.
func sendAll(t *testing.T, port uint16, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, text)
	_ = conn.(*net.TCPConn).CloseWrite()
	all, err := io.ReadAll(conn)
	if err != nil {
		t.Error(err)
	}
	return string(all)
}
