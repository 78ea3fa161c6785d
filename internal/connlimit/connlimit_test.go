// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package connlimit

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var limits = Limits{Unauthorized: 4, Idle: 3, UnauthorizedTimeout: 10 * time.Second}

// pipes is a listener of connections within the test.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) { return <-p, nil }
func (p pipes) Close() error              { return nil }
func (p pipes) Addr() net.Addr            { return &net.UnixAddr{} }

// pipe is a connection from a host.
type pipe struct {
	net.Conn
	host string
}

func (p pipe) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(p.host), Port: 1} }

// visit connects from a host and returns both ends.
func visit(t *testing.T, l *Listener, host string) (*Conn, net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _ = theirs.Close() })
	go func() { l.Listener.(pipes) <- pipe{ours, host} }()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*Conn), theirs
}

const host = "192.0.2.1"

// isOpen tells whether the listener has left a connection open.
func isOpen(theirs net.Conn) bool {
	if err := theirs.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		return false
	}
	_, err := theirs.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

func TestAConnectionWithoutAnAuthorizedRequestIsClosed(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		letIn  bool
		age    time.Duration
		want   bool
	}{
		"a stranger in its time":    {"TLS and the API server's answer take a while", false, limits.UnauthorizedTimeout - time.Second, true},
		"a stranger after its time": {"it asks for nothing that it may have", false, limits.UnauthorizedTimeout + time.Second, false},
		"a caller after that time":  {"http.Server has limits for those", true, 10 * limits.UnauthorizedTimeout, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, theirs := visit(t, New(make(pipes), limits), host)
				if tc.letIn {
					MarkAuthorized(Context(t.Context(), c))
				}
				time.Sleep(tc.age)
				if got := isOpen(theirs); got != tc.want {
					t.Errorf("connection open = %v, want %v: %s", got, tc.want, tc.reason)
				}
			})
		})
	}
}

func TestTheOldestConnectionGivesWay(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		letIn  bool
		most   int
	}{
		"strangers": {"anybody can be one", false, limits.Unauthorized},
		"callers":   {"a caller may open many", true, limits.Idle},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New(make(pipes), limits)
				var ends []net.Conn
				for range tc.most + 2 {
					c, theirs := visit(t, l, host)
					ends = append(ends, theirs)
					if tc.letIn {
						c.markAuthorized()
						c.markAuthorized() // a second request changes nothing
					}
				}
				for i, theirs := range ends {
					if got, want := isOpen(theirs), i >= 2; got != want {
						t.Errorf("connection %d of %d open = %v, want %v: %s", i, len(ends), got, want, tc.reason)
					}
				}
			})
		})
	}
}

// TestAHostWithManyConnectionsTakesNoneOfAnother, be they strangers' or callers'.
func TestAHostWithManyConnectionsTakesNoneOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(make(pipes), limits)
		_, stranger := visit(t, l, host)
		letIn, caller := visit(t, l, host)
		letIn.markAuthorized()
		for range 3 * limits.Unauthorized {
			visit(t, l, "2001:db8::1")
			c, _ := visit(t, l, "2001:db8::2") // the same /64
			c.markAuthorized()
		}
		if !isOpen(stranger) || !isOpen(caller) {
			t.Errorf("of another host the stranger's connection is open: %v, the caller's: %v", isOpen(stranger), isOpen(caller))
		}
	})
}

func TestAConnectionWithARequestGivesWayToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(make(pipes), limits)
		c, theirs := visit(t, l, host)
		ctx := Context(t.Context(), c)
		Hold(ctx)
		Hold(ctx) // HTTP/2 has many
		call := func(n int) {
			for range n {
				caller, _ := visit(t, l, host)
				caller.markAuthorized()
			}
		}
		call(limits.Idle + 1)
		c.Release()
		call(1)
		if time.Sleep(2 * limits.UnauthorizedTimeout); !isOpen(theirs) {
			t.Fatal("a connection with a request was closed")
		}
		c.Release()
		call(limits.Idle)
		if isOpen(theirs) {
			t.Error("a connection whose requests have ended is for ever")
		}
		Hold(ctx)
		_ = c.Close()
		c.Release() // of one that is closed
		if c.room != nil {
			t.Error("a closed connection has a place")
		}
	})
}

func TestAHijackedConnectionGivesWayToNobody(t *testing.T) {
	for state, want := range map[http.ConnState]bool{http.StateActive: false, http.StateHijacked: true} {
		t.Run(state.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New(make(pipes), limits)
				c, theirs := visit(t, l, host)
				HoldHijacked(tls.Server(c, &tls.Config{MinVersion: tls.VersionTLS13}), state)
				for range limits.Unauthorized {
					visit(t, l, host)
				}
				if time.Sleep(2 * limits.UnauthorizedTimeout); isOpen(theirs) != want {
					t.Errorf("it is open: %v, want %v", !want, want)
				}
			})
		})
	}
}

func TestWithoutAListenerNothingIsHeld(t *testing.T) {
	MarkAuthorized(t.Context())
	Hold(t.Context()).Release()
	if got := Host(t.Context()); got != "" {
		t.Errorf("the host is %q", got)
	}
}
