// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spokelet/spokelet/internal/testing/tunneltest"
	"github.com/spokelet/spokelet/tunnel/identity"
)

// TestAgentsOfClusterRenewOneByOne runs agents whose certificates were made
// together and which therefore ask together.
func TestAgentsOfClusterRenewOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents = 4
		hub := tunneltest.NewHub(t, nil)
		var mu sync.Mutex
		var issued []time.Time
		hub.OnIssue(func(identity.Cluster) error {
			mu.Lock()
			defer mu.Unlock()
			issued = append(issued, time.Now())
			return nil
		})
		cluster := hub.Authority.NewCluster("spoke1")
		var running []*tunneltest.Agent
		for range agents {
			running = append(running, hub.Run(t, cluster, tunneltest.NewNetwork(tunneltest.NetworkConfig{}), nil))
		}
		time.Sleep(59 * time.Minute) // of an hour
		mu.Lock()
		defer mu.Unlock()
		for i := 1; i < len(issued); i++ {
			if spacing := issued[i].Sub(issued[i-1]); spacing < time.Minute {
				t.Errorf("certificates %d and %d were issued within %v", i-1, i, spacing)
			}
		}
		for i, agent := range running {
			if got := agent.Credentials.Renewals(); got != 1 {
				t.Errorf("agent %d has renewed %d times, want 1", i, got)
			}
		}
	})
}
