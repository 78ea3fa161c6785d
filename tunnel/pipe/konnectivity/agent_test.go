// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"
	"sigs.k8s.io/apiserver-network-proxy/proto/header"

	"github.com/spokelet/spokelet/tunnel/identity"
	"github.com/spokelet/spokelet/tunnel/pipe"
	"github.com/spokelet/spokelet/tunnel/pipe/pipetest"
)

func TestConfigsAreValidated(t *testing.T) {
	hub := HubConfig{
		HubID: identity.NewID(), Admit: admitAll,
		Handler: pipe.HandlerFunc(func(context.Context, pipe.Peer, pipe.Pipe) {}),
	}
	agent := AgentConfig{Address: "hub:8443", TLS: &tls.Config{MinVersion: tls.VersionTLS13}, Process: "a"}
	if err := hub.Validate(); err != nil {
		t.Error(err)
	}
	if err := agent.Validate(); err != nil {
		t.Error(err)
	}
	for name, validate := range map[string]func() error{
		"no hub id":       func() error { c := hub; c.HubID = ""; return c.Validate() },
		"no handler":      func() error { c := hub; c.Handler = nil; return c.Validate() },
		"no admission":    func() error { c := hub; c.Admit = nil; return c.Validate() },
		"negative limits": func() error { c := hub; c.PerCluster = -1; return c.Validate() },
		"no address":      func() error { c := agent; c.Address = ""; return c.Validate() },
		"no TLS":          func() error { c := agent; c.TLS = nil; return c.Validate() },
		"no process":      func() error { c := agent; c.Process = ""; return c.Validate() },
	} {
		t.Run(name, func(t *testing.T) {
			if validate() == nil {
				t.Error("Validate() = nil")
			}
		})
	}
}

func TestASocketInADirectoryIsForThisUserAndGoesWithTheLink(t *testing.T) {
	dir := t.TempDir()
	link, _ := connectHostile(t, dir, dialRequest(1))
	conn, err := link.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	made, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(made) != 1 {
		t.Fatalf("directory holds %v, %v, want one", made, err)
	}
	info, err := os.Stat(made[0])
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o700 {
		t.Errorf("socket's directory has mode %o, want 700", mode)
	}
	if err := link.Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 0 {
		t.Errorf("closed link leaves %v", left)
	}
}

// dialEnv makes the test binary dial a socket, write to it and exit.
const dialEnv = "SPOKELET_TEST_DIAL_SOCKET"

// dialAndExit is the other process of the test below.
func dialAndExit(address string) {
	conn, err := net.Dial("unix", address)
	if err != nil {
		os.Exit(1)
	}
	_, _ = conn.Write([]byte("intruder"))
	_, _ = conn.Read(make([]byte, 1)) // Until the other end closes.
	os.Exit(0)
}

func TestAnotherProcessIsNotTakenForTheHub(t *testing.T) {
	if !hasAbstractSockets {
		t.Skip("this platform has no abstract sockets: the directory's mode keeps others out")
	}
	l, err := listenSession("")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.close() }()
	network, address := l.target()
	accepted := make(chan net.Conn, 1)
	go func() {
		if conn, err := l.accept(); err == nil {
			accepted <- conn
		}
	}()
	intruder := exec.CommandContext(t.Context(), os.Args[0])
	intruder.Env = append(os.Environ(), dialEnv+"="+address)
	if err := intruder.Run(); err != nil {
		t.Fatalf("the other process could not dial: %v", err)
	}
	own, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = own.Close() }()
	if _, err := own.Write([]byte("mine")); err != nil {
		t.Fatal(err)
	}
	conn := <-accepted
	defer func() { _ = conn.Close() }()
	got := make([]byte, 8)
	if n, err := conn.Read(got); err != nil || string(got[:n]) != "mine" {
		t.Errorf("accepted a connection that says %q, %v, want mine", got[:n], err)
	}
}

func TestALinkWithoutAnAnswerIsBounded(t *testing.T) {
	h := pipetest.Start(t, kind(), nil)
	wire := pipetest.NewWire(-1)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	options := h.Agent(t, nil)
	_, err := Dial(ctx, AgentConfig{
		Address: options.Address, TLS: options.TLS, Process: options.Process,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := wire.DialContext(ctx, network, address)
			return &freezeAfterHandshake{Conn: conn, wire: wire}, err
		},
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Dial() = %v, want %v", err, context.DeadlineExceeded)
	}
}

// freezeAfterHandshake freezes the wire at the third write: the TLS client has
// spoken twice and gRPC begins.
type freezeAfterHandshake struct {
	net.Conn
	wire   *pipetest.Wire
	writes int
}

func (c *freezeAfterHandshake) Write(p []byte) (int, error) {
	if c.writes++; c.writes == 3 {
		c.wire.Freeze()
	}
	return c.Conn.Write(p)
}

func TestACloseWaitsForTheBytesBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClosing()
		if !c.deliver(1) {
			t.Fatal("bytes do not pass before the close")
		}
		closed := make(chan struct{})
		go func() {
			c.close(1)
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Fatal("closed while bytes are handed over")
		default:
		}
		if c.deliver(1) {
			t.Error("bytes pass after the close")
		}
		c.close(2) // Another connection waits for nothing.
		c.rest()
		<-closed
		if c.deliver(1) {
			t.Error("bytes pass after the close")
		}
		if !c.deliver(3) {
			t.Error("bytes of another connection do not pass")
		}
	})
}

func FuzzClaimedProcess(f *testing.F) {
	f.Add("agent-1", "")
	f.Add("store2/agent-1", "agent-2")
	f.Fuzz(func(t *testing.T, first, second string) {
		md := metadata.MD{}
		md.Append(header.AgentID, first)
		if second != "" {
			md.Append(header.AgentID, second)
		}
		ctx := metadata.NewIncomingContext(t.Context(), md)
		process := claimedProcess(ctx)
		if pipe.ValidateProcess(process) != nil {
			return
		}
		if process != first || second != "" {
			t.Errorf("claims %q and %q are taken for %q", first, second, process)
		}
		cluster := identity.Cluster{Name: "store1"}
		established, _ := metadata.FromIncomingContext(withIdentity(ctx, pipe.Peer{Cluster: cluster, Process: process}))
		if ids := established.Get(header.AgentID); len(ids) != 1 || ids[0] != "store1/"+process || len(established) != 2 {
			t.Errorf("proxy server sees %v", established)
		}
	})
}
