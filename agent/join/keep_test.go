// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/kubernetes/fake"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
)

// kept is an identity that Keep looks after, with a token that may be changed.
type kept struct {
	*Identity
	hub *hub
	log *journal

	mu     sync.Mutex
	token  string // guarded by mu; none when empty
	joined int    // guarded by mu
}

// keep opens an identity that has joined with "token-1" and runs Keep for it. No
// token is left. It is to be called in a bubble.
func keep(t *testing.T) *kept {
	t.Helper()
	clients, h := fake.NewSimpleClientset(), &hub{ca: newCA(t), id: idOne}
	k := &kept{Identity: joined(t, clients, h), hub: h, log: &journal{}}
	request := joinRequest(h, "")
	request.Token, request.Logger = k.show, k.log.logger()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := k.Keep(ctx, request, k.count); err != nil {
			t.Errorf("Keep: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	synctest.Wait()
	return k
}

func (k *kept) show() (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.token == "" {
		return "", fmt.Errorf("%w: the file is empty", ErrToken)
	}
	return k.token, nil
}

func (k *kept) count() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.joined++
}

func (k *kept) give(token string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.token = token
}

func (k *kept) rejoined() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.joined
}

func (h *hub) reply(answer func(*rpcv1.EnrollResponse) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer = answer
}

func (h *hub) rename(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.id = id
}

// refuse has the hub refuse the certificate in use, for that long by now.
func (k *kept) refuse(lasting time.Duration) {
	current, _ := k.get()
	k.Refused(current.leaf(), lasting)
	synctest.Wait()
}

// failures counts lines of the log that are errors.
func (k *kept) failures() (n int) {
	for _, line := range k.log.all() {
		if strings.Contains(line, "without help") {
			n++
		}
	}
	return n
}

func TestExpiredCertificateIsReplacedByTheRunningAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t)
		k.give("token-1")
		time.Sleep(life - time.Minute)
		if _, _, _, err := k.Certificate(); err != nil || k.hub.called() != 1 {
			t.Fatalf("before its end: %v after %d calls, want 1", err, k.hub.called())
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if _, _, _, err := k.Certificate(); err != nil || k.rejoined() != 1 || k.hub.called() != 2 {
			t.Errorf("after its end: %v, %d calls, told %d times, want a certificate after 2 calls, told once", err, k.hub.called(), k.rejoined())
		}
	})
}

func TestExpiredCertificateIsNotShownAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t)
		time.Sleep(life + time.Hour)
		if _, _, _, err := k.Certificate(); !errors.Is(err, ErrExpired) {
			t.Errorf("Certificate: %v, want %v", err, ErrExpired)
		}
		if k.HubID() != hubID {
			t.Errorf("HubID: %q, want %q: the hub is the same", k.HubID(), hubID)
		}
	})
}

func TestExpiredAgentWithoutTokenSaysOnceWhatToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t)
		time.Sleep(life + 24*time.Hour)
		if n := k.failures(); n != 1 || !strings.Contains(k.log.all()[0], "kubectl spokelet join "+store1) {
			t.Errorf("%d errors in the log, want one that says what to do: %q", n, k.log.all())
		}
		if err := k.Problem(); !errors.Is(err, ErrToken) {
			t.Errorf("Problem: %v, want %v", err, ErrToken)
		}
		k.give("token-2")
		time.Sleep(time.Minute + time.Second) // the longest pause
		if _, _, _, err := k.Certificate(); err != nil || k.Problem() != nil || k.rejoined() != 1 {
			t.Errorf("with a token: %v, problem %v, told %d times", err, k.Problem(), k.rejoined())
		}
	})
}

func TestExpiredAgentOutlastsTheHubsAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t)
		k.give("token-2")
		k.hub.reply(func(*rpcv1.EnrollResponse) error { return status.Error(codes.Unavailable, "gone") })
		time.Sleep(life + 2*time.Hour)
		if calls := k.hub.called(); calls < 2*60 || calls > 2*60*4 {
			t.Errorf("%d attempts in two hours, want about two a minute", calls)
		}
		k.hub.reply(nil)
		time.Sleep(time.Minute + time.Second)
		if _, _, _, err := k.Certificate(); err != nil {
			t.Error(err)
		}
	})
}

func TestRefusedClusterComesBackWithANewToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t)
		k.hub.rename(idTwo) // the record was made anew
		k.refuse(0)
		if k.hub.called() != 1 || k.Problem() != nil {
			t.Fatalf("without a token: %d calls, problem %v, want neither: the hub may have just started", k.hub.called(), k.Problem())
		}
		for lasting := 25 * time.Second; lasting < 10*time.Minute; lasting += 25 * time.Second {
			k.refuse(lasting)
		}
		if err := k.Problem(); !errors.Is(err, ErrRefused) || !errors.Is(err, ErrToken) || k.failures() != 1 {
			t.Errorf("Problem: %v, %d errors in the log, want one that says what to do", err, k.failures())
		}
		k.give("token-2")
		k.refuse(11 * time.Minute)
		if current, _ := k.get(); current.cluster != store(idTwo) || k.Problem() != nil || k.rejoined() != 1 {
			t.Errorf("with a new token: %s, problem %v, told %d times", current.cluster, k.Problem(), k.rejoined())
		}
	})
}

func TestRefusalIsNoReasonToSpendATokenTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t)
		k.give("token-1")
		before, _ := k.get()
		k.refuse(time.Minute)
		if k.hub.called() != 1 || !errors.Is(k.Problem(), errSameToken) {
			t.Errorf("the token of the certificate: %d calls, problem %v, want 1 and %v", k.hub.called(), k.Problem(), errSameToken)
		}
		k.give("token-2")
		k.refuse(time.Minute)
		k.Refused(before.leaf(), time.Hour)
		synctest.Wait()
		if k.hub.called() != 2 || k.Problem() != nil {
			t.Errorf("a late word of the certificate before: %d calls, problem %v, want 2 and none", k.hub.called(), k.Problem())
		}
	})
}

func TestAnotherReplicasCertificateEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t)
		time.Sleep(life + time.Hour)
		current, _ := k.get()
		err := k.install(t.Context(), k.hub.ca.sign(store(idOne), current.leaf().PublicKey, time.Now()), k.hub.ca.pem(), "", func(*credentials) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if k.rejoined() != 1 || k.hub.called() != 1 || k.Problem() != nil {
			t.Errorf("told %d times, %d calls, problem %v, want once, none of our own, none", k.rejoined(), k.hub.called(), k.Problem())
		}
	})
}

func TestNewTokenAtTheStart(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		answer error
		want   string
	}{
		"is used":                {"a detached cluster comes back", nil, idTwo},
		"is refused in any case": {"the certificate may be good", status.Error(codes.PermissionDenied, "no"), idOne},
	} {
		t.Run("A new token at the start "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clients, h := fake.NewSimpleClientset(), &hub{ca: newCA(t), id: idOne}
				joined(t, clients, h)
				h.id = idTwo
				if tc.answer != nil {
					h.answer = func(*rpcv1.EnrollResponse) error { return tc.answer }
				}
				i := open(t, clients)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				if err := i.Keep(ctx, joinRequest(h, "token-2"), func() {}); err != nil {
					t.Fatal(err)
				}
				if current, _ := i.get(); current.cluster != store(tc.want) || h.called() != 2 {
					t.Errorf("the agent is %s after %d calls, want %s after 2: %s", current.cluster, h.called(), store(tc.want), tc.reason)
				}
			})
		})
	}
}
