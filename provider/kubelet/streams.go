// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
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
func (e *endpoint) exec(w http.ResponseWriter, r *http.Request, t podTarget) {
	query, err := streamQuery(r.URL.Query())
	if err != nil {
		refuse(w, r, err)
		return
	}
	pod, ok := e.config.Pods.Pod(e.node, t.namespace, t.pod)
	switch {
	case !ok:
		refuse(w, r, errNoPod)
	case !t.matches(pod) || !hasContainer(pod, t.container):
		refuse(w, r, &refusal{http.StatusInternalServerError, fmt.Sprintf("container not found (%q)", t.container)})
	default:
		query.Set("container", t.container)
		for _, word := range r.URL.Query()["command"] {
			query.Add("command", word)
		}
		e.serveStream(w, r, podRequest{pod: pod, subresource: "exec", query: query})
	}
}

// attach connects to a container's process.
func (e *endpoint) attach(w http.ResponseWriter, r *http.Request, t podTarget) {
	query, err := streamQuery(r.URL.Query())
	if err != nil {
		refuse(w, r, err)
		return
	}
	pod, ok := e.config.Pods.Pod(e.node, t.namespace, t.pod)
	switch {
	case !ok:
		refuse(w, r, errNoPod)
	case !t.matches(pod) || !hasContainer(pod, t.container):
		refuse(w, r, &refusal{http.StatusInternalServerError,
			fmt.Sprintf("container %s not found in pod %s_%s", t.container, pod.Name, pod.Namespace)})
	default:
		query.Set("container", t.container)
		e.serveStream(w, r, podRequest{pod: pod, subresource: "attach", query: query})
	}
}

// portForward connects to ports of a pod.
func (e *endpoint) portForward(w http.ResponseWriter, r *http.Request, t podTarget) {
	query, err := portQuery(r)
	if err != nil {
		refuse(w, r, err)
		return
	}
	pod, ok := e.config.Pods.Pod(e.node, t.namespace, t.pod)
	switch {
	case !ok:
		refuse(w, r, errNoPod)
	case !t.matches(pod):
		refuse(w, r, &refusal{http.StatusNotFound, "pod not found"})
	default:
		e.serveStream(w, r, podRequest{pod: pod, subresource: "portforward", query: query})
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
	if !strings.EqualFold(r.Header.Get("Upgrade"), protocolWebSocket) || isTunnelled(r.Header) {
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

func isTunnelled(h http.Header) bool {
	for _, protocol := range httpproxy.WebSocketProtocols(h) {
		if strings.HasPrefix(protocol, tunnelledPrefix) {
			return true
		}
	}
	return false
}

// podRequest is a request for a pod in the cluster.
type podRequest struct {
	pod         *corev1.Pod
	subresource string
	query       url.Values
	limit       int64 // of a log, in bytes; 0 is none
}

// serveStream proxies an upgraded connection to the cluster, until one of them or the
// endpoint ends. It returns when the connection has been upgraded.
func (e *endpoint) serveStream(w http.ResponseWriter, r *http.Request, c podRequest) {
	protocol, err := httpproxy.UpgradeProtocol(r)
	switch {
	case err != nil:
		refuse(w, r, &refusal{http.StatusBadRequest, err.Error()})
		return
	case protocol == "":
		refuse(w, r, &refusal{http.StatusInternalServerError, "Upgrade request required"})
		return
	}
	transport, err := e.config.Door.RoundTripper(r.Context(), e.node)
	if err != nil {
		refuse(w, r, err)
		return
	}
	dialer, ok := transport.(Dialer)
	if !ok {
		refuse(w, r, &refusal{http.StatusNotImplemented, errNoStreams.Error()})
		return
	}
	release, err := e.limits.acquirePod(e.node, c.pod, false)
	if err != nil {
		refuse(w, r, err)
		return
	}
	out := e.newRequest(r.Context(), http.MethodPost, c)
	if strings.EqualFold(protocol, protocolWebSocket) {
		out.Method = http.MethodGet // RFC 6455, section 4.1
	}
	copyNegotiation(out.Header, r.Header)
	httpproxy.SetUpgrade(out.Header, protocol)
	held := connlimit.Hold(r.Context())
	err = httpproxy.ProxyUpgrade(e.life, w, out, streamTransport{dialer}, httpproxy.Options{
		FrameFilter: spdy.Filter,
		OnEnd: func(error) {
			held.Release()
			release()
		},
	})
	if errors.Is(err, errNoPod) && wasDeleted(c.pod) {
		err = errDeleted(http.StatusNotFound, e.node, c.pod)
	}
	if err != nil {
		e.handleError(w, r, err)
	}
}

// copyNegotiation copies the headers by which the two ends negotiate the stream.
func copyNegotiation(to, from http.Header) {
	for _, name := range negotiation {
		if values := from[name]; len(values) > 0 {
			to[name] = values
		}
	}
	httpproxy.SetWebSocketProtocols(to, from)
}

// handleError answers a request that the cluster did not answer.
func (e *endpoint) handleError(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		// Nobody waits for an answer; a broken stream is the honest one.
		panic(http.ErrAbortHandler)
	}
	refuse(w, r, err)
}

// streamTransport sends upgrades to the cluster, each over a raw stream of its own, and
// returns the cluster's refusals as errors.
type streamTransport struct{ dialer Dialer }

func (t streamTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := httpproxy.NewSessionTransport(func(ctx context.Context) (net.Conn, error) {
		return t.dialer.Dial(ctx, tunnel.DoorKube)
	}).RoundTrip(r)
	if err != nil || res.StatusCode == http.StatusSwitchingProtocols {
		return res, err
	}
	err = checkStatus(res)
	if err == nil && res.StatusCode == http.StatusNotFound {
		err = errNoPod
	}
	if err != nil {
		_ = res.Body.Close()
		return nil, err
	}
	return res, nil
}
