// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"crypto/x509"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spokelet/spokelet/internal/testing/tunneltest"
	"github.com/spokelet/spokelet/tunnel"
	"github.com/spokelet/spokelet/tunnel/identity"
)

// TestRefusedCallbackGetsCertificate has a cluster's record made anew: the
// agent learns that its certificate is worthless, is given another, and is back
// without waiting for its next attempt.
func TestRefusedCallbackGetsCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := tunneltest.NewHub(t, nil)
		before, after := hub.Authority.NewCluster("spoke1"), hub.Authority.NewCluster("spoke1")
		hub.OnAdmit(func(c identity.Cluster, _ string) error {
			if c != after {
				return errBoom
			}
			return nil
		})
		const half = 30 * time.Minute
		var mu sync.Mutex
		var refused []time.Duration
		agent := hub.Run(t, before, tunneltest.NewNetwork(tunneltest.NetworkConfig{}), func(c *tunnel.AgentConfig) {
			c.Refused = func(certificate *x509.Certificate, lasting time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				if got, err := identity.ClusterOf(certificate); err != nil || got != before {
					t.Errorf("refused is %v, %v, want %v", got, err, before)
				}
				refused = append(refused, lasting)
			}
		})
		time.Sleep(half)
		synctest.Wait()
		mu.Lock()
		n, last := len(refused), refused[len(refused)-1]
		mu.Unlock()
		if n < 60 || n > 500 || refused[0] != 0 || last < half-time.Minute {
			t.Errorf("%d refusals in half an hour, the last after %v, want one in 15 s or so, and how long they last", n, last)
		}
		agent.Credentials.Use(hub.Authority.Issue(t, after.URI()))
		agent.Wake()
		synctest.Wait()
		if !agent.Ready() {
			t.Errorf("Status() = %+v at once after a new certificate, want a session", agent.Status())
		}
	})
}
