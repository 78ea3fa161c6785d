// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokelet/spokelet/internal/testing/tunneltest"
	"github.com/spokelet/spokelet/tunnel"
	"github.com/spokelet/spokelet/tunnel/identity"
)

// pair is two processes of one cluster, "a" and "b", which answer with their
// names, and what subscribers are told of the one that executes.
type pair struct {
	t       *testing.T
	hub     *tunneltest.Hub
	cluster identity.Cluster
	agents  map[string]*tunneltest.Agent

	mu   sync.Mutex
	told []string // guarded by mu
}

// newPair connects both; neither executes. It is to be called in a bubble.
func newPair(t *testing.T, change func(*tunnel.ServerConfig)) *pair {
	t.Helper()
	p := &pair{t: t, hub: tunneltest.NewHub(t, change), agents: map[string]*tunneltest.Agent{}}
	p.cluster = p.hub.Authority.NewCluster("spoke1")
	t.Cleanup(p.hub.Server.Sessions().SubscribeExecutor(p.tell))
	p.connect("a", true)
	p.connect("b", true)
	return p
}

func (p *pair) connect(name string, roles bool) {
	p.t.Helper()
	p.agents[name] = p.hub.Run(p.t, p.cluster, tunneltest.NewNetwork(tunneltest.NetworkConfig{}), func(c *tunnel.AgentConfig) {
		c.Roles, c.Version = roles, name
		afterTheEnd(p.hub, c)
		c.Doors = kube(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) })
	})
	synctest.Wait()
}

func (p *pair) tell(e tunnel.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := "nobody"
	if e.Session != nil {
		name = e.Session.Info().AgentVersion
	}
	p.told = append(p.told, name)
}

// expect checks who answers, and who has been told of as the executor.
func (p *pair) expect(when, answers string, told ...string) {
	p.t.Helper()
	synctest.Wait()
	if got := get(p.t, p.hub, "spoke1"); got != answers {
		p.t.Errorf("%s: %q answers, want %q", when, got, answers)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if diff := cmp.Diff(told, p.told); diff != "" {
		p.t.Errorf("%s: executors (-want +got):\n%s", when, diff)
	}
}

func TestSessionsUseExecutor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, nil)
		p.expect("nobody executes", "a")
		p.agents["b"].SetStandby(false)
		p.expect("b executes", "b", "b")
		p.agents["b"].SetStandby(true)
		p.expect("b has ceased to", "b", "b", "nobody")
		p.agents["a"].SetStandby(false)
		p.expect("a executes", "a", "b", "nobody", "a")
		p.agents["a"].Stop()
		p.expect("a has gone", "b", "b", "nobody", "a", "nobody")
		p.agents["b"].SetStandby(false)
		p.expect("b executes again", "b", "b", "nobody", "a", "nobody", "b")
	})
}

// TestExecutorTermsInARowAreSeparateEvents: the hub opens a new Sync only when it hears that the one
// before is over.
func TestExecutorTermsInARowAreSeparateEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, nil)
		p.agents["b"].SetStandby(false)
		p.expect("b executes", "b", "b")
		p.agents["b"].SetStandby(true)
		p.agents["b"].SetStandby(false)
		p.expect("b has begun another term at once", "b", "b", "nobody", "b")
		p.agents["b"].SetStandby(false)
		p.expect("nothing has changed", "b", "b", "nobody", "b")
	})
}

// An agent that changes its role without end must not have the hub begin Sync anew
// each time.
func TestEndlessRoleChangesAreFewEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, nil)
		for range 500 { // 5 s
			p.agents["b"].SetStandby(false)
			time.Sleep(5 * time.Millisecond)
			p.agents["b"].SetStandby(true)
			time.Sleep(5 * time.Millisecond)
		}
		p.agents["b"].SetStandby(false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		p.mu.Lock()
		told := len(p.told)
		last := p.told[told-1]
		p.mu.Unlock()
		if told > 30 || last != "b" {
			t.Errorf("%d events in 7 s, and the last is %q, want few and b", told, last)
		}
	})
}

func TestExecutorKeepsRoleWhenSessionIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, nil)
		p.agents["b"].SetStandby(false)
		p.expect("b executes", "b", "b")
		p.agents["b"].Network.Cut()
		time.Sleep(time.Minute)
		p.expect("b has come back", "b", "b", "nobody", "b")
	})
}

func TestAgentWithoutRoleIsExecutor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, nil)
		p.connect("old", false)
		p.expect("an agent of the release before is there", "old", "old")
		p.agents["old"].SetStandby(true)
		p.expect("it has no role to change", "old", "old")
		p.agents["a"].SetStandby(false)
		p.expect("a process that holds the lease is there", "a", "old", "a")
	})
}

func TestDiscardEndsOneSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, nil)
		p.agents["b"].SetStandby(false)
		p.expect("b executes", "b", "b")
		var connected []bool
		t.Cleanup(p.hub.Server.Sessions().Subscribe(func(e tunnel.Event) { connected = append(connected, e.Session != nil) }))
		session, err := p.hub.Server.Sessions().Get(t.Context(), "spoke1")
		if err != nil {
			t.Fatal(err)
		}
		reason := errors.New("sync ended")
		session.Discard(reason)
		p.expect("b is discarded, and has come back at once", "b", "b", "nobody", "b")
		if !errors.Is(session.Err(), reason) {
			t.Errorf("the session ended with %v, want %v", session.Err(), reason)
		}
		if slices.Contains(connected, false) {
			t.Errorf("a cluster with another agent was told of as disconnected: %v", connected)
		}
	})
}

// TestStandbyStaysAwayFromHubWithoutRoles takes every process for the executor, so a standby
// keeps away from it.
func TestStandbyStaysAwayFromHubWithoutRoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := tunneltest.NewHub(t, nil)
		hub.Server.ForgetRoles()
		cluster := hub.Authority.NewCluster("spoke1")
		roles := func(c *tunnel.AgentConfig) { c.Roles = true }
		standby := hub.Run(t, cluster, tunneltest.NewNetwork(tunneltest.NetworkConfig{}), roles)
		executor := hub.Run(t, cluster, tunneltest.NewNetwork(tunneltest.NetworkConfig{}), roles)
		executor.SetStandby(false)
		time.Sleep(time.Hour / 2)
		synctest.Wait()
		if !executor.Ready() || standby.Ready() || !errors.Is(standby.Status().Err, tunnel.ErrStandby) {
			t.Errorf("executor %+v, standby %+v, want the first connected and the other not", executor.Status(), standby.Status())
		}
		executor.Stop()
		standby.SetStandby(false)
		synctest.Wait()
		if !standby.Ready() {
			t.Errorf("standby %+v at once after it became the executor, want it connected", standby.Status())
		}
	})
}

func TestTwoExecutorsAreReportedAsRivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		p := newPair(t, func(c *tunnel.ServerConfig) { c.Registerer = registry })
		p.agents["a"].SetStandby(false)
		synctest.Wait()
		p.agents["b"].SetStandby(false)
		time.Sleep(time.Second)
		p.agents["a"].SetStandby(true)
		time.Sleep(time.Minute)
		if n := rivals(t, registry); n != 0 {
			t.Errorf("a slow word is counted %v times, want 0", n)
		}
		p.agents["a"].SetStandby(false)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := rivals(t, registry); n != 1 {
			t.Errorf("two that both execute are counted %v times within 5 s, want once", n)
		}
		p.expect("the last to claim it is in use", "a", "a", "b", "a")
	})
}

func rivals(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "spokelet_tunnel_rivals_total" {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return 0
}

func TestCopiedCertificateIsRefusedInOtherSpoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, nil)
		p.agents["a"].SetStandby(false)
		p.hub.OnAdmit(func(_ identity.Cluster, uid string) error {
			if uid == "elsewhere" {
				return errBoom
			}
			return nil
		})
		thief := p.hub.Run(t, p.cluster, tunneltest.NewNetwork(tunneltest.NetworkConfig{}), func(c *tunnel.AgentConfig) {
			c.KubeSystemUID = "elsewhere"
		})
		time.Sleep(5 * time.Second)
		p.expect("the same certificate is used in another cluster", "a", "a")
		if err := thief.Status().Err; thief.Ready() || errors.Is(err, tunnel.ErrNeverConnected) {
			t.Errorf("its Status() = %+v, want a refusal", thief.Status())
		}
	})
}
