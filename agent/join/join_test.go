// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
)

func TestJoin(t *testing.T) {
	t.Run("Refusals are tried again, and logged once for each reason", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h, log := &hub{ca: newCA(t), id: idOne}, &journal{}
			refusals := 0
			h.answer = func(*rpcv1.EnrollResponse) error {
				if refusals++; refusals <= 20 {
					return status.Error(codes.PermissionDenied, "token is not valid")
				}
				if refusals <= 40 {
					return status.Error(codes.FailedPrecondition, "cluster is not accepted")
				}
				return nil
			}
			i, request := open(t, fake.NewSimpleClientset()), joinRequest(h, "token-1")
			request.Logger = log.logger()
			start := time.Now()
			if err := i.Join(t.Context(), request); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took > 41*time.Minute {
				t.Errorf("40 refusals took %s: the pause is not capped at a minute", took)
			}
			lines := log.all()
			if len(lines) != 3 || !strings.Contains(lines[0], "not valid") || !strings.Contains(lines[1], "not accepted") {
				t.Errorf("log: %q, want one line for each reason and one for the success", lines)
			}
			if strings.Contains(strings.Join(lines, ""), "token-1") {
				t.Error("the log holds the token")
			}
		})
	})

	t.Run("An agent that has joined asks nothing", func(t *testing.T) {
		clients, h := fake.NewSimpleClientset(), &hub{ca: newCA(t), id: idOne}
		joined(t, clients, h)
		if err := open(t, clients).Join(t.Context(), joinRequest(h, "token-1")); err != nil || h.called() != 1 {
			t.Errorf("Join: %v after %d calls, want 1", err, h.called())
		}
	})

	t.Run("An expired certificate is replaced", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			clients, h := fake.NewSimpleClientset(), &hub{ca: newCA(t), id: idOne}
			i := joined(t, clients, h)
			time.Sleep(life + time.Hour)
			if err := i.Join(t.Context(), joinRequest(h, "token-1")); err != nil || h.called() != 2 {
				t.Errorf("Join: %v after %d calls, want 2", err, h.called())
			}
		})
	})

	t.Run("The end of the context ends it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := &hub{ca: newCA(t), id: idOne, answer: func(*rpcv1.EnrollResponse) error { return errors.New("boom") }}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := open(t, fake.NewSimpleClientset()).Join(ctx, joinRequest(h, "token-1")); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Join: %v, want %v", err, context.DeadlineExceeded)
			}
		})
	})
}

func TestJoinNamesTheSkewAndRecovers(t *testing.T) {
	for name, tc := range map[string]struct {
		skew time.Duration // the hub's clock against the agent's
		says string
		heal time.Duration // how long until the agent's clock is right, as time passes
	}{
		"The agent's clock is an hour behind": {skew: time.Hour, says: ErrClockBehind.Error(), heal: time.Hour},
		"The agent's clock is 400 days ahead": {skew: -400 * 24 * time.Hour, says: ErrClockAhead.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, log := &hub{ca: newCA(t), id: idOne, skew: tc.skew}, &journal{}
				request := joinRequest(h, "token-1")
				request.Logger = log.logger()
				start := time.Now()
				if tc.heal == 0 {
					// Somebody sets the clock.
					time.AfterFunc(10*time.Minute, func() { h.mu.Lock(); h.skew = 0; h.mu.Unlock() })
				}
				if err := open(t, fake.NewSimpleClientset()).Join(t.Context(), request); err != nil {
					t.Fatal(err)
				}
				if text := strings.Join(log.all(), "\n"); !strings.Contains(text, tc.says) || len(log.all()) > 4 {
					t.Errorf("%d lines of log, want a few that say %q:\n%s", len(log.all()), tc.says, text)
				}
				if took := time.Since(start); took > 2*time.Hour {
					t.Errorf("recovery took %s", took)
				}
			})
		})
	}

	t.Run("An hour ahead goes unnoticed: the certificate is valid", func(t *testing.T) {
		h := &hub{ca: newCA(t), id: idOne, skew: -time.Hour}
		if err := open(t, fake.NewSimpleClientset()).Join(t.Context(), joinRequest(h, "token-1")); err != nil {
			t.Error(err)
		}
	})
}

func TestJoinRefusesAnswers(t *testing.T) {
	other := newCA(t)
	for name, spoil := range map[string]func(*rpcv1.EnrollResponse){
		"without the known CA":        func(r *rpcv1.EnrollResponse) { r.TrustBundle = other.pem() },
		"from another hub id":         func(r *rpcv1.EnrollResponse) { r.HubId = idTwo },
		"without a certificate":       func(r *rpcv1.EnrollResponse) { r.CertificateChain = nil },
		"signed by another authority": func(r *rpcv1.EnrollResponse) { r.CertificateChain = other.pem() },
		"that is no PEM":              func(r *rpcv1.EnrollResponse) { r.TrustBundle = []byte("x") },
	} {
		t.Run("An answer "+name, func(t *testing.T) {
			clients := fake.NewSimpleClientset()
			h := &hub{ca: newCA(t), id: idOne, answer: func(r *rpcv1.EnrollResponse) error { spoil(r); return nil }}
			if err := open(t, clients).enroll(t.Context(), joinRequest(h, "token-1")); !errors.Is(err, ErrAnswer) {
				t.Errorf("enroll: %v, want %v", err, ErrAnswer)
			}
			if got := stored(t, clients).Data[keyCertificate]; got != nil {
				t.Errorf("the secret holds %s", got)
			}
		})
	}
}

func TestJoinKnowsTheCAByItsBytes(t *testing.T) {
	h := &hub{ca: newCA(t), id: idOne}
	known := h.ca.fingerprint()
	cases := map[string]struct {
		reason      string
		fingerprint string
		want        error
	}{
		"lower case":       {reason: "as the plugin prints it", fingerprint: known},
		"upper case":       {reason: "as other tools print it", fingerprint: strings.ToUpper(known)},
		"another":          {reason: "it is the bytes that count", fingerprint: newCA(t).fingerprint(), want: ErrAnswer},
		"a part":           {reason: "too short for a SHA-256", fingerprint: known[:62], want: ErrAnswer},
		"nothing":          {reason: "nobody is trusted unseen", want: ErrAnswer},
		"no hex":           {reason: "it names no bytes", fingerprint: "x" + known[1:], want: ErrAnswer},
		"a digit too many": {reason: "it names no bytes", fingerprint: known + "0", want: ErrAnswer},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			request := joinRequest(h, "token-1")
			request.CAFingerprint = tc.fingerprint
			if err := open(t, fake.NewSimpleClientset()).enroll(t.Context(), request); !errors.Is(err, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
			}
		})
	}
}

func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if _, err := TokenFile(path)(); !errors.Is(err, ErrToken) {
		t.Errorf("no file: %v, want %v", err, ErrToken)
	}
	for content, want := range map[string]string{"spokelet.abc\n": "spokelet.abc", " \n": "", strings.Repeat("a", 2000): ""} { //nolint:gocritic // whitespace alone is one of the cases
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := TokenFile(path)()
		if got != want || (want == "") != errors.Is(err, ErrToken) {
			t.Errorf("file of %d bytes: %q, %v, want %q", len(content), got, err, want)
		}
	}
}

func TestKubeSystemUID(t *testing.T) {
	clients := fake.NewSimpleClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "uid-1"}})
	if got, err := KubeSystemUID(t.Context(), clients.CoreV1()); err != nil || got != "uid-1" {
		t.Errorf("KubeSystemUID: %q, %v", got, err)
	}
	if _, err := KubeSystemUID(t.Context(), fake.NewSimpleClientset().CoreV1()); err == nil {
		t.Error("a cluster without kube-system has a UID")
	}
}
