// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/spokelet/spokelet/internal/testing/testscale"
	"github.com/spokelet/spokelet/tunnel"
)

// lorises are ways to keep a connection of the public port busy with next to
// nothing: each begins something and returns how it would go on.
var lorises = map[string]func(net.Conn) (io.Writer, string, error){
	"silence": func(c net.Conn) (io.Writer, string, error) { return c, "", nil },
	"a ClientHello in single bytes": func(c net.Conn) (io.Writer, string, error) {
		return c, "\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03", nil
	},
	"TLS and then nothing": func(c net.Conn) (io.Writer, string, error) {
		conn, err := handshake(c)
		return conn, "", err
	},
	"half of HTTP/2's preface": func(c net.Conn) (io.Writer, string, error) {
		conn, err := handshake(c)
		return conn, http2.ClientPreface[:12], err
	},
	"a header without an end": func(c net.Conn) (io.Writer, string, error) {
		conn, err := handshake(c)
		if err != nil {
			return nil, "", err
		}
		_, err = conn.Write([]byte(http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x40\x00\x01\x00\x00\x00\x00\x01"))
		return conn, "\x82\x86\x84\x41\x8a", err
	},
}

func handshake(c net.Conn) (*tls.Conn, error) {
	conn := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	return conn, conn.Handshake()
}

// TestSlowConnectionsDelayNoAgent opens a thousand connections that say next to
// nothing, from several addresses. The port ends each of them, and a session
// that lives and an agent that connects do not notice.
func TestSlowConnectionsDelayNoAgent(t *testing.T) {
	lifetime := time.Duration(testscale.Of(1, 4)) * time.Second
	hub, address := listen(t, func(c *tunnel.ServerConfig) {
		c.Limits = tunnel.Limits{HandshakeTimeout: lifetime / 2, AnonymousLifetime: lifetime}
	})
	runOver(t, hub, address, "spoke1", kube(echo))
	session := hub.Session(t, "spoke1")
	connections := testscale.Of(200, 1000)
	var slow sync.WaitGroup
	var ended atomic.Int32
	began := time.Now()
	for kind, begin := range lorises {
		for i := range connections / len(lorises) {
			slow.Go(func() {
				if err := crawl(address, i, begin); err != nil {
					t.Errorf("%s: %v", kind, err)
					return
				}
				ended.Add(1)
			})
		}
	}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		slow.Wait()
	}()
	runOver(t, hub, address, "spoke2", kube(echo))
	asked := 0
	for waiting := true; waiting; asked++ {
		readEcho(t, session)
		select {
		case <-finished:
			waiting = false
		default:
		}
	}
	t.Logf("%d connections ended within %v, %d requests answered meanwhile", ended.Load(), time.Since(began), asked)
	hub.Session(t, "spoke2")
}

// crawl says its few bytes one by one and then waits until the port ends the
// connection, for no longer than the 10 s that headers may take.
func crawl(address string, i int, begin func(net.Conn) (io.Writer, string, error)) error {
	from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%4))}
	raw, err := (&net.Dialer{LocalAddr: from}).Dial("tcp", address)
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	defer raw.Close()
	if err := raw.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	to, text, err := begin(raw)
	if err == nil {
		for _, b := range []byte(text) {
			if _, err = to.Write([]byte{b}); err != nil {
				break
			}
		}
	}
	if err == nil {
		_, err = io.Copy(io.Discard, raw)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("the port holds the connection")
	}
	return nil
}

func readEcho(t *testing.T, session *tunnel.Session) {
	t.Helper()
	resp, err := client(session).Get("http://kube/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
}
