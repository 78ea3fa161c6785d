// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"
)

// unmasked is a text frame of a client that masks nothing.
func unmasked(text string) []byte { return append([]byte{0x81, byte(len(text))}, text...) }

func TestFirstMessageMayBeUnmasked(t *testing.T) {
	cases := map[string]struct {
		send   func(r *reader) error
		reason string
	}{
		"unmasked": {
			send:   func(r *reader) error { _, err := r.raw.Write(unmasked(`{"debug":false}`)); return err },
			reason: "wrangler's is",
		},
		"unmasked, byte by byte": {
			send: func(r *reader) error {
				for _, b := range unmasked(`{"debug":false}`) {
					if _, err := r.raw.Write([]byte{b}); err != nil {
						return err
					}
				}
				return nil
			},
			reason: "a network may do that",
		},
		"masked": {
			send:   func(r *reader) error { return r.conn.WriteMessage(websocket.TextMessage, []byte(`{"debug":false}`)) },
			reason: "RFC 6455 demands it, and a later wrangler may heed it",
		},
		"none": {
			send:   func(*reader) error { return nil },
			reason: "another client sends nothing",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, []string{"spoke1"}, func(w *world) {
				p := w.hub.start("spoke1", "a", "1")
				r, _ := w.open(Filters{})
				if err := tc.send(r); err != nil {
					w.Fatalf("%s: %v", tc.reason, err)
				}
				r.expectNothing(2 * time.Minute) // pings are read behind it, or it would be closed
				w.hub.call(p, "hello", "still there")
				r.expectEvent("still there")
				r.leave()
			})
		})
	}
}

func TestLaterUnmaskedMessageIsRefused(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		r, _ := w.open(Filters{})
		r.raw.Write(unmasked(`{"debug":false}`))
		go r.raw.Write(unmasked(`{"debug":false}`))
		if code := r.expectClose(); code != websocket.CloseProtocolError {
			w.Errorf("the connection was closed with %d", code)
		}
	})
}

func TestPingIsAnswered(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		r, _ := w.open(Filters{})
		if err := r.conn.WriteControl(websocket.PingMessage, []byte("wrangler tail ping"), time.Now().Add(time.Second)); err != nil {
			w.Fatal(err)
		}
		if data := <-r.pongs; data != "wrangler tail ping" {
			w.Errorf("the pong says %q, and wrangler waits for what it sent", data)
		}
		r.leave()
	})
}

func TestCloseCodes(t *testing.T) {
	cases := map[string]struct {
		end    func(w *world, tail Tail)
		want   int
		reason string
	}{
		"deleted": {
			end: func(w *world, tail Tail) {
				if err := w.tails.Delete(hello, tail.ID); err != nil {
					w.Error(err)
				}
			},
			want: websocket.CloseNormalClosure, reason: "wrangler ends then",
		},
		"the server ends": {
			end:  func(w *world, _ Tail) { go w.tails.Close() },
			want: websocket.CloseServiceRestart, reason: "wrangler makes a new tail then",
		},
		"expired": {
			end:  func(*world, Tail) {},
			want: websocket.CloseTryAgainLater, reason: "who goes on shows again that it may",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorldWith(t, Config{Lifetime: 10 * time.Minute}, []string{"spoke1"}, func(w *world) {
				begin := time.Now()
				w.hub.start("spoke1", "a", "1")
				r, tail := w.open(Filters{})
				if want := begin.Add(10 * time.Minute); !tail.ExpiresAt.Equal(want) {
					w.Errorf("it expires at %s and not at %s", tail.ExpiresAt, want)
				}
				tc.end(w, tail)
				if code := r.expectClose(); code != tc.want {
					w.Errorf("%s: the code is %d and not %d", tc.reason, code, tc.want)
				}
				synctest.Wait()
				if n := w.hub.requests(); n != 0 {
					w.Errorf("%d requests are open after the end", n)
				}
				if err := w.tails.Delete(hello, tail.ID); !errors.Is(err, ErrNotFound) {
					w.Errorf("Delete after the end says %v", err)
				}
			})
		})
	}
}

func TestCloseDoesNotWaitForStalledClient(t *testing.T) {
	inWorld(t, []string{"spoke1"}, func(w *world) {
		p := w.hub.start("spoke1", "a", "1")
		r, _ := w.open(Filters{})
		w.hub.call(p, "hello", "read ahead of the test")
		w.hub.call(p, "hello", "nobody reads this")
		synctest.Wait()
		begin := time.Now()
		w.tails.Close()
		if took := time.Since(begin); took > writeTimeout+closeTimeout {
			w.Errorf("Close took %s", took)
		}
		r.leave()
	})
}

func TestSilentClientIsDisconnected(t *testing.T) {
	inWorld(t, []string{"spoke1"}, func(w *world) {
		begin := time.Now()
		r, _ := w.open(Filters{})
		r.stopPings()
		<-r.messages
		if took := time.Since(begin); took != pingTimeout {
			w.Errorf("it was left after %s", took)
		}
		r.leave()
	})
}

func TestDeleteNeedsMatchingScript(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		tail := w.create(Filters{})
		cases := map[string]struct {
			script Script
			id     string
		}{
			"another account":   {script: Script{Account: "5678", Namespace: "team-a", Name: "hello"}, id: tail.ID},
			"another script":    {script: Script{Account: "1234", Namespace: "team-a", Name: "other"}, id: tail.ID},
			"another namespace": {script: Script{Account: "1234", Namespace: "team-b", Name: "hello"}, id: tail.ID},
			"another id":        {script: hello, id: strings.Repeat("0", 32)},
			"no id":             {script: hello},
		}
		for name, tc := range cases {
			if err := w.tails.Delete(tc.script, tc.id); !errors.Is(err, ErrNotFound) {
				w.Errorf("%s: %v", name, err)
			}
		}
		if err := w.tails.Delete(hello, tail.ID); err != nil {
			w.Error(err)
		}
		if status, _ := w.get(tail.Path); status != http.StatusNotFound {
			w.Errorf("a deleted tail answers %d", status)
		}
	})
}

func TestTailsAreLimited(t *testing.T) {
	other := Script{Account: "5678", Namespace: "team-b", Name: "hello"}
	limits := Limits{MaxTails: 6, MaxPerAccount: 4, MaxPerUser: 3, MaxPerToken: 2}
	inWorldWith(t, Config{Limits: limits}, nil, func(w *world) {
		create := func(s Script, user, token string) error {
			_, err := w.tails.Create(s, Holder{User: user, Token: token}, Filters{})
			return err
		}
		for _, step := range []struct {
			script      Script
			user, token string
			refused     string
			reason      string
		}{
			{script: hello, user: "jane", token: "1", reason: "the first"},
			{script: other, user: "jane", token: "1", reason: "the second of a token"},
			{script: hello, user: "jane", token: "1", refused: "a token is 2", reason: "whatever the account"},
			{script: hello, user: "jane", token: "2", reason: "another token of the same user"},
			{script: hello, user: "jane", token: "3", refused: "a user is 3", reason: "a user may have many tokens"},
			{script: hello, user: "sa-1", reason: "another user of the account"},
			{script: hello, user: "sa-2", reason: "who has a token without an id is counted by his name"},
			{script: hello, user: "sa-3", refused: "an account is 4", reason: "an account may have many users"},
			{script: other, user: "joe", token: "1", reason: "another account has room, and a token is its user's"},
			{script: other, user: "jim", token: "1", refused: "all accounts is 6", reason: "all of them have a bound"},
		} {
			err := create(step.script, step.user, step.token)
			if step.refused == "" && err != nil || step.refused != "" && (!errors.Is(err, ErrTooMany) || !strings.HasSuffix(err.Error(), step.refused)) {
				w.Errorf("%s: %v", step.reason, err)
			}
		}
		time.Sleep(defaultOpenTimeout)
		synctest.Wait()
		if err := create(hello, "jane", "1"); err != nil {
			w.Errorf("when those that nobody opened are away: %v", err)
		}
		w.tails.Close()
		if err := create(hello, "jane", "1"); !errors.Is(err, ErrClosed) {
			w.Errorf("after Close: %v", err)
		}
	})
}

// Who may make service accounts has as many users, and tokens, as he likes.
func TestManyServiceAccountsLeaveTailsToOthers(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		own := 0
		for account := range 20 {
			for range 20 {
				by := Holder{User: "system:serviceaccount:team-a:sa-" + strconv.Itoa(account), Token: strconv.Itoa(own)}
				if _, err := w.tails.Create(hello, by, Filters{}); err == nil {
					own++
				}
			}
		}
		other := Script{Account: "5678", Namespace: "team-b", Name: "hello"}
		if _, err := w.tails.Create(other, jane, Filters{}); err != nil {
			w.Errorf("%d tails are of one account, and another finds no room: %v", own, err)
		}
	})
}

func TestUnknownTailIsNotFound(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		tail := w.create(Filters{})
		secret := tail.Path[strings.LastIndex(tail.Path, "/")+1:]
		if bits := len(secret) * 6; bits < 256 {
			w.Errorf("the secret has %d bits", bits)
		}
		cases := map[string]struct{ path, reason string }{
			"another secret":   {path: pathPrefix + tail.ID + "/" + strings.Repeat("A", len(secret)), reason: "the secret is the right"},
			"half a secret":    {path: tail.Path[:len(tail.Path)-1], reason: "all of it"},
			"more than it":     {path: tail.Path + "/", reason: "and no more"},
			"no secret":        {path: pathPrefix + tail.ID + "/", reason: "an empty one is not"},
			"no secret at all": {path: pathPrefix + tail.ID, reason: "an id is not enough"},
			"an unknown id":    {path: pathPrefix + "x/" + secret, reason: "nor is a secret"},
			"another path":     {path: "/x/" + tail.ID + "/" + secret, reason: "the path is part of it"},
		}
		for name, tc := range cases {
			_, res := w.dial(tc.path)
			if res == nil || res.StatusCode != http.StatusNotFound || res.Header.Get("Content-Type") != "application/json" {
				w.Errorf("%s (%s): %v", name, tc.reason, res)
			}
		}
		if status, text := w.get(tail.Path); status != http.StatusUpgradeRequired || text == "" {
			w.Errorf("a GET without an upgrade is answered with %d %q", status, text)
		}
		if status, text := w.get("/tails/x/y"); status != http.StatusNotFound || text != ErrNotFound.Error() {
			w.Errorf("what is no tail is answered with %d %q", status, text)
		}
		d := websocket.Dialer{NetDialContext: w.pipes.dial}
		if _, res, err := d.DialContext(w.Context(), "ws://tails.example"+tail.Path, nil); err == nil || res.StatusCode != http.StatusBadRequest {
			w.Errorf("an upgrade without the subprotocol is answered with %v", res)
		}
		r, _ := w.dial(tail.Path)
		if r == nil {
			w.Fatal("none of these may use up the tail")
		}
		if again, res := w.dial(tail.Path); again != nil || res.StatusCode != http.StatusNotFound {
			w.Errorf("a second connection is answered with %v", res)
		}
		r.leave()
		expired := w.create(Filters{})
		time.Sleep(defaultOpenTimeout)
		synctest.Wait()
		if late, res := w.dial(expired.Path); late != nil || res.StatusCode != http.StatusNotFound {
			w.Errorf("a tail that waited too long is answered with %v", res)
		}
	})
}

func TestSlowClientReceivesDropCount(t *testing.T) {
	inWorld(t, []string{"spoke1"}, func(w *world) {
		p := w.hub.start("spoke1", "a", "1")
		r, _ := w.open(Filters{})
		for i := range half + 10 {
			w.hub.call(p, "hello", strconv.Itoa(i))
			if i == 1 {
				synctest.Wait() // the client read one, another is being written
			}
		}
		synctest.Wait() // the queue is full
		for i := range half + 2 {
			r.expectEvent(strconv.Itoa(i))
		}
		r.expectEvent("spokelet: 8 events of cluster spoke1 were dropped" + slow)
		w.hub.call(p, "hello", "after that")
		r.expectEvent("after that")
		r.leave()
	})
}

func TestValidateRejectsInvalidConfig(t *testing.T) {
	cases := map[string]struct {
		config Config
		reason string
	}{
		"no hub":          {config: Config{}, reason: "there would be nothing to read"},
		"less than none":  {config: Config{Kube: &rest.Config{}, Limits: Limits{MaxTails: -1}}, reason: "no tail could be made"},
		"less of a user":  {config: Config{Kube: &rest.Config{}, Limits: Limits{MaxPerUser: -1}}, reason: "as above"},
		"no pods":         {config: Config{Kube: &rest.Config{}, Limits: Limits{MaxPods: -1}}, reason: "none could be followed"},
		"no lifetime":     {config: Config{Kube: &rest.Config{}, Lifetime: -1}, reason: "it would end at once"},
		"no time to open": {config: Config{Kube: &rest.Config{}, OpenTimeout: -1}, reason: "nobody could open it"},
		"a hub without a name": {
			config: Config{Kube: &rest.Config{Host: "http://a b"}}, reason: "it could not be reached",
		},
	}
	for name, tc := range cases {
		if _, err := New(tc.config); err == nil {
			t.Errorf("%s is accepted: %s", name, tc.reason)
		}
	}
}
