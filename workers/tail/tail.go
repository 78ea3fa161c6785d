// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

var (
	// ErrTooMany is returned by Create when the process or the user has as many tails as it
	// may have. It is worth another attempt when others have ended.
	ErrTooMany = errors.New("there are too many tails")
	// ErrNotFound is returned by Delete when the script has no such tail, or no longer.
	ErrNotFound = errors.New("there is no such tail")
	// ErrClosed is returned by Create after Close.
	ErrClosed = errors.New("the server is being shut down")
)

// Reasons for the end of an open tail; see closeCode.
var (
	errDeleted = errors.New("the tail was deleted")
	errExpired = errors.New("the tail has expired")
	errGone    = errors.New("the client has gone")
)

// Sizes of random values, in bytes.
const (
	idSize     = 16
	secretSize = 32
)

// Script is what a tail is of.
type Script struct {
	// Account that the script belongs to.
	Account string
	// Namespace of the account on the hub.
	Namespace string
	// Name of the script.
	Name string
}

// Tail is one that was created.
type Tail struct {
	// ID names the tail in Delete. It is no secret.
	ID string
	// Path of the WebSocket, as in /tails/<id>/<secret>. Who has it may open the tail, so it
	// is written to no log.
	Path string
	// ExpiresAt is when the tail ends by itself.
	ExpiresAt time.Time
}

// Tails are the tails of a process. Its methods may be called by several goroutines.
type Tails struct {
	config   Config
	hub      *hub
	upgrader websocket.Upgrader

	mu      sync.Mutex
	all     map[string]*session // by id
	closed  bool
	serving sync.WaitGroup // counts up with mu held, and not after closed
}

// A session is a tail from its creation to its end. What changes is guarded by Tails.mu.
type session struct {
	id, secret, user string
	script           Script
	filters          Filters
	expires          time.Time

	unopened *time.Timer             // removes it
	cancel   context.CancelCauseFunc // nil until it is opened
}

// Create makes a tail of the events of a script that match, on behalf of a user. It is there
// until it is deleted or its connection ends, at most for the configured times. The error is
// ErrTooMany or ErrClosed.
func (t *Tails) Create(s Script, user string, f Filters) (Tail, error) {
	created := &session{
		id: hex.EncodeToString(random(idSize)), secret: base64.RawURLEncoding.EncodeToString(random(secretSize)),
		user: user, script: s, filters: f, expires: time.Now().Add(t.config.Lifetime),
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.admit(user); err != nil {
		return Tail{}, err
	}
	t.all[created.id] = created
	created.unopened = time.AfterFunc(t.config.Open, func() { t.removeUnopened(created) })
	return Tail{ID: created.id, Path: pathPrefix + created.id + "/" + created.secret, ExpiresAt: created.expires}, nil
}

func random(size int) []byte {
	b := make([]byte, size)
	rand.Read(b) // never fails
	return b
}

// admit is called with mu held.
func (t *Tails) admit(user string) error {
	if t.closed {
		return ErrClosed
	}
	if len(t.all) >= t.config.MaxTails {
		return fmt.Errorf("%w: the limit is %d", ErrTooMany, t.config.MaxTails)
	}
	own := 0
	for _, s := range t.all {
		if s.user == user {
			own++
		}
	}
	if own >= t.config.MaxPerUser {
		return fmt.Errorf("%w: the limit for a user is %d", ErrTooMany, t.config.MaxPerUser)
	}
	return nil
}

func (t *Tails) removeUnopened(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.cancel == nil {
		delete(t.all, s.id)
	}
}

// Delete ends a tail, and closes its connection with code 1000. The error is ErrNotFound
// unless it is one of that account, namespace and script. It does not wait for the end.
func (t *Tails) Delete(s Script, id string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	found, exists := t.all[id]
	if !exists || found.script != s {
		return ErrNotFound
	}
	t.end(found, errDeleted)
	return nil
}

// end is called with mu held. An open one has ServeHTTP do the rest.
func (t *Tails) end(s *session, why error) {
	s.unopened.Stop()
	delete(t.all, s.id)
	if s.cancel != nil {
		s.cancel(why)
	}
}

// Close ends all tails with code 1012, and waits until nothing is followed any more: up to a
// dozen seconds if a client reads nothing.
func (t *Tails) Close() {
	t.mu.Lock()
	t.closed = true
	for _, s := range t.all {
		t.end(s, ErrClosed)
	}
	t.mu.Unlock()
	t.serving.Wait()
}
