// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spokelet/spokelet/internal/testing/testscale"
	"github.com/spokelet/spokelet/internal/testing/tunneltest"
	"github.com/spokelet/spokelet/tunnel"
	"github.com/spokelet/spokelet/tunnel/identity"
	"github.com/spokelet/spokelet/tunnel/pipe"
)

var errBoom = errors.New("boom")

// diary writes down a hub's events.
type diary struct {
	mu     sync.Mutex
	events []tunnel.Event
}

func keepDiary(t *testing.T, hub *tunneltest.Hub) *diary {
	t.Helper()
	d := &diary{}
	t.Cleanup(hub.Server.Sessions().Subscribe(func(e tunnel.Event) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.events = append(d.events, e)
	}))
	return d
}

// lines are "cluster connected" or "cluster gone".
func (d *diary) lines() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := []string{}
	for _, e := range d.events {
		if e.Session == nil {
			lines = append(lines, e.Cluster+" gone")
		} else {
			lines = append(lines, e.Cluster+" connected")
		}
	}
	return lines
}

func (d *diary) reason(i int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.events[i].Reason
}

// hold is a door that answers at once and ends its answer when it is told to,
// or with an error when the stream is cut.
type hold struct {
	release chan struct{}
	mu      sync.Mutex
	cut     int
}

func newHold() *hold { return &hold{release: make(chan struct{})} }

func (h *hold) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fmt.Fprint(w, "begun ")
	_ = http.NewResponseController(w).Flush()
	select {
	case <-h.release:
		fmt.Fprint(w, "done")
	case <-r.Context().Done():
		h.mu.Lock()
		defer h.mu.Unlock()
		h.cut++
	}
}

func holding(h *hold) map[string]http.Handler { return map[string]http.Handler{tunnel.DoorKube: h} }

// open sends a request and reads the beginning of its answer.
func open(t *testing.T, s *tunnel.Session) io.ReadCloser {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://kube/watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if _, err := io.ReadFull(resp.Body, make([]byte, len("begun "))); err != nil {
		t.Fatal(err)
	}
	return resp.Body
}

func TestSilentPeerIsDetectedWithin15Seconds(t *testing.T) {
	for name, freeze := range map[string]struct{ toHub, toAgent bool }{
		"both ways":         {true, true},
		"towards the hub":   {true, false},
		"towards the agent": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub := tunneltest.NewHub(t, nil)
				door := newHold()
				agent := hub.Connect(t, "spoke1", holding(door))
				session := hub.Session(t, "spoke1")
				body := open(t, session)
				time.Sleep(7 * time.Second)
				frozen := time.Now()
				agent.Network.Freeze(freeze.toHub, freeze.toAgent)
				_, err := io.ReadAll(body)
				if took := time.Since(frozen); took > 15*time.Second {
					t.Errorf("stream ended after %v, want at most 15s", took)
				}
				if !errors.Is(err, tunnel.ErrUnresponsive) && !errors.Is(err, tunnel.ErrLost) {
					t.Errorf("stream ended with %v, want the session's end", err)
				}
				<-session.Done()
				_, err = hub.Server.Sessions().Get(t.Context(), "spoke1")
				var missing *tunnel.NotConnectedError
				if !errors.As(err, &missing) || missing.Cluster != "spoke1" {
					t.Errorf("Get() error = %v, want NotConnectedError", err)
				}
			})
		})
	}
}

// afterTheEnd has an agent dial when the hub, too, knows that its last session is over. A hub
// that learns of the next one first tells of no gap.
func afterTheEnd(hub *tunneltest.Hub, c *tunnel.AgentConfig) {
	dial, version := c.DialPipe, c.Version
	ofAgent := func(s tunnel.Info) bool { return s.AgentVersion == version }
	c.DialPipe = func(ctx context.Context, config pipe.DialConfig) (pipe.Link, error) {
		for ctx.Err() == nil && slices.ContainsFunc(hub.Server.Sessions().List(), ofAgent) {
			runtime.Gosched()
		}
		return dial(ctx, config)
	}
}

func TestAgentReconnectsAfterCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := tunneltest.NewHub(t, nil)
		d := keepDiary(t, hub)
		network := tunneltest.NewNetwork(tunneltest.NetworkConfig{})
		agent := hub.Run(t, hub.Authority.NewCluster("spoke1"), network, func(c *tunnel.AgentConfig) { afterTheEnd(hub, c) })
		hub.Session(t, "spoke1")
		time.Sleep(time.Minute)
		cut := time.Now()
		agent.Network.Cut()
		synctest.Wait()
		if time.Since(cut) != 0 {
			t.Errorf("came back after %v, want at once", time.Since(cut))
		}
		want := []string{"spoke1 connected", "spoke1 gone", "spoke1 connected"}
		if diff := cmp.Diff(want, d.lines()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if !errors.Is(d.reason(1), tunnel.ErrLost) {
			t.Errorf("reason = %v, want ErrLost", d.reason(1))
		}
		if !agent.Ready() {
			t.Error("agent is not ready after its return")
		}
	})
}

func TestManyCutsCauseFewReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := tunneltest.NewHub(t, nil)
		d := keepDiary(t, hub)
		agent := hub.Connect(t, "spoke1", kube(echo))
		minutes := testscale.Of(3, 10)
		began := time.Now()
		for time.Since(began) < time.Duration(minutes)*time.Minute {
			time.Sleep(600 * time.Millisecond)
			agent.Network.Cut()
		}
		connects := 0
		for _, line := range d.lines() {
			if line == "spoke1 connected" {
				connects++
			}
		}
		if connects > 60*minutes {
			t.Errorf("%d connections in %d minutes, want at most one a second", connects, minutes)
		}
	})
}

func TestSessionsOfOneCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := tunneltest.NewHub(t, nil)
		d := keepDiary(t, hub)
		cluster := hub.Authority.NewCluster("spoke1")
		answer := func(text string) func(*tunnel.AgentConfig) {
			return func(c *tunnel.AgentConfig) {
				c.Doors = kube(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })
			}
		}
		first := hub.Run(t, cluster, tunneltest.NewNetwork(tunneltest.NetworkConfig{}), answer("first"))
		synctest.Wait()
		hub.Run(t, cluster, tunneltest.NewNetwork(tunneltest.NetworkConfig{}), answer("second"))
		synctest.Wait()

		if got := get(t, hub, "spoke1"); got != "first" {
			t.Errorf("with two agents %q answers, want the first", got)
		}
		if n := len(hub.Server.Sessions().List()); n != 2 {
			t.Errorf("List() has %d sessions, want 2", n)
		}
		first.Stop()
		synctest.Wait()
		if got := get(t, hub, "spoke1"); got != "second" {
			t.Errorf("after the first left %q answers, want the second", got)
		}
		want := []string{"spoke1 connected", "spoke1 connected"}
		if diff := cmp.Diff(want, d.lines()); diff != "" {
			t.Errorf("a warm session takes over without a gap (-want +got):\n%s", diff)
		}
	})
}

func get(t *testing.T, hub *tunneltest.Hub, cluster string) string {
	t.Helper()
	session, err := hub.Server.Sessions().Get(t.Context(), cluster)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client(session).Get("http://kube/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestRenewalReplacesSessionWithoutCuttingStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams = 100
		hub := tunneltest.NewHub(t, nil)
		d := keepDiary(t, hub)
		door := newHold()
		agent := hub.Connect(t, "spoke1", holding(door))
		old := hub.Session(t, "spoke1")
		var bodies []io.ReadCloser
		for range streams {
			bodies = append(bodies, open(t, old))
		}
		time.Sleep(41 * time.Minute) // of an hour
		synctest.Wait()
		if agent.Credentials.Renewals() != 1 {
			t.Fatalf("%d renewals after two thirds of the life, want 1", agent.Credentials.Renewals())
		}
		current, err := hub.Server.Sessions().Get(t.Context(), "spoke1")
		if err != nil || current == old {
			t.Fatalf("Get() = %p, %v, want another session than %p", current, err, old)
		}
		if !current.Info().CertificateNotAfter.After(old.Info().CertificateNotAfter) {
			t.Error("the new session does not use the new certificate")
		}
		if _, err := client(old).Get("http://kube/"); !errors.Is(err, tunnel.ErrDraining) {
			t.Errorf("a new stream on the old session: %v, want ErrDraining", err)
		}
		if old.Err() != nil {
			t.Fatalf("old session ended with streams in flight: %v", old.Err())
		}
		close(door.release)
		for i, body := range bodies {
			rest, err := io.ReadAll(body)
			if err != nil || string(rest) != "done" {
				t.Errorf("stream %d: %q, %v, want done", i, rest, err)
			}
		}
		<-old.Done()
		if !errors.Is(old.Err(), tunnel.ErrClosed) {
			t.Errorf("old session ended with %v, want ErrClosed", old.Err())
		}
		want := []string{"spoke1 connected", "spoke1 connected"}
		if diff := cmp.Diff(want, d.lines()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestRefusedRenewalIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := tunneltest.NewHub(t, nil)
		refusals := 0
		hub.OnIssue(func(identity.Cluster) error {
			if refusals++; refusals < 3 {
				return errBoom
			}
			return nil
		})
		agent := hub.Connect(t, "spoke1", kube(echo))
		time.Sleep(55 * time.Minute)
		if agent.Credentials.Renewals() != 1 || refusals != 3 {
			t.Errorf("%d renewals after %d requests, want 1 after 3", agent.Credentials.Renewals(), refusals)
		}
	})
}

func TestSessionEndsWithItsCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := tunneltest.NewHub(t, nil)
		hub.OnIssue(func(identity.Cluster) error { return errBoom })
		hub.Connect(t, "spoke1", holding(newHold()))
		session := hub.Session(t, "spoke1")
		body := open(t, session)
		_, err := io.ReadAll(body)
		if !errors.Is(err, tunnel.ErrExpired) {
			t.Errorf("stream ended with %v, want the certificate's end", err)
		}
		if late := time.Since(session.Info().CertificateNotAfter); late < 0 || late > time.Minute {
			t.Errorf("stream ended %v after the certificate, want 0 to 60s", late)
		}
	})
}

func TestAgentReplacesSessionBeforeHubCertificateExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := tunneltest.NewHub(t, nil)
		hub.Authority.Lifetime = 240 * time.Hour // of the agent's
		hub.Connect(t, "spoke1", kube(echo))
		first := hub.Session(t, "spoke1")
		time.Sleep(50 * time.Minute)
		hub.UseCertificate(hub.Authority.Issue(t, identity.Hub{ID: hub.Authority.HubID}.URI()))
		time.Sleep(time.Hour)
		session, err := hub.Server.Sessions().Get(t.Context(), "spoke1")
		if err != nil || session == first {
			t.Errorf("Get() = %p, %v, want a session with the hub's new certificate", session, err)
		}
	})
}

func TestDisconnectEndsSessionsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := tunneltest.NewHub(t, nil)
		d := keepDiary(t, hub)
		hub.Connect(t, "other", kube(echo))
		hub.Connect(t, "spoke1", holding(newHold()))
		session := hub.Session(t, "spoke1")
		body := open(t, session)
		hub.OnAdmit(func(c identity.Cluster, _ string) error {
			if c.Name == "spoke1" {
				return errBoom
			}
			return nil
		})
		before := time.Now()
		hub.Server.Disconnect("spoke1", errBoom)
		if _, err := hub.Server.Sessions().Get(t.Context(), "spoke1"); !errors.Is(err, errBoom) {
			t.Errorf("Get() error = %v, want the reason", err)
		}
		if _, err := io.ReadAll(body); !errors.Is(err, errBoom) {
			t.Errorf("stream ended with %v, want the reason", err)
		}
		if time.Since(before) != 0 {
			t.Errorf("took %v, want nothing", time.Since(before))
		}
		time.Sleep(10 * time.Minute)
		want := []string{"other connected", "spoke1 connected", "spoke1 gone"}
		if diff := cmp.Diff(want, d.lines()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

// interview is an admission that takes every pipe and no session.
type interview struct {
	mu    sync.Mutex
	asked []string // guarded by mu
}

func (i *interview) ask(question string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked = append(i.asked, question)
}

func (i *interview) Admit(_ context.Context, c identity.Cluster) error {
	i.ask("pipe of " + c.Name)
	return nil
}

func (i *interview) AdmitSpoke(_ context.Context, c identity.Cluster, uid string) error {
	i.ask(fmt.Sprintf("spoke %q of %s", uid, c.Name))
	return errBoom
}

func TestAdmitSpokeGetsKubeSystemUID(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		uid    string
	}{
		"its UID": {reason: "the hub pins it", uid: "uid-of-spoke1"},
		"nothing": {reason: "an agent that hides its UID is asked about all the same"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := &interview{}
				hub := tunneltest.NewHub(t, func(c *tunnel.ServerConfig) { c.Admission = asked })
				agent := hub.Run(t, hub.Authority.NewCluster("spoke1"), tunneltest.NewNetwork(tunneltest.NetworkConfig{}),
					func(c *tunnel.AgentConfig) { c.KubeSystemUID = tc.uid })
				synctest.Wait()
				asked.mu.Lock()
				got := slices.Clone(asked.asked)
				asked.mu.Unlock()
				want := []string{"pipe of spoke1", fmt.Sprintf("spoke %q of spoke1", tc.uid)}
				if diff := cmp.Diff(want, got[:2]); diff != "" {
					t.Errorf("%s: admission was asked (-want +got):\n%s", tc.reason, diff)
				}
				time.Sleep(2 * time.Second)
				if err := agent.Status().Err; err == nil || agent.Ready() {
					t.Errorf("Status() = %+v, want the refusal", agent.Status())
				}
				if len(hub.Server.Sessions().List()) != 0 {
					t.Error("a refused session is listed")
				}
			})
		})
	}
}

func TestHubDrainLetsStreamsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := tunneltest.NewHub(t, nil)
		d := keepDiary(t, hub)
		door := newHold()
		hub.Connect(t, "spoke1", holding(door))
		body := open(t, hub.Session(t, "spoke1"))
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			hub.Server.Drain("restart")
		}()
		time.Sleep(10 * time.Second)
		session := hub.Server.Sessions().List()[0]
		if !session.Draining {
			t.Error("session is not draining")
		}
		close(door.release)
		if rest, err := io.ReadAll(body); err != nil || string(rest) != "done" {
			t.Errorf("stream in flight: %q, %v, want done", rest, err)
		}
		<-drained
		if diff := cmp.Diff([]string{"spoke1 connected"}, d.lines()); diff != "" {
			t.Errorf("a hub that goes away is no news of clusters (-want +got):\n%s", diff)
		}
	})
}

func TestHubDrainCutsAfterTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := tunneltest.NewHub(t, nil)
		hub.Connect(t, "spoke1", holding(newHold()))
		body := open(t, hub.Session(t, "spoke1"))
		began := time.Now()
		hub.Server.Drain("restart")
		if took := time.Since(began); took < 20*time.Second || took > 22*time.Second {
			t.Errorf("drain took %v, want the grace of 20s", took)
		}
		if _, err := io.ReadAll(body); !errors.Is(err, tunnel.ErrClosed) {
			t.Errorf("stream ended with %v, want ErrClosed", err)
		}
	})
}

func TestTrustBundleReachesAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := tunneltest.NewHub(t, nil)
		agent := hub.Connect(t, "spoke1", kube(echo))
		hub.Server.Trust(hub.Authority.BundlePEM())
		synctest.Wait()
		if got := agent.Credentials.Bundles(); got != 1 {
			t.Errorf("agent got %d trust bundles, want 1", got)
		}
	})
}

func TestGetNamesUnknownCluster(t *testing.T) {
	hub := tunneltest.NewHub(t, nil)
	_, err := hub.Server.Sessions().Get(t.Context(), "nobody")
	if !errors.Is(err, tunnel.ErrNotConnected) || !errors.Is(err, tunnel.ErrNeverConnected) {
		t.Errorf("Get() error = %v, want ErrNotConnected and ErrNeverConnected", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := hub.Server.Sessions().Get(ctx, "nobody"); !errors.Is(err, context.Canceled) {
		t.Errorf("Get() error = %v, want the context's", err)
	}
}
