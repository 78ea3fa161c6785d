// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/tunnel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fakeSession tunnel.Status

func (s fakeSession) Status() tunnel.Status { return tunnel.Status(s) }

type fakeMembership struct{ problem error }

func (m fakeMembership) Problem() error { return m.problem }

func TestReadyzSaysWhyNot(t *testing.T) {
	for name, tc := range map[string]struct {
		reason     string
		session    session
		membership membership
		status     int
		says       []string
	}{
		"before anything is made": {
			reason: "the port is served first",
			status: http.StatusServiceUnavailable, says: []string{"not joined"},
		},
		"before the first certificate": {
			reason:     "the owner reads what to do",
			membership: fakeMembership{errors.New("no join token")},
			status:     http.StatusServiceUnavailable, says: []string{"not joined", "no join token"},
		},
		"with a session": {
			reason:  "an old problem is over",
			session: fakeSession{Connected: true}, membership: fakeMembership{errors.New("no join token")},
			status: http.StatusOK,
		},
		"without a session": {
			reason:  "the network's reason is enough",
			session: fakeSession{Err: errors.New("connection refused")}, membership: fakeMembership{},
			status: http.StatusServiceUnavailable, says: []string{"connection refused"},
		},
		"as a standby of a hub that knows of none": {
			reason:  "the executor would not be replaced otherwise",
			session: fakeSession{Err: fmt.Errorf("%w: the hub knows of one", tunnel.ErrStandby)},
			status:  http.StatusOK,
		},
		"with an expired certificate": {
			reason:  "both why and what to do",
			session: fakeSession{Err: errors.New("certificate has expired")}, membership: fakeMembership{errors.New("no join token")},
			status: http.StatusServiceUnavailable, says: []string{"certificate has expired", "no join token"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHealth("", prometheus.NewRegistry())
			if tc.session != nil {
				h.follow(tc.session)
			}
			if tc.membership != nil {
				h.watch(tc.membership)
			}
			w := httptest.NewRecorder()
			h.server.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
			if w.Code != tc.status {
				t.Errorf("status %d, want %d: %s", w.Code, tc.status, tc.reason)
			}
			for _, text := range tc.says {
				if !strings.Contains(w.Body.String(), text) {
					t.Errorf("%q does not say %q: %s", w.Body, text, tc.reason)
				}
			}
		})
	}
}
