// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"          //nolint:staticcheck // its successor would be a dependency for tests alone
	"k8s.io/apimachinery/pkg/util/httpstream/spdy"     //nolint:staticcheck // as httpstream
	"k8s.io/apimachinery/pkg/util/httpstream/wsstream" //nolint:staticcheck // as httpstream
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	clientspdy "k8s.io/client-go/transport/spdy"
)

const protocolSPDY = "SPDY/3.1"

// cuttableSession is a session whose streams end all at once: with an error, as when an agent is
// killed, or in order, as when the cluster's API server is.
type cuttableSession struct {
	*testAgent
	inOrder bool

	mu      sync.Mutex
	streams []net.Conn
}

// cuttableStream is one of its streams.
type cuttableStream struct {
	net.Conn
	inOrder bool
}

func (s cuttableStream) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if err != nil && s.inOrder {
		err = io.EOF
	}
	return n, err
}

func (s *cuttableSession) Dial(ctx context.Context, door string) (net.Conn, error) {
	conn, err := s.testAgent.Dial(ctx, door)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams = append(s.streams, conn)
	return cuttableStream{Conn: conn, inOrder: s.inOrder}, nil
}

func (s *cuttableSession) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.streams {
		_ = conn.Close() // reads of it fail from now on
	}
}

// serveEndlessCommand serves exec and attach with a command that prints a word and goes on until
// over is closed, and port-forward.
func serveEndlessCommand(over <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if wsstream.IsWebSocketRequest(r) {
			serveEndlessWebSocket(w, r, over)
			return
		}
		protocols := []string{"v5.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io"}
		if strings.HasSuffix(r.URL.Path, "/portforward") {
			protocols = []string{portforward.PortForwardProtocolV1Name}
		}
		if _, err := httpstream.Handshake(r, w, protocols); err != nil {
			return
		}
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replied <-chan struct{}) error {
			if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeStdout {
				go func() {
					<-replied
					_, _ = io.WriteString(s, "started")
				}()
			}
			return nil
		})
		if conn == nil {
			return
		}
		defer func() { _ = conn.Close() }()
		select {
		case <-over:
		case <-conn.CloseChan():
		}
	}
}

func serveEndlessWebSocket(w http.ResponseWriter, r *http.Request, over <-chan struct{}) {
	channels := wsstream.ChannelProtocolConfig{Binary: true, Channels: []wsstream.ChannelType{
		wsstream.ReadChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.ReadChannel,
	}}
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{"v5.channel.k8s.io": channels})
	_, streams, err := conn.Open(w, r)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(streams[1], "started")
	<-over
}

// firstWriteNotifier is a writer that calls f with the first piece.
type firstWriteNotifier struct {
	sync.Once
	f func()
}

func (w *firstWriteNotifier) Write(p []byte) (int, error) {
	w.Do(w.f)
	return len(p), nil
}

func (s *liveServer) config() *rest.Config {
	return &rest.Config{Host: "https://" + s.address, BearerToken: "alice", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

func (s *liveServer) at(subresource string) *url.URL {
	return &url.URL{
		Scheme: "https", Host: s.address, RawQuery: "stdout=true&command=sleep",
		Path: livePath + "/clusters/c1/proxy/api/v1/namespaces/shop/pods/web/" + subresource,
	}
}

func (s *liveServer) newExecutor(t *testing.T, protocol, subresource string) remotecommand.Executor {
	t.Helper()
	var executor remotecommand.Executor
	var err error
	if protocol == protocolSPDY {
		executor, err = remotecommand.NewSPDYExecutor(s.config(), http.MethodPost, s.at(subresource))
	} else {
		executor, err = remotecommand.NewWebSocketExecutor(s.config(), http.MethodGet, s.at(subresource).String())
	}
	if err != nil {
		t.Fatal(err)
	}
	return executor
}

func TestProxyFailsExecWhenSessionIsCut(t *testing.T) {
	cases := map[string]struct {
		reason, protocol, subresource string
		// ends: the cluster's server ends in order, and says no status.
		ends bool
		said string
	}{
		"exec by SPDY":      {"kubectl would exit with 0", protocolSPDY, "exec", false, "stream was cut"},
		"attach by SPDY":    {"kubectl would exit with 0", protocolSPDY, "attach", false, "stream was cut"},
		"exec by WebSocket": {"a WebSocket that ends without a word is broken", "websocket", "exec", false, ""},
		"exec by SPDY, ended without a status": {
			"the cluster's API server was killed", protocolSPDY, "exec", true, "without the status",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			over := make(chan struct{})
			defer close(over)
			session := &cuttableSession{testAgent: newTestAgent(t, serveEndlessCommand(over)), inOrder: tc.ends}
			s := start(t, &fleet{clusters: map[string]Session{"c1": session}}, allowAll, Limits{})
			err := s.newExecutor(t, tc.protocol, tc.subresource).
				StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &firstWriteNotifier{f: session.cut}})
			if err == nil || !strings.Contains(err.Error(), tc.said) {
				t.Errorf("reason: %s: ended with %v, want an error that says %q", tc.reason, err, tc.said)
			}
		})
	}
}

func TestProxyFailsPortForwardWhenSessionIsCut(t *testing.T) {
	over := make(chan struct{})
	defer close(over)
	session := &cuttableSession{testAgent: newTestAgent(t, serveEndlessCommand(over))}
	s := start(t, &fleet{clusters: map[string]Session{"c1": session}}, allowAll, Limits{})
	way, upgrader, err := clientspdy.RoundTripperFor(s.config())
	if err != nil {
		t.Fatal(err)
	}
	dialer := clientspdy.NewDialer(upgrader, &http.Client{Transport: way}, http.MethodPost, s.at("portforward"))
	stop, ready := make(chan struct{}), make(chan struct{})
	defer close(stop)
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:80"}, stop, ready, io.Discard, io.Discard)
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
	session.cut()
	if err := <-done; err == nil {
		t.Error("it ended in order")
	}
}
