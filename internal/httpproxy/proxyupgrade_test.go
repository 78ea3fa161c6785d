// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package httpproxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spokelet/spokelet/internal/bufpool"
)

// backend is a server that answers one connection by hand.
func backend(t *testing.T, answer func(net.Conn, *http.Request)) (address string, closed <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		answer(c, r)
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String(), done
}

// front serves ProxyUpgrade to the address and returns a connection to it.
func front(t *testing.T, address string) net.Conn {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, out *http.Request) {
		out.URL.Host = address
		if err := ProxyUpgrade(t.Context(), w, out, &http.Transport{DisableKeepAlives: true}, Options{}); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	})
}

// serve serves upgrades, with the request to be sent on, and returns a connection
// to it.
func serve(t *testing.T, answer func(http.ResponseWriter, *http.Request)) net.Conn {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := r.Clone(r.Context())
		out.RequestURI = ""
		out.URL = &url.URL{Scheme: "http", Path: r.URL.Path}
		SetUpgrade(out.Header, r.Header.Get("Upgrade"))
		answer(w, out)
	}))
	t.Cleanup(s.Close)
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

const ask = "GET /exec HTTP/1.1\r\nHost: kube\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"

func TestProxyUpgradeCarriesBytesBothWays(t *testing.T) {
	address, _ := backend(t, func(c net.Conn, _ *http.Request) {
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello ")
		_, _ = io.CopyN(c, c, 5)
	})
	c := front(t, address)
	_, _ = io.WriteString(c, ask)
	br := bufio.NewReader(c)
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Upgrade") != "echo" {
		t.Fatalf("response = %v, %v", res, err)
	}
	_, _ = io.WriteString(c, "world")
	got, err := io.ReadAll(br)
	if err != nil || string(got) != "hello world" {
		t.Errorf("read %q, %v; want the greeting, the echo and a clean end", got, err)
	}
}

func TestProxyUpgradeForwardsEarlyBytes(t *testing.T) {
	address, _ := backend(t, func(c net.Conn, _ *http.Request) {
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.CopyN(c, c, 5)
	})
	c := front(t, address)
	_, _ = io.WriteString(c, ask+"early")
	br := bufio.NewReader(c)
	if _, err := http.ReadResponse(br, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(br); err != nil || string(got) != "early" {
		t.Errorf("read %q, %v; want what was sent early", got, err)
	}
}

func TestProxyUpgradeReturnsBeforeTheEnd(t *testing.T) {
	cases := map[string]struct {
		reason, answer string
		switched       bool
	}{
		"switched": {"a stream may last for hours", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", true},
		"refused":  {"nothing goes on", "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", false},
		"garbage":  {"nothing goes on", "SSH-2.0-x\r\n\r\n", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			address, _ := backend(t, func(c net.Conn, _ *http.Request) {
				_, _ = io.WriteString(c, tc.answer)
				_, _ = io.Copy(c, c)
			})
			life, end := context.WithCancel(t.Context())
			defer end()
			returned, ended := make(chan struct{}), make(chan struct{}, 2)
			c := serve(t, func(w http.ResponseWriter, out *http.Request) {
				defer close(returned)
				out.URL.Host = address
				_ = ProxyUpgrade(life, w, out, &http.Transport{DisableKeepAlives: true}, Options{OnEnd: func(error) { ended <- struct{}{} }})
			})
			_, _ = io.WriteString(c, ask)
			<-returned
			if tc.switched {
				br := bufio.NewReader(c)
				if _, err := http.ReadResponse(br, nil); err != nil {
					t.Fatal(err)
				}
				_, _ = io.WriteString(c, "hello\n")
				if got, err := br.ReadString('\n'); got != "hello\n" || err != nil || len(ended) > 0 {
					t.Errorf("%s: read %q, %v, ended %d times", tc.reason, got, err, len(ended))
				}
				end()
			}
			<-ended
			if tc.switched {
				if rest, err := io.ReadAll(c); len(rest) > 0 {
					t.Errorf("%s: then read %q, %v", tc.reason, rest, err)
				}
			}
			if len(ended) > 0 {
				t.Errorf("%s: it was told twice", tc.reason)
			}
		})
	}
}

// TestProxyUpgradeClosesConnectionAfterFailedUpgrade is CVE-2018-1002105: the request that
// follows a failed upgrade on the connection must go nowhere.
func TestProxyUpgradeClosesConnectionAfterFailedUpgrade(t *testing.T) {
	const second = "GET /secret HTTP/1.1\r\nHost: kube\r\n\r\n"
	cases := map[string]struct {
		reason string
		answer string
		code   int
	}{
		"403":                {reason: "a refusal is passed on", answer: "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", code: 403},
		"200":                {reason: "an answer is no upgrade", answer: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", code: 200},
		"empty 200":          {reason: "an answer without body is no upgrade", answer: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", code: 200},
		"200 and keep-alive": {reason: "the backend's wish does not count", answer: "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nKeep-Alive: 5\r\nContent-Length: 2\r\n\r\nok", code: 200},
		"two answers":        {reason: "the second answers nothing", answer: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret", code: 200},
		"other protocol":     {reason: "nobody asked for it", answer: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nsecret", code: 502},
		"no protocol":        {reason: "nobody knows what follows", answer: "HTTP/1.1 101 Switching Protocols\r\n\r\nsecret", code: 502},
		"garbage":            {reason: "it is no answer", answer: "SSH-2.0-x\r\n\r\n", code: 502},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var rest []byte
			address, closed := backend(t, func(c net.Conn, _ *http.Request) {
				_, _ = io.WriteString(c, tc.answer)
				rest, _ = io.ReadAll(c)
			})
			c := front(t, address)
			_, _ = io.WriteString(c, ask+second)
			br := bufio.NewReader(c)
			res, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			body, _ := io.ReadAll(res.Body)
			if res.StatusCode != tc.code || strings.Contains(string(body), "secret") {
				t.Errorf("%s: answered %d %q, want %d", tc.reason, res.StatusCode, body, tc.code)
			}
			<-closed // the backend's connection has ended
			if strings.Contains(string(rest), "secret") {
				t.Errorf("%s: the backend got a second request: %q", tc.reason, rest)
			}
			if tc.code != http.StatusBadGateway && !res.Close {
				t.Errorf("%s: the client's connection stays open", tc.reason)
			}
		})
	}
}

func TestProxyUpgradeBoundsRefusal(t *testing.T) {
	address, _ := backend(t, func(c net.Conn, _ *http.Request) {
		_, _ = io.WriteString(c, "HTTP/1.1 403 Forbidden\r\n\r\n")
		for range 3 << 8 {
			if _, err := c.Write(make([]byte, 4<<10)); err != nil {
				return
			}
		}
	})
	c := front(t, address)
	_, _ = io.WriteString(c, ask)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, res.Body)
	if err == nil || n > maxRefusal {
		t.Errorf("read %d bytes, %v; want at most %d and an error", n, err, maxRefusal)
	}
}

// pipeEnd is one end of a byte stream that can be aborted.
type pipeEnd struct {
	net.Conn
	aborted bool
}

func (p *pipeEnd) Abort(error) { p.aborted = true; _ = p.Close() }

// failing ends with an error instead of io.EOF.
type failing struct{ net.Conn }

func (f failing) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// await begins a splice, waits for its end and returns what cut it.
func await(ctx context.Context, client, backend io.ReadWriteCloser) error {
	ended := make(chan error, 1)
	(&splice{client: client, backend: backend}).start(ctx, backend, func(cause error) { ended <- cause })
	return <-ended
}

func TestSpliceAbortsClientWhenBackendFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, clientFar := net.Pipe()
		backend, backendFar := net.Pipe()
		near := &pipeEnd{Conn: client}
		done := make(chan error, 1)
		go func() { done <- await(t.Context(), near, failing{backend}) }()
		_ = backendFar.Close()
		if cause := <-done; !near.aborted || !errors.Is(cause, io.ErrUnexpectedEOF) {
			t.Errorf("aborted %t, because of %v: a cut on one side was a clean end on the other", near.aborted, cause)
		}
		_ = clientFar.Close()
	})
}

func TestSpliceEndsCleanly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, clientFar := net.Pipe()
		backend, backendFar := net.Pipe()
		near := &pipeEnd{Conn: client}
		done := make(chan error, 1)
		go func() { done <- await(t.Context(), near, backend) }()
		go func() { _, _ = io.WriteString(backendFar, "bye"); _ = backendFar.Close() }()
		got, err := io.ReadAll(clientFar)
		if cause := <-done; string(got) != "bye" || err != nil || near.aborted || cause != nil {
			t.Errorf("read %q, %v, aborted %v because of %v; want a clean end", got, err, near.aborted, cause)
		}
	})
}

func TestSpliceEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, clientFar := net.Pipe()
		backend, backendFar := net.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		near := &pipeEnd{Conn: client}
		done := make(chan struct{})
		go func() { defer close(done); _ = await(ctx, near, backend) }()
		synctest.Wait()
		cancel()
		<-done
		if !near.aborted {
			t.Error("a cancelled stream ended cleanly")
		}
		_, _ = clientFar.Close(), backendFar.Close()
	})
}

// halfClosing is a client that can be told of an end and goes on sending.
type halfClosing struct{ pipeEnd }

func (h *halfClosing) CloseWrite() error { return nil }

func TestSpliceClosesClientThatLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, clientFar := net.Pipe()
		backend, backendFar := net.Pipe()
		near := &halfClosing{pipeEnd{Conn: client}}
		start, done := time.Now(), make(chan struct{})
		go func() { defer close(done); _ = await(t.Context(), near, backend) }()
		_ = backendFar.Close()
		<-done
		if waited := time.Since(start); waited != linger || near.aborted {
			t.Errorf("ended after %v, aborted %v; want a clean end after %v", waited, near.aborted, linger)
		}
		_ = clientFar.Close()
	})
}

// parting is a backend that has a word for the client when it is aborted.
type parting struct {
	pipeEnd
	said bool
}

func (p *parting) Read(b []byte) (int, error) {
	n, err := p.pipeEnd.Read(b)
	switch {
	case err == nil:
		return n, nil
	case p.said:
		return 0, io.EOF
	default:
		p.said = true
		return copy(b, "bye"), nil
	}
}

func TestSpliceDeliversLastBytesOfCutBackend(t *testing.T) {
	cases := map[string]struct {
		reason  string
		reads   bool
		aborted bool
		after   time.Duration
	}{
		"a client that reads":    {"a reset would destroy the word on its way", true, false, 0},
		"a client that does not": {"who reads nothing holds up no end", false, true, linger},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, clientFar := net.Pipe()
				backend, backendFar := net.Pipe()
				near := &halfClosing{pipeEnd{Conn: client}}
				life, cut := context.WithCancel(t.Context())
				start, done := time.Now(), make(chan struct{})
				go func() { defer close(done); _ = await(life, near, &parting{pipeEnd: pipeEnd{Conn: backend}}) }()
				synctest.Wait()
				cut()
				if tc.reads {
					said := make([]byte, 3)
					if _, err := io.ReadFull(clientFar, said); err != nil || string(said) != "bye" {
						t.Errorf("reason: %s: read %q, %v", tc.reason, said, err)
					}
					_ = clientFar.Close()
				}
				<-done
				if waited := time.Since(start); near.aborted != tc.aborted || waited != tc.after {
					t.Errorf("reason: %s: aborted %v after %v, want %v after %v", tc.reason, near.aborted, waited, tc.aborted, tc.after)
				}
				_, _ = clientFar.Close(), backendFar.Close()
			})
		})
	}
}

// deaf is a backend that takes nothing.
type deaf struct{ net.Conn }

func (deaf) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestSpliceDrainsClientWhenBackendTakesNoMore: a connection that is closed with
// something unread is reset, and what the backend said last destroyed.
func TestSpliceDrainsClientWhenBackendTakesNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, clientFar := net.Pipe()
		backend, backendFar := net.Pipe()
		near := &halfClosing{pipeEnd{Conn: client}}
		done := make(chan error, 1)
		go func() { done <- await(t.Context(), near, deaf{backend}) }()
		for range 3 {
			if _, err := io.WriteString(clientFar, "more"); err != nil {
				t.Errorf("the client is not heard: %v", err)
			}
		}
		go func() { _, _ = io.WriteString(backendFar, "bye"); _ = backendFar.Close() }()
		said := make([]byte, 3)
		if _, err := io.ReadFull(clientFar, said); string(said) != "bye" || err != nil {
			t.Errorf("read %q, %v", said, err)
		}
		if _, err := io.WriteString(clientFar, "last"); err != nil {
			t.Errorf("the client is not heard behind the end: %v", err)
		}
		_ = clientFar.Close()
		if cause := <-done; cause != nil || near.aborted {
			t.Errorf("aborted %v, because of %v", near.aborted, cause)
		}
	})
}

// feeding is a stream that reads by itself what it sends.
type feeding struct {
	pipeEnd
	ended chan func(error)
}

func (f *feeding) Feed(_ interface {
	io.Reader
	SetReadDeadline(t time.Time) error
}, ended func(error),
) {
	f.ended <- ended
}

func TestSpliceWaitsForFedBackend(t *testing.T) {
	errSource := errors.New("boom")
	cases := map[string]struct {
		reason  string
		err     error // with which feeding ends
		aborted bool
	}{
		"an end":       {"the backend's last bytes say how it went", nil, false},
		"an error":     {"it is passed on at once", errSource, true},
		"the receiver": {"the backend's last bytes say how it went", bufpool.ErrWrite, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, clientFar := net.Pipe()
				near, far := net.Pipe()
				backend := &feeding{pipeEnd: pipeEnd{Conn: near}, ended: make(chan func(error), 1)}
				done := make(chan struct{})
				go func() {
					defer close(done)
					_ = await(t.Context(), client, &sessionConn{ReadWriteCloser: backend, stream: backend})
				}()
				(<-backend.ended)(tc.err)
				synctest.Wait()
				if backend.aborted != tc.aborted {
					t.Errorf("%s: aborted %v", tc.reason, backend.aborted)
				}
				if !tc.aborted {
					go func() { _, _ = io.WriteString(far, "bye"); _ = far.Close() }()
					if got, err := io.ReadAll(clientFar); string(got) != "bye" || err != nil {
						t.Errorf("%s: read %q, %v", tc.reason, got, err)
					}
				}
				<-done
				_, _ = clientFar.Close(), far.Close()
			})
		})
	}
}
