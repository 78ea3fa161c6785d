// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/internal/connlimit"
	"github.com/spokelet/spokelet/internal/httpproxy"
	"github.com/spokelet/spokelet/internal/httpproxy/spdy"
	"github.com/spokelet/spokelet/tunnel"
)

const (
	streamProtocolHeader = "X-Stream-Protocol-Version"

	protocolSPDY      = "SPDY/3.1"
	protocolWebSocket = "websocket"

	// tunnelledPrefix begins the WebSocket protocols that carry SPDY, whose ports
	// are stated stream by stream.
	tunnelledPrefix = "SPDY/3.1+"
)

// negotiation are the headers of an upgrade that concern the two ends alone, and
// those that let it be found in their logs. No other is forwarded, but for the
// protocols of a WebSocket.
var negotiation = []string{
	streamProtocolHeader, "Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Extensions",
	"User-Agent", "Audit-Id", "Traceparent", "Tracestate",
}

var _ Dialer = (*tunnel.Session)(nil)

// errNoStreams says that the way to a cluster carries no raw streams.
var errNoStreams = errors.New("way to the cluster carries no streams")

// exec runs a command in a container.
func (e *endpoint) exec(w http.ResponseWriter, r *http.Request, t target) {
	query, err := streamQuery(r.URL.Query())
	if err != nil {
		refuse(w, r, err)
		return
	}
	pod, ok := e.config.Pods.Pod(e.node, t.namespace, t.pod)
	switch {
	case !ok:
		refuse(w, r, errNoPod)
	case !t.means(pod) || !hasContainer(pod, t.container):
		refuse(w, r, &refusal{http.StatusInternalServerError, fmt.Sprintf("container not found (%q)", t.container)})
	default:
		query.Set("container", t.container)
		for _, word := range r.URL.Query()["command"] {
			query.Add("command", word)
		}
		e.stream(w, r, call{pod: pod, subresource: "exec", query: query, command: true})
	}
}

// attach connects to a container's process.
func (e *endpoint) attach(w http.ResponseWriter, r *http.Request, t target) {
	query, err := streamQuery(r.URL.Query())
	if err != nil {
		refuse(w, r, err)
		return
	}
	pod, ok := e.config.Pods.Pod(e.node, t.namespace, t.pod)
	switch {
	case !ok:
		refuse(w, r, errNoPod)
	case !t.means(pod) || !hasContainer(pod, t.container):
		refuse(w, r, &refusal{http.StatusInternalServerError,
			fmt.Sprintf("container %s not found in pod %s_%s", t.container, pod.Name, pod.Namespace)})
	default:
		query.Set("container", t.container)
		e.stream(w, r, call{pod: pod, subresource: "attach", query: query, command: true})
	}
}

// portForward connects to ports of a pod.
func (e *endpoint) portForward(w http.ResponseWriter, r *http.Request, t target) {
	query, err := portQuery(r)
	if err != nil {
		refuse(w, r, err)
		return
	}
	pod, ok := e.config.Pods.Pod(e.node, t.namespace, t.pod)
	switch {
	case !ok:
		refuse(w, r, errNoPod)
	case !t.means(pod):
		refuse(w, r, &refusal{http.StatusNotFound, "pod not found"})
	default:
		e.stream(w, r, call{pod: pod, subresource: "portforward", query: query})
	}
}

// streamQuery translates the kubelet's parameters of a command into those of the
// API.
func streamQuery(kubelet url.Values) (url.Values, error) {
	api := url.Values{}
	for from, to := range map[string]string{"input": "stdin", "output": "stdout", "error": "stderr", "tty": "tty"} {
		if kubelet.Get(from) == "1" {
			api.Set(to, "true")
		}
	}
	if api.Has("tty") {
		api.Del("stderr") // a terminal has one output; kubelets drop it too
	}
	if !api.Has("stdin") && !api.Has("stdout") && !api.Has("stderr") {
		return nil, &refusal{http.StatusBadRequest, "you must specify at least 1 of stdin, stdout, stderr"}
	}
	return api, nil
}

// portQuery translates the ports of a WebSocket, which has no other place for
// them.
func portQuery(r *http.Request) (url.Values, error) {
	api := url.Values{}
	if !strings.EqualFold(r.Header.Get("Upgrade"), protocolWebSocket) || tunnelled(r.Header) {
		return api, nil
	}
	ports := r.URL.Query()["port"]
	if len(ports) == 0 {
		return nil, &refusal{http.StatusBadRequest, `query parameter "port" is required`}
	}
	for _, list := range ports {
		if list == "" {
			return nil, &refusal{http.StatusBadRequest, `query parameter "port" cannot be empty`}
		}
		for text := range strings.SplitSeq(list, ",") {
			port, err := strconv.ParseUint(text, 10, 16)
			if err != nil {
				return nil, &refusal{http.StatusBadRequest, fmt.Sprintf("unable to parse %q as a port: %v", list, err)}
			}
			if port < 1 {
				return nil, &refusal{http.StatusBadRequest, fmt.Sprintf("port %q must be > 0", list)}
			}
			api.Add("ports", strconv.FormatUint(port, 10))
		}
	}
	return api, nil
}

func tunnelled(h http.Header) bool {
	for _, protocol := range httpproxy.SocketProtocols(h) {
		if strings.HasPrefix(protocol, tunnelledPrefix) {
			return true
		}
	}
	return false
}

// call is what is asked of a pod in the cluster.
type call struct {
	pod         *corev1.Pod
	subresource string
	query       url.Values
	limit       int64 // of a log, in bytes; 0 is none
	// command: the end of what runs is told on an error stream.
	command bool
}

// stream passes an upgraded connection through to the cluster, until one of
// them or the endpoint ends. It returns when the connection has been upgraded.
func (e *endpoint) stream(w http.ResponseWriter, r *http.Request, c call) {
	protocol, err := httpproxy.UpgradeOf(r)
	switch {
	case err != nil:
		refuse(w, r, &refusal{http.StatusBadRequest, err.Error()})
		return
	case protocol == "":
		refuse(w, r, &refusal{http.StatusInternalServerError, "Upgrade request required"})
		return
	}
	way, err := e.config.Door.RoundTripper(r.Context(), e.node)
	if err != nil {
		refuse(w, r, err)
		return
	}
	dialer, ok := way.(Dialer)
	if !ok {
		refuse(w, r, &refusal{http.StatusNotImplemented, errNoStreams.Error()})
		return
	}
	leave, err := e.calls.enterPod(e.node, c.pod, false)
	if err != nil {
		refuse(w, r, err)
		return
	}
	out := e.request(r.Context(), http.MethodPost, c)
	if strings.EqualFold(protocol, protocolWebSocket) {
		out.Method = http.MethodGet // RFC 6455, section 4.1
	}
	negotiate(out.Header, r.Header)
	httpproxy.KeepUpgrade(out.Header, protocol)
	l := &line{dialer: dialer, leave: leave}
	if strings.EqualFold(protocol, protocolSPDY) {
		l.follow = c.follower()
	}
	if err := httpproxy.Switch(e.life, w, out, l, func(error) {
		l.held.Release()
		leave()
	}); err != nil {
		if errors.Is(err, errNoPod) && wasDeleted(c.pod) {
			err = errDeleted(http.StatusNotFound, e.node, c.pod)
		}
		e.broken(w, r, err)
	}
}

// follower makes what follows the SPDY of the call's server.
func (c call) follower() func(io.Reader, http.Header) *spdy.Follower {
	if c.command {
		return spdy.FollowCommand
	}
	return spdy.FollowForward
}

// negotiate copies what the two ends say to each other about the stream.
func negotiate(to, from http.Header) {
	for _, name := range negotiation {
		if values := from[name]; len(values) > 0 {
			to[name] = values
		}
	}
	httpproxy.SetSocketProtocols(to, from)
}

// broken answers when the cluster gave no answer.
func (e *endpoint) broken(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		// Nobody waits for an answer; a broken stream is the honest one.
		panic(http.ErrAbortHandler)
	}
	refuse(w, r, err)
}

// line is an http.RoundTripper for one upgrade over a raw stream of its own.
type line struct {
	dialer Dialer
	// follow makes what follows the frames of the protocol; nil follows none.
	follow func(io.Reader, http.Header) *spdy.Follower
	held   *connlimit.Conn // the client's connection
	leave  func()          // says that the session has no part in the stream any more
}

// RoundTrip implements http.RoundTripper.
func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	conn, err := l.dialer.Dial(r.Context(), tunnel.DoorKube)
	if err != nil {
		return nil, err
	}
	l.held = connlimit.Hold(r.Context())
	res, err := httpproxy.SwitchTransport(func(context.Context) (net.Conn, error) { return conn, nil }).RoundTrip(r)
	if err != nil {
		abort(conn) // nobody has, if r was not sent
		return nil, err
	}
	if res.StatusCode == http.StatusSwitchingProtocols {
		return l.connect(res, conn)
	}
	if err := passable(res); err != nil {
		_ = res.Body.Close()
		return nil, err
	}
	if res.StatusCode == http.StatusNotFound {
		_ = res.Body.Close()
		return nil, errNoPod
	}
	return res, nil
}

// connect makes the body of a switched connection one that Exchange splices.
func (l *line) connect(res *http.Response, conn net.Conn) (*http.Response, error) {
	body, ok := res.Body.(io.ReadWriteCloser)
	if !ok {
		_ = res.Body.Close()
		return nil, errNoStreams
	}
	c := &cord{Reader: body, WriteCloser: body, conn: conn, kept: func() {
		l.leave()
		l.held.Keep()
	}}
	if l.follow != nil {
		c.server = l.follow(body, res.Header)
		c.Reader = c.server
	}
	res.Body = c
	return res, nil
}

// cord is the cluster's end of a spliced stream. The methods that a switched
// connection loses on its way through http.Transport are those of conn.
type cord struct {
	io.Reader
	io.WriteCloser
	conn   net.Conn
	server *spdy.Follower // what Reader is, if it follows
	early  bool           // the client has spoken before its connection was switched
	kept   func()         // is called when the client alone goes on
}

// Write implements io.Writer, for what a client sends before it is fed.
func (c *cord) Write(p []byte) (int, error) {
	c.early = true
	return c.WriteCloser.Write(p)
}

// Client is how a client is heard and ended. One that does not wait for an answer begins
// nobody knows where.
func (c *cord) Client(conn net.Conn) net.Conn {
	_, halves := conn.(interface{ CloseWrite() error })
	if c.server == nil || c.early || !halves {
		return conn
	}
	return c.server.Client(conn, c.kept)
}

// CloseWrite ends the client's direction in order.
func (c *cord) CloseWrite() error {
	half, ok := c.conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// Feed has the cluster's end read what the client sends by itself, if it can.
func (c *cord) Feed(src net.Conn, ended func(error)) bool {
	f, ok := c.conn.(interface {
		Feed(src tunnel.Source, ended func(error))
	})
	if !ok {
		return false
	}
	f.Feed(src, func(err error) {
		if errors.Is(err, tunnel.ErrAborted) {
			err = fmt.Errorf("%w: %w", httpproxy.ErrReceiver, err)
		}
		ended(err)
	})
	return true
}

// Abort ends the stream so that the cluster sees an error.
func (c *cord) Abort(error) { abort(c.conn) }

// errGone is why a stream in the cluster is aborted.
var errGone = errors.New("client of the stream is gone")

func abort(conn net.Conn) {
	if stream, ok := conn.(interface{ Abort(reason error) }); ok {
		stream.Abort(errGone)
		return
	}
	_ = conn.Close()
}
