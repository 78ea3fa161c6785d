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

	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/workers/spoke"
)

var (
	// ErrTooMany is returned by Create when the account, the user, the token or the process has
	// as many tails as it may have. It is worth another attempt when others have ended.
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

// Holder is the owner of a tail.
type Holder struct {
	// User is the name on the hub.
	User string
	// Token says by which of the user's tokens he asks. Empty if that is not known.
	Token string
}

// Tail describes a created tail.
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
	clusters *spoke.Client
	slots    *followSlots
	frames   *quota.Memory // of events that wait for clients
	upgrader websocket.Upgrader

	mu      sync.Mutex
	all     map[string]*session // by id
	closed  bool
	serving sync.WaitGroup // counts up with mu held, and not after closed
}

// A session is a tail from its creation to its end. What changes is guarded by Tails.mu.
type session struct {
	id, secret string
	holder     Holder
	script     Script
	filters    Filters
	expires    time.Time

	openTimer *time.Timer             // removes it
	cancel    context.CancelCauseFunc // nil until it is opened
}

// Create creates a tail of the matching events of a script for a holder. It exists until it is
// deleted, its connection ends or its time is over. The error is ErrTooMany or ErrClosed.
func (t *Tails) Create(s Script, by Holder, f Filters) (Tail, error) {
	created := &session{
		id: hex.EncodeToString(randomBytes(idSize)), secret: base64.RawURLEncoding.EncodeToString(randomBytes(secretSize)),
		holder: by, script: s, filters: f, expires: time.Now().Add(t.config.Lifetime),
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.checkLimits(created); err != nil {
		return Tail{}, err
	}
	t.all[created.id] = created
	created.openTimer = time.AfterFunc(t.config.OpenTimeout, func() { t.removeUnopened(created) })
	return Tail{ID: created.id, Path: pathPrefix + created.id + "/" + created.secret, ExpiresAt: created.expires}, nil
}

func randomBytes(size int) []byte {
	b := make([]byte, size)
	rand.Read(b) // never fails
	return b
}

// checkLimits is called with mu held. An account is bounded first, so that one whose users are many
// leaves tails to others: whoever may make service accounts has as many users as he likes.
func (t *Tails) checkLimits(s *session) error {
	if t.closed {
		return ErrClosed
	}
	var account, user, token int
	for _, other := range t.all {
		account += boolToInt(other.script.Account == s.script.Account)
		user += boolToInt(other.holder.User == s.holder.User)
		token += boolToInt(s.holder.Token != "" && other.holder == s.holder)
	}
	for _, limit := range []struct {
		have, most int
		of         string
	}{
		{account, t.config.MaxPerAccount, "an account"},
		{user, t.config.MaxPerUser, "a user"},
		{token, t.config.MaxPerToken, "a token"},
		{len(t.all), t.config.MaxTails, "all accounts"},
	} {
		if limit.have >= limit.most {
			return fmt.Errorf("%w: the limit of %s is %d", ErrTooMany, limit.of, limit.most)
		}
	}
	return nil
}

func boolToInt(is bool) int {
	if is {
		return 1
	}
	return 0
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
	t.endSession(found, errDeleted)
	return nil
}

// endSession is called with mu held. An open one has ServeHTTP do the rest.
func (t *Tails) endSession(s *session, why error) {
	s.openTimer.Stop()
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
		t.endSession(s, ErrClosed)
	}
	t.mu.Unlock()
	t.serving.Wait()
	t.clusters.Close()
}
