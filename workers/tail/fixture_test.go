// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
)

var (
	hello = Script{Account: "1234", Namespace: "team-a", Name: "hello"}
	jane  = Holder{User: "jane", Token: "a"}
)

// A world is a hub, the tails of a process and a server that serves them, in a bubble.
type world struct {
	*testing.T

	hub   *fakeHub
	tails *Tails
	pipes *pipes
	http  *http.Client
}

// inWorld runs a test with an account that is placed on the clusters. At the end nothing may
// run any more, which synctest checks.
func inWorld(t *testing.T, clusters []string, test func(w *world)) {
	t.Helper()
	inWorldWith(t, Config{}, clusters, test)
}

func inWorldWith(t *testing.T, c Config, clusters []string, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, hub: newFakeHub(), pipes: newPipes()}
		w.hub.place(clusters...)
		c.Kube = w.hub.config()
		var err error
		if w.tails, err = New(c); err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{DialContext: w.pipes.dial}
		w.http = &http.Client{Transport: transport}
		server := &httptest.Server{Listener: w.pipes, Config: &http.Server{Handler: w.tails}}
		server.Start()
		defer w.hub.server.Close()
		defer server.Close()
		defer transport.CloseIdleConnections()
		defer w.tails.Close()
		test(w)
	})
}

// create makes a tail of the script hello.
func (w *world) create(f Filters) Tail {
	w.Helper()
	tail, err := w.tails.Create(hello, jane, f)
	if err != nil {
		w.Fatal(err)
	}
	return tail
}

// get asks for a path without an upgrade.
func (w *world) get(path string) (int, string) {
	w.Helper()
	res, err := w.http.Get("http://tails.example" + path)
	if err != nil {
		w.Fatal(err)
	}
	defer res.Body.Close()
	var body struct {
		Error string `json:"error"`
	}
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
		w.Errorf("the body of %d is no JSON: %v", res.StatusCode, err)
	}
	return res.StatusCode, body.Error
}

// A reader is the client of a tail. It reads one message ahead of the test.
type reader struct {
	*world

	conn     *websocket.Conn
	raw      net.Conn
	messages chan message
	pongs    chan string
	done     chan struct{}

	stopPings func()
}

type message struct {
	kind int
	data []byte
	err  error
}

// dial opens a tail. The response is of a refusal.
func (w *world) dial(path string) (*reader, *http.Response) {
	w.Helper()
	d := websocket.Dialer{NetDialContext: w.pipes.dial, Subprotocols: []string{Subprotocol}}
	conn, res, err := d.DialContext(w.Context(), "ws://tails.example"+path, nil)
	if err != nil {
		if !errors.Is(err, websocket.ErrBadHandshake) {
			w.Fatal(err)
		}
		return nil, res
	}
	if conn.Subprotocol() != Subprotocol {
		w.Fatalf("the subprotocol is %q", conn.Subprotocol())
	}
	r := &reader{world: w, conn: conn, raw: conn.NetConn(), messages: make(chan message), pongs: make(chan string, 1), done: make(chan struct{})}
	conn.SetPongHandler(func(data string) error {
		select {
		case r.pongs <- data:
		default:
		}
		return nil
	})
	go r.read()
	r.stopPings = r.ping()
	return r, nil
}

func (r *reader) read() {
	for {
		var m message
		m.kind, m.data, m.err = r.conn.ReadMessage()
		select {
		case r.messages <- m:
		case <-r.done:
			return
		}
		if m.err != nil {
			return
		}
	}
}

// leave closes the connection as a process that ends.
func (r *reader) leave() {
	close(r.done)
	r.stopPings()
	r.conn.Close()
}

// open makes a tail, opens it and waits until all is followed.
func (w *world) open(f Filters) (*reader, Tail) {
	w.Helper()
	tail := w.create(f)
	r, res := w.dial(tail.Path)
	if r == nil {
		w.Fatalf("the tail was not opened: %s", res.Status)
	}
	synctest.Wait()
	return r, tail
}

// event reads one event and returns the texts of its logs.
func (r *reader) event() string {
	r.Helper()
	select {
	case m := <-r.messages:
		if m.err != nil {
			r.Fatalf("no event came: %v", m.err)
		}
		return r.parse(m.kind, m.data)
	case <-time.After(time.Hour):
		r.Fatal("no event came")
		return ""
	}
}

func (r *reader) parse(kind int, message []byte) string {
	r.Helper()
	var e struct {
		ScriptName string `json:"scriptName"`
		Logs       []struct {
			Message []string `json:"message"`
		} `json:"logs"`
		Exceptions []json.RawMessage `json:"exceptions"`
	}
	if err := json.Unmarshal(message, &e); err != nil || kind != websocket.TextMessage {
		r.Fatalf("%s (kind %d) is no event: %v", message, kind, err)
	}
	if e.ScriptName != "hello" || e.Logs == nil || e.Exceptions == nil {
		r.Errorf("%s is no event as wrangler needs it", message)
	}
	texts := []string{}
	for _, l := range e.Logs {
		texts = append(texts, l.Message...)
	}
	return strings.Join(texts, " ")
}

// expectEvent reads events, which have to be these.
func (r *reader) expectEvent(texts ...string) {
	r.Helper()
	for _, want := range texts {
		if diff := cmp.Diff(want, r.event()); diff != "" {
			r.Errorf("event (-want +got):\n%s", diff)
		}
	}
}

// expectNothing waits for a while, in which no event may come.
func (r *reader) expectNothing(d time.Duration) {
	r.Helper()
	select {
	case m := <-r.messages:
		r.Errorf("something came: %s %v", m.data, m.err)
	case <-time.After(d):
	}
}

// expectClose waits until the connection is closed, and returns the code.
func (r *reader) expectClose() int {
	r.Helper()
	defer r.leave()
	select {
	case m := <-r.messages:
		if end := (*websocket.CloseError)(nil); errors.As(m.err, &end) {
			return end.Code
		}
		r.Errorf("this came, and no close frame: %s %v", m.data, m.err)
	case <-time.After(time.Hour):
		r.Error("the connection was not closed")
	}
	return 0
}

// ping has the client send pings, as wrangler does, until stop is called.
func (r *reader) ping() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(10 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if r.conn.WriteControl(websocket.PingMessage, []byte("wrangler tail ping"), time.Now().Add(time.Second)) != nil {
					return
				}
			case <-done:
				return
			}
		}
	}()
	return sync.OnceFunc(func() { close(done); <-ended })
}
