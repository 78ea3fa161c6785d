// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/httpstream/spdy" //nolint:staticcheck // its successor would be a dependency for tests alone
	"k8s.io/apimachinery/pkg/util/proxy"
	apiserverproxy "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/websocket"
)

// apiServer serves port-forward by WebSocket, as the hub's API server does before
// the endpoint: with its own handlers. ended is closed when it has served one.
func (f *fixture) apiServer() (client *rest.Config, ended <-chan struct{}) {
	f.t.Helper()
	way, err := rest.TransportFor(f.config())
	if err != nil {
		f.t.Fatal(err)
	}
	location := &url.URL{Scheme: "https", Host: f.address, Path: "/portForward/team/web"}
	forward := proxy.NewUpgradeAwareHandler(location, way, false, true, responder{f.t})
	tunnel, served := apiserverproxy.NewTunnelingHandler(forward), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(served)
		tunnel.ServeHTTP(w, r)
	}))
	f.t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, BearerToken: "t"}, served // the token is passed on
}

type responder struct{ t *testing.T }

func (r responder) Error(_ http.ResponseWriter, _ *http.Request, err error) {
	r.t.Logf("API server: %v", err)
}

// TestAPortForwardByWebSocketEndsWithTheCut, although the client says nothing: the
// API server's tunnel would go on for ever.
func TestAPortForwardByWebSocketEndsWithTheCut(t *testing.T) {
	s := newSpoke(t, forwards)
	server, served := s.apiServer()
	way, holder, err := websocket.RoundTripperFor(server)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.Host, nil)
	if err != nil {
		t.Fatal(err)
	}
	socket, err := websocket.Negotiate(way, holder, request, tunnelledPrefix+portforward.PortForwardProtocolV1Name)
	if err != nil {
		t.Fatal(err)
	}
	conn := portforward.NewTunnelingConnection("client", socket)
	defer func() { _ = conn.Close() }()
	client, err := spdy.NewClientConnection(conn)
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{"streamType": {"error"}, "port": {"80"}, "requestID": {"0"}}
	if _, err := client.CreateStream(header); err != nil {
		t.Fatal(err)
	}
	s.agent.Network.Cut()
	patience := time.After(30 * time.Second)
	select {
	case <-client.CloseChan():
	case <-patience:
		t.Error("the client goes on after the cut")
	}
	select {
	case <-served:
	case <-patience:
		t.Error("the API server goes on after the cut")
	}
}
