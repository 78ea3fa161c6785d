// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
	"sigs.k8s.io/apiserver-network-proxy/proto/agent"
	"sigs.k8s.io/apiserver-network-proxy/proto/header"

	"github.com/spokelet/spokelet/tunnel/pipe"
)

// rawAgent is an agent that says what it likes.
func rawAgent(t *testing.T, h *testHub) agent.AgentServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+h.address,
		grpc.WithTransportCredentials(credentials.NewTLS(h.agentConfig(t, nil).TLS)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return agent.NewAgentServiceClient(conn)
}

// connectRaw opens an agent stream with the metadata and waits for the hub's
// answer.
func connectRaw(t *testing.T, c agent.AgentServiceClient, kv ...string) (agent.AgentService_ConnectClient, error) {
	t.Helper()
	s, err := c.Connect(metadata.AppendToOutgoingContext(t.Context(), kv...))
	if err != nil {
		return nil, err
	}
	md, err := s.Header()
	if err != nil {
		return nil, err
	}
	if len(md.Get(header.ServerID)) == 0 {
		_, err := s.Recv()
		return nil, err
	}
	return s, nil
}

func TestClaimedIdentityIsReplaced(t *testing.T) {
	cases := map[string]struct {
		reason string
		claims []string
	}{
		"nothing more":       {"the plain agent", []string{header.AgentID, "agent-1"}},
		"another's host":     {"konnectivity routes by it", []string{header.AgentID, "agent-1", header.AgentIdentifiers, "host=store2&ipv4=10.0.0.1"}},
		"two sets":           {"an error to the proxy server", []string{header.AgentID, "agent-1", header.AgentIdentifiers, "host=a", header.AgentIdentifiers, "host=b"}},
		"the default route":  {"would take what nobody serves", []string{header.AgentID, "agent-1", header.AgentIdentifiers, "default-route=true"}},
		"a token":            {"nobody reviews it", []string{header.AgentID, "agent-1", header.AuthenticationTokenContextKey, "Bearer x"}},
		"broken identifiers": {"an error to the proxy server", []string{header.AgentID, "agent-1", header.AgentIdentifiers, "%zz;;"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := startHub(t, nil)
			if _, err := connectRaw(t, rawAgent(t, h), tc.claims...); err != nil {
				t.Fatal(err)
			}
			p, ok := h.nextPipe(t).Pipe.(*hubPipe)
			if !ok {
				t.Fatal("pipe is of another kind")
			}
			backend, err := p.server.BackendManagers[0].Backend(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got, want := backend.GetAgentID(), "store1/agent-1"; got != want {
				t.Errorf("%s: agent ID %q, want %q", tc.reason, got, want)
			}
			want := header.Identifiers{Host: []string{"store1"}}
			if diff := cmp.Diff(want, backend.GetAgentIdentifiers()); diff != "" {
				t.Errorf("%s: identifiers: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestHostileRegistrationIsRefused(t *testing.T) {
	cases := map[string]struct {
		reason string
		claims []string
	}{
		"no process":           {"nothing to route by", nil},
		"two processes":        {"which one counts", []string{header.AgentID, "agent-1", header.AgentID, "agent-2"}},
		"another's name":       {"a name of a cluster is no process", []string{header.AgentID, "store2/agent-1"}},
		"a name with a space":  {"not in the grammar", []string{header.AgentID, "agent 1"}},
		"a name without bound": {"not in the grammar", []string{header.AgentID, strings.Repeat("a", 64)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := startHub(t, nil)
			_, err := connectRaw(t, rawAgent(t, h), tc.claims...)
			if got := status.Code(err); got != codes.InvalidArgument {
				t.Errorf("%s: Connect() = %v, want %v", tc.reason, err, codes.InvalidArgument)
			}
		})
	}
}

func TestConnectionCarriesOnePipe(t *testing.T) {
	h := startHub(t, nil)
	c := rawAgent(t, h)
	if _, err := connectRaw(t, c, header.AgentID, "agent-1"); err != nil {
		t.Fatal(err)
	}
	h.nextPipe(t)
	if _, err := connectRaw(t, c, header.AgentID, "agent-2"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("Connect() a second time = %v, want %v", err, codes.ResourceExhausted)
	}
}

// endingConn says when its reader has met the end.
type endingConn struct {
	net.Conn
	end func()
}

func (c *endingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.end()
	}
	return n, err
}

func TestRefusalClosesConnection(t *testing.T) {
	h := startHub(t, nil)
	ended := make(chan struct{})
	end := sync.OnceFunc(func() { close(ended) })
	conn, err := grpc.NewClient("passthrough:///"+h.address,
		grpc.WithTransportCredentials(credentials.NewTLS(h.agentConfig(t, nil).TLS)),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			tcp, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			return &endingConn{Conn: tcp, end: end}, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = connectRaw(t, agent.NewAgentServiceClient(conn)) // without a process
	if status.Code(err) != codes.InvalidArgument {
		t.Fatalf("Connect() = %v, want %v", err, codes.InvalidArgument)
	}
	patience, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	select {
	case <-ended:
	case <-patience.Done():
		t.Error("the hub holds the connection of an agent that it refused")
	}
}

// TestPacketWithoutPayloadClosesPipe holds upstream's proxy server back
// from its panic: it dereferences the payload that the type promises.
func TestPacketWithoutPayloadClosesPipe(t *testing.T) {
	for number, name := range client.PacketType_name {
		if client.PacketType(number) == client.PacketType_DRAIN {
			continue // It has nothing to dereference.
		}
		t.Run(name, func(t *testing.T) {
			h := startHub(t, nil)
			s, err := connectRaw(t, rawAgent(t, h), header.AgentID, "agent-1")
			if err != nil {
				t.Fatal(err)
			}
			p := h.nextPipe(t)
			if err := s.Send(&client.Packet{Type: client.PacketType(number)}); err != nil {
				t.Fatal(err)
			}
			<-p.Done()
			if _, err := p.Dial(t.Context()); !errors.Is(err, pipe.ErrLost) {
				t.Errorf("Dial() = %v, want %v", err, pipe.ErrLost)
			}
		})
	}
}

func TestStreamWithoutCredentialsIsRefused(t *testing.T) {
	hub, err := NewHub(HubConfig{
		HubID:   newAuthority(t).HubID,
		Handler: pipe.HandlerFunc(func(context.Context, pipe.Peer, pipe.Pipe) { t.Error("handler called") }),
		Admit:   admitAll,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := hub.Connect(&fakeStream{ctx: t.Context()}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("Connect() = %v, want %v", err, codes.PermissionDenied)
	}
	if _, ok := VerifiedLeaf(t.Context()); ok {
		t.Error("VerifiedLeaf() found a certificate where there is no connection")
	}
}

type fakeStream struct {
	agent.AgentService_ConnectServer
	ctx context.Context
}

func (s *fakeStream) Context() context.Context { return s.ctx }

// hostileHub speaks for a proxy server: it sends an agent what it likes.
type hostileHub struct {
	packets  []*client.Packet
	answered chan *client.Packet
}

func (h *hostileHub) Connect(s agent.AgentService_ConnectServer) error {
	if err := s.SendHeader(metadata.Pairs(header.ServerID, "x", header.ServerCount, "1")); err != nil {
		return err
	}
	for _, p := range h.packets {
		if err := s.Send(p); err != nil {
			return err
		}
	}
	for {
		p, err := s.Recv()
		if err != nil {
			return nil //nolint:nilerr // the agent has gone, which is how the test ends
		}
		h.answered <- p
	}
}

// connectHostile connects an agent to a hub that sends packets.
func connectHostile(t *testing.T, packets ...*client.Packet) (pipe.Link, *hostileHub, error) {
	t.Helper()
	authority := newAuthority(t)
	hub := &hostileHub{packets: packets, answered: make(chan *client.Packet, 64)}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(hubTLS(t, authority))))
	agent.RegisterAgentServiceServer(server, hub)
	cert := issue(t, authority, authority.NewCluster("store1").URI(), nil)
	link, err := Dial(t.Context(), pipe.DialConfig{
		Address: serveGRPC(t, server), TLS: agentTLS(authority, cert), Process: "agent-1", DialContext: dialTCP,
	})
	if err == nil {
		t.Cleanup(func() { _ = link.Close() })
	}
	return link, hub, err
}

func TestDialOfAnyTargetReachesAgentOnly(t *testing.T) {
	for name, address := range map[string][2]string{
		"a service":         {"tcp", "kubernetes.default.svc:443"},
		"the loopback":      {"tcp", "127.0.0.1:10250"},
		"cloud metadata":    {"tcp", "169.254.169.254:80"},
		"mapped IPv6":       {"tcp6", "[::ffff:169.254.169.254]:80"},
		"another socket":    {"unix", "/run/containerd/containerd.sock"},
		"an abstract one":   {"unix", "@/containerd-shim/x.sock"},
		"port zero":         {"tcp", "127.0.0.1:0"},
		"an unknown kind":   {"ip4:icmp", "127.0.0.1"},
		"nothing":           {"", ""},
		"a name with a NUL": {"tcp", "localhost\x00.example.com:80"},
	} {
		t.Run(name, func(t *testing.T) {
			link, hub, err := connectHostile(t, &client.Packet{
				Type: client.PacketType_DIAL_REQ,
				Payload: &client.Packet_DialRequest{DialRequest: &client.DialRequest{
					Protocol: address[0], Address: address[1], Random: 7,
				}},
			})
			if err != nil {
				t.Fatal(err)
			}
			conn, err := link.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			answer := (<-hub.answered).GetDialResponse()
			if answer.GetError() != "" || answer.GetRandom() != 7 {
				t.Errorf("agent answered %v", answer)
			}
		})
	}
}

func TestPacketOfNoServerClosesLink(t *testing.T) {
	packets := map[string]*client.Packet{
		"an answer to a dial": {Type: client.PacketType_DIAL_RSP, Payload: &client.Packet_DialResponse{DialResponse: &client.DialResponse{}}},
		"a close answered":    {Type: client.PacketType_CLOSE_RSP, Payload: &client.Packet_CloseResponse{CloseResponse: &client.CloseResponse{}}},
		"an unknown type":     {Type: 99},
		"a payload of another type": {
			Type: client.PacketType_DATA, Payload: &client.Packet_DialRequest{DialRequest: &client.DialRequest{}},
		},
	}
	for number, name := range client.PacketType_name {
		packets["without payload: "+name] = &client.Packet{Type: client.PacketType(number)}
	}
	for name, p := range packets {
		t.Run(name, func(t *testing.T) {
			link, _, err := connectHostile(t, p)
			if err == nil { // Else the packet came before the agent was told that it is served.
				<-link.Done()
				err = link.Err()
			}
			if !errors.Is(err, pipe.ErrLost) {
				t.Errorf("link ended with %v, want %v", err, pipe.ErrLost)
			}
		})
	}
}

func TestDataForUnknownConnectionIsAnswered(t *testing.T) {
	link, hub, err := connectHostile(t, data(1, []byte("x")), data(0, []byte("x")), closeRequest(5))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if p := <-hub.answered; p.GetCloseResponse().GetError() == "" {
			t.Errorf("agent answered %v, want a close with an error", p)
		}
	}
	if err := link.Err(); err != nil {
		t.Errorf("link ended with %v", err)
	}
}
