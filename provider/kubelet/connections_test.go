// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/spokelet/spokelet/internal/connlimit"
)

// TestWhoDoesNothingKeepsNobodyFromAPort has strangers begin HTTP/2, which may
// idle, on more connections than there are places.
func TestWhoDoesNothingKeepsNobodyFromAPort(t *testing.T) {
	v := &reviews{rights: map[right]bool{"apiserver get spoke1/proxy": true, "apiserver get spoke1/metrics": true}}
	f := newFixture(t, v, testDoor{"spoke1": says(http.StatusOK, "figures")})
	var strangers []net.Conn
	for range connectionLimits().Unauthorized {
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
	waiting := time.AfterFunc(connectionLimits().UnauthorizedTimeout/2, func() {
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

// TestAnAuthorizedRequestMakesACaller has another stranger come where there is one place for
// such.
func TestAnAuthorizedRequestMakesACaller(t *testing.T) {
	v := &reviews{
		tokens: map[string]string{"good": "prometheus", "powerless": "nobody"},
		rights: map[right]bool{"prometheus get spoke1/metrics": true},
	}
	for name, tc := range map[string]struct {
		reason, token string
		want          bool
	}{
		"authorized":    {"it may take time", "good", true},
		"authenticated": {"every pod has a token", "powerless", false},
		"neither":       {"a stranger asks too", "bad", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, v, testDoor{})
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			f.address = listener.Addr().String()
			stays := make(chan bool, 1)
			server := f.server.newNodeServer(t.Context(), "spoke1")
			answer := server.Handler
			server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer.ServeHTTP(w, r)
				stranger, err := net.Dial("tcp", f.address)
				if err != nil {
					t.Error(err)
				} else {
					t.Cleanup(func() { _ = stranger.Close() })
				}
				select {
				case <-r.Context().Done():
					stays <- false
				case <-time.After(200 * time.Millisecond):
					stays <- true
				}
			})
			served := make(chan struct{})
			go func() {
				defer close(served)
				_ = server.ServeTLS(connlimit.New(listener, connlimit.Limits{Unauthorized: 1, Idle: 1, UnauthorizedTimeout: time.Minute}), "", "")
			}()
			conn, err := tls.Dial("tcp", f.address, &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			if _, err := fmt.Fprintf(conn, "GET /metrics/resource HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer %s\r\n\r\n", tc.token); err != nil {
				t.Fatal(err)
			}
			got := <-stays
			_ = server.Close()
			<-served
			if got != tc.want {
				t.Errorf("the connection stays: %v, want %v: %s", got, tc.want, tc.reason)
			}
		})
	}
}
