// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// pipes is a listener of connections within the test.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) { return <-p, nil }
func (p pipes) Close() error              { return nil }
func (p pipes) Addr() net.Addr            { return &net.UnixAddr{} }

// visit connects to a port and returns both ends.
func visit(t *testing.T, p *port) (*visitor, net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _ = theirs.Close() })
	go func() { p.Listener.(pipes) <- ours }()
	conn, err := p.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*visitor), theirs
}

// isOpen tells whether the port has left a connection open.
func isOpen(theirs net.Conn) bool {
	if err := theirs.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		return false
	}
	_, err := theirs.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

func TestAStrangersTimeIsShort(t *testing.T) {
	for name, tc := range map[string]struct {
		reason     string
		authorized bool
		age        time.Duration
		want       bool
	}{
		"a stranger in its time":    {"TLS and the API server's answer take a while", false, strangerTime - time.Second, true},
		"a stranger after its time": {"it asks for nothing that it may have", false, strangerTime + time.Second, false},
		"a caller after that time":  {"http.Server has limits for those", true, 10 * strangerTime, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, theirs := visit(t, &port{Listener: make(pipes)})
				if tc.authorized {
					v.welcome()
				}
				time.Sleep(tc.age)
				if got := isOpen(theirs); got != tc.want {
					t.Errorf("connection open = %v, want %v: %s", got, tc.want, tc.reason)
				}
			})
		})
	}
}

func TestTheOldestVisitorGivesWay(t *testing.T) {
	for name, tc := range map[string]struct {
		reason     string
		authorized bool
		most       int
	}{
		"strangers": {"anybody can be one", false, maxStrangers},
		"callers":   {"a caller may open many", true, maxCallers},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &port{Listener: make(pipes)}
				var ends []net.Conn
				for range tc.most + 2 {
					v, theirs := visit(t, p)
					ends = append(ends, theirs)
					if tc.authorized {
						v.welcome()
						v.welcome() // a second request changes nothing
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

func TestAConnectionWithAStreamGivesWayToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &port{Listener: make(pipes)}
		v, theirs := visit(t, p)
		v.welcome()
		v.hold()
		v.hold() // HTTP/2 has many
		call := func(n int) {
			for range n {
				caller, _ := visit(t, p)
				caller.welcome()
			}
		}
		call(maxCallers + 1)
		v.release()
		call(1)
		if !isOpen(theirs) {
			t.Fatal("a connection with a stream was closed")
		}
		v.release()
		call(maxCallers)
		if isOpen(theirs) {
			t.Error("a connection whose streams have ended is for ever")
		}
		v.hold()
		v.release() // of one that is closed
		_ = v.Close()
		if len(p.callers) > maxCallers {
			t.Errorf("%d callers", len(p.callers))
		}
	})
}

// TestAConnectionThatItsClientKeepsGivesWayToItsLike and to no others: what is left
// of a stream is the client's alone to end.
func TestAConnectionThatItsClientKeepsGivesWayToItsLike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &port{Listener: make(pipes)}
		keep := func() (*visitor, net.Conn) {
			v, theirs := visit(t, p)
			v.welcome()
			l := &line{follow: newFollower, held: hold(withVisitor(t.Context(), v)), leave: func() {}}
			res, err := l.connect(&http.Response{Body: struct{ net.Conn }{}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.(*cord).Client(&talk{}).(*commandClient).kept()
			return l.held, theirs
		}
		first, theirs := keep()
		for range maxKept - 1 {
			keep()
		}
		for range 2 * maxCallers {
			caller, _ := visit(t, p)
			caller.welcome()
		}
		if !isOpen(theirs) {
			t.Error("it gave way to others")
		}
		_, last := keep()
		if isOpen(theirs) || !isOpen(last) {
			t.Errorf("the first is open: %v, the last: %v", isOpen(theirs), isOpen(last))
		}
		first.release()
		if len(p.kept) != maxKept || len(p.callers) != maxCallers {
			t.Errorf("%d kept, %d callers", len(p.kept), len(p.callers))
		}
	})
}

// TestWhoDoesNothingKeepsNobodyFromAPort has strangers begin HTTP/2, which may
// idle, on more connections than there are places.
func TestWhoDoesNothingKeepsNobodyFromAPort(t *testing.T) {
	v := &reviews{rights: map[right]bool{"apiserver get spoke1/proxy": true, "apiserver get spoke1/metrics": true}}
	f := newFixture(t, v, testDoor{"spoke1": says(http.StatusOK, "figures")})
	var strangers []net.Conn
	for range maxStrangers {
		conn, err := tls.Dial("tcp", f.address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
			t.Fatal(err)
		}
		if err := http2.NewFramer(conn, nil).WriteSettings(); err != nil {
			t.Fatal(err)
		}
		strangers = append(strangers, conn)
	}
	var late atomic.Bool
	waiting := time.AfterFunc(strangerTime/2, func() {
		late.Store(true)
		for _, conn := range strangers {
			_ = conn.Close()
		}
	})
	defer waiting.Stop()
	certificate := f.ca.issue(t, "apiserver", nil)
	if status, body := f.do(http.MethodGet, "/metrics/resource", "", &certificate); status != http.StatusOK {
		t.Errorf("status %d, %q, want 200", status, body)
	}
	if late.Load() {
		t.Error("a caller waited for strangers")
	}
}

func TestAnAuthorizedRequestMakesACaller(t *testing.T) {
	v := &reviews{
		tokens: map[string]string{"good": "prometheus", "powerless": "nobody"},
		rights: map[right]bool{"prometheus get spoke1/metrics": true},
	}
	for name, tc := range map[string]struct {
		reason, token string
		want          int
	}{
		"authorized":    {"it may take time", "good", 1},
		"authenticated": {"every pod has a token", "powerless", 0},
		"neither":       {"a stranger asks too", "bad", 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, v, testDoor{})
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			p := &port{Listener: listener}
			counted := make(chan int, 1) // while the connection lives
			server := f.server.server(t.Context(), "spoke1")
			answer := server.Handler
			server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer.ServeHTTP(w, r)
				p.mu.Lock()
				defer p.mu.Unlock()
				counted <- len(p.callers)
			})
			served := make(chan struct{})
			go func() {
				defer close(served)
				_ = server.ServeTLS(p, "", "")
			}()
			f.address = listener.Addr().String()
			f.do(http.MethodGet, "/metrics/resource", tc.token, nil)
			_ = server.Close()
			<-served
			if callers := <-counted; callers != tc.want {
				t.Errorf("%d callers, want %d: %s", callers, tc.want, tc.reason)
			}
		})
	}
}
