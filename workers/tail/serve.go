// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// Subprotocol of the WebSocket, which wrangler demands.
const Subprotocol = "trace-v1"

const (
	pathPrefix = "/tails/"
	// readBuffer and writeBuffer of a connection. Events are larger than the second; the
	// library then sends a message in several frames, which wrangler puts together.
	readBuffer  = 1 << 10
	writeBuffer = 16 << 10
	// maxMessage bounds what a client sends. wrangler sends {"debug":false} and pings.
	maxMessage = 1 << 10
	// pingTimeout is how long a client may be silent. wrangler pings every 10 s.
	pingTimeout = time.Minute
	// writeTimeout bounds the writing of one message.
	writeTimeout = 10 * time.Second
	// closeTimeout is how long the client may take to answer a close frame.
	closeTimeout = 2 * time.Second
)

// ServeHTTP opens a tail: GET /tails/<id>/<secret> with an upgrade to a WebSocket of
// subprotocol trace-v1, by HTTP/1.1. It returns when the tail has ended. The answer is 404 for
// a path without a tail that can be opened, and 400 or 426 for another kind of request, which
// does not affect the tail. Error bodies are {"error":"<text>"}.
func (t *Tails) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	found := t.findSession(r)
	if found == nil {
		writeError(w, http.StatusNotFound, ErrNotFound.Error())
		return
	}
	if !websocket.IsWebSocketUpgrade(r) {
		w.Header().Set("Upgrade", "websocket")
		writeError(w, http.StatusUpgradeRequired, "the request is no upgrade to a WebSocket")
		return
	}
	if !slices.Contains(websocket.Subprotocols(r), Subprotocol) {
		writeError(w, http.StatusBadRequest, "the subprotocol is not "+Subprotocol)
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	if !t.openSession(found, cancel) {
		writeError(w, http.StatusNotFound, ErrNotFound.Error())
		return
	}
	defer t.removeSession(found)
	conn, err := t.upgrader.Upgrade(&firstFrameWriter{ResponseWriter: w}, r, nil)
	if err != nil {
		return // it was answered, as far as it could be
	}
	t.serve(ctx, cancel, found, conn)
}

// writeError writes an error.
func writeError(w http.ResponseWriter, status int, text string) {
	body, err := json.Marshal(map[string]string{"error": text})
	if err != nil {
		body = []byte("{}")
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write(body) //nolint:errcheck // the client may have gone
}

// findSession returns the tail of a request's path, or nil.
func (t *Tails) findSession(r *http.Request) *session {
	rest, ours := strings.CutPrefix(r.URL.Path, pathPrefix)
	id, secret, complete := strings.Cut(rest, "/")
	if !ours || !complete || r.Method != http.MethodGet {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	found, exists := t.all[id]
	if !exists || subtle.ConstantTimeCompare([]byte(secret), []byte(found.secret)) != 1 {
		return nil
	}
	return found
}

// openSession assigns a tail to one connection. It returns false if the tail has a connection
// already, or has ended.
func (t *Tails) openSession(s *session, cancel context.CancelCauseFunc) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.all[s.id] != s || s.cancel != nil {
		return false
	}
	s.openTimer.Stop()
	s.cancel = cancel
	t.serving.Add(1)
	return true
}

func (t *Tails) removeSession(s *session) {
	t.mu.Lock()
	delete(t.all, s.id)
	t.mu.Unlock()
	t.serving.Done()
}

// serve sends events until the tail ends, then closes the connection and waits for its goroutines.
func (t *Tails) serve(ctx context.Context, cancel context.CancelCauseFunc, s *session, conn *websocket.Conn) {
	ctx, expire := context.WithDeadlineCause(ctx, s.expires, errExpired)
	defer expire()
	var started sync.WaitGroup
	started.Go(func() { cancel(readUntilGone(conn)) })

	following, stop := context.WithCancel(ctx)
	waiting := t.frames.Account(s.script.Account)
	defer waiting.Close()
	q := newQueue(s.script.Name, waiting)
	f := &follower{tails: t, id: s.id, script: s.script, filters: s.filters, queue: q}
	started.Go(func() { f.run(following) })

	if err := writeEvents(ctx, conn, q); err != nil {
		cancel(errGone)
	}
	stop()
	wait := sendClose(conn, context.Cause(ctx))
	// Closing the connection at once could discard the close frame on its way. The reader
	// ends when the client answered it.
	force := time.AfterFunc(wait, func() { conn.Close() }) //nolint:errcheck // nothing is lost that could be saved
	started.Wait()
	force.Stop()
	conn.Close() //nolint:errcheck // as above
}

// readUntilGone reads until the client disconnects, or is silent for too long. Messages only prove
// that the client is alive.
func readUntilGone(conn *websocket.Conn) error {
	alive := func() error { return conn.SetReadDeadline(time.Now().Add(pingTimeout)) }
	conn.SetReadLimit(maxMessage)
	conn.SetPingHandler(func(data string) error {
		// A pong that does not get through is no failure yet: the next event's write says so.
		conn.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(writeTimeout)) //nolint:errcheck // as said
		return alive()
	})
	if err := alive(); err != nil {
		return errGone
	}
	for {
		_, message, err := conn.NextReader()
		if err != nil {
			return errGone
		}
		if _, err := io.Copy(io.Discard, message); err != nil {
			return errGone
		}
	}
}

// writeEvents sends queued events until ctx ends or a write fails.
func writeEvents(ctx context.Context, conn *websocket.Conn, q *queue) error {
	for {
		frame := q.pop(ctx)
		if frame == nil {
			return nil
		}
		if err := conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return err
		}
		if err := conn.WriteMessage(websocket.TextMessage, frame); err != nil {
			return err
		}
	}
}

// sendClose sends a close frame. It returns how long the client may take to answer.
func sendClose(conn *websocket.Conn, why error) time.Duration {
	if errors.Is(why, errGone) {
		return 0
	}
	code, text := closeCode(why)
	message := websocket.FormatCloseMessage(code, text)
	if conn.WriteControl(websocket.CloseMessage, message, time.Now().Add(closeTimeout)) != nil {
		return 0
	}
	return closeTimeout
}

// closeCode returns what the connection is closed with: wrangler makes a new tail unless the
// code is 1000.
func closeCode(why error) (int, string) {
	switch {
	case errors.Is(why, errDeleted):
		return websocket.CloseNormalClosure, errDeleted.Error()
	case errors.Is(why, errExpired):
		return websocket.CloseTryAgainLater, errExpired.Error()
	default:
		return websocket.CloseServiceRestart, ErrClosed.Error()
	}
}
