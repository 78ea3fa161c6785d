// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"crypto/x509"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spokelet/spokelet/internal/testing/tunneltest"
	"github.com/spokelet/spokelet/tunnel"
	"github.com/spokelet/spokelet/tunnel/identity"
)

// TestDrainWithAHundredStreams drains a hub whose cluster has a hundred streams
// open. Those that end within the grace end cleanly; the others are told.
func TestDrainWithAHundredStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := tunneltest.NewHub(t, nil)
		short, long := newHold(), newHold()
		hub.Connect(t, "spoke1", holding(short))
		hub.Connect(t, "spoke2", holding(long))
		var brief, lasting []io.ReadCloser
		for range 50 {
			brief = append(brief, open(t, hub.Session(t, "spoke1")))
			lasting = append(lasting, open(t, hub.Session(t, "spoke2")))
		}
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			hub.Server.Drain("restart")
		}()
		time.Sleep(15 * time.Second)
		close(short.release)
		for i, body := range brief {
			if rest, err := io.ReadAll(body); err != nil || string(rest) != "done" {
				t.Errorf("stream %d, which ended within the grace: %q, %v, want done", i, rest, err)
			}
		}
		for i, body := range lasting {
			if _, err := io.ReadAll(body); !errors.Is(err, tunnel.ErrClosed) {
				t.Errorf("stream %d, which outlasted the grace, ended with %v, want ErrClosed", i, err)
			}
		}
		<-drained
	})
}

// TestAuthorityRotationKeepsSessions replaces the hub's authority: both are
// trusted, then the new one issues, then the old one is forgotten. The cluster
// is connected all the while, and a stream that was open before is not cut.
func TestAuthorityRotationKeepsSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := tunneltest.NewHub(t, nil)
		d := keepDiary(t, hub)
		door := newHold()
		agent := hub.Connect(t, "spoke1", holding(door))
		body := open(t, hub.Session(t, "spoke1"))
		before, after := hub.Authority, tunneltest.NewAuthority(t)
		after.HubID = before.HubID

		time.Sleep(10 * time.Minute)
		synctest.Wait()
		before.Pool.AddCert(after.Certificate)
		hub.Server.Trust(slices.Concat(before.BundlePEM(), after.BundlePEM()))
		synctest.Wait()
		if agent.Credentials.Bundles() != 1 {
			t.Fatalf("the agent got %d bundles, want 1", agent.Credentials.Bundles())
		}

		after.Pool, hub.Authority = before.Pool, after
		hub.UseCertificate(after.Issue(t, identity.Hub{ID: after.HubID}.URI()))
		time.Sleep(31 * time.Minute) // renewal comes at two thirds of the hour
		synctest.Wait()
		if agent.Credentials.Renewals() != 1 {
			t.Fatalf("%d renewals, want 1", agent.Credentials.Renewals())
		}
		hub.Authority.Pool = x509.NewCertPool()
		hub.Authority.Pool.AddCert(after.Certificate)
		hub.UseCertificate(after.Issue(t, identity.Hub{ID: after.HubID}.URI()))

		close(door.release)
		if rest, err := io.ReadAll(body); err != nil || string(rest) != "done" {
			t.Errorf("the stream from before: %q, %v, want done", rest, err)
		}
		if diff := cmp.Diff([]string{"spoke1 connected", "spoke1 connected"}, d.lines()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		agent.Network.Cut() // who comes now comes under the new authority alone
		synctest.Wait()
		if !agent.Ready() {
			t.Errorf("under the new authority alone: %v", agent.Status().Err)
		}
	})
}

// trustOnly takes all authorities but one from those that a hub trusts, as a change of
// its bundle does.
func trustOnly(t *testing.T, hub *tunneltest.Hub, kept *tunneltest.Authority) {
	t.Helper()
	remaining := *kept
	remaining.Pool = x509.NewCertPool()
	remaining.Pool.AddCert(kept.Certificate)
	hub.UseAuthority(&remaining, remaining.Issue(t, identity.Hub{ID: kept.HubID}.URI()))
}

// TestSessionsEndWithTheirAuthority removes an authority that the sessions of one
// cluster, one of them warm, were verified by. Those of the other cluster stay.
func TestSessionsEndWithTheirAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := tunneltest.NewHub(t, nil)
		old, kept := hub.Authority, tunneltest.NewAuthority(t)
		kept.HubID = old.HubID
		old.Pool.AddCert(kept.Certificate)
		d := keepDiary(t, hub)
		hub.Connect(t, "spoke1", holding(newHold()))
		hub.Run(t, hub.Session(t, "spoke1").Cluster(), tunneltest.NewNetwork(tunneltest.NetworkConfig{}), nil)
		other := old.NewCluster("spoke2")
		hub.Run(t, other, tunneltest.NewNetwork(tunneltest.NetworkConfig{}), func(c *tunnel.AgentConfig) {
			c.Credentials.(*tunneltest.Credentials).Use(kept.Issue(t, other.URI()))
		})
		hub.Session(t, "spoke2")
		synctest.Wait()
		if got := len(hub.Server.Sessions().List()); got != 3 {
			t.Fatalf("%d sessions, want 3", got)
		}
		session := hub.Session(t, "spoke1")
		body := open(t, session)

		began := time.Now()
		trustOnly(t, hub, kept)
		hub.Server.Trust(kept.BundlePEM())
		<-session.Done()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the session ended after %v, want at once", took)
		}
		for reason, err := range map[string]error{"session": session.Err(), "stream": readError(body)} {
			if !errors.Is(err, tunnel.ErrUntrusted) {
				t.Errorf("%s ended with %v, want %v", reason, err, tunnel.ErrUntrusted)
			}
		}
		synctest.Wait()
		list := hub.Server.Sessions().List()
		if len(list) != 1 || list[0].Cluster != "spoke2" {
			t.Errorf("sessions are left: %+v, want that of spoke2", list)
		}
		time.Sleep(10 * time.Minute)
		if lines := d.lines(); lines[len(lines)-1] != "spoke1 gone" || slices.Contains(lines, "spoke2 gone") {
			t.Errorf("events %q, want that spoke1 goes and stays away", lines)
		}
	})
}

func readError(body io.Reader) error {
	_, err := io.ReadAll(body)
	return err
}

// TestSessionBeingOpenedEndsWithItsAuthority removes the authority after the agent's
// certificate was verified and before the session is known.
func TestSessionBeingOpenedEndsWithItsAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := tunneltest.NewHub(t, nil)
		asked, admitted := make(chan struct{}), make(chan struct{})
		var once sync.Once
		hub.OnAdmit(func(_ identity.Cluster, uid string) error {
			if uid == "" {
				return nil // of the pipe
			}
			once.Do(func() { close(asked) })
			<-admitted
			return nil
		})
		kept := tunneltest.NewAuthority(t)
		kept.HubID = hub.Authority.HubID
		cluster := hub.Authority.NewCluster("spoke1")
		agent := hub.Run(t, cluster, tunneltest.NewNetwork(tunneltest.NetworkConfig{}), nil)
		<-asked
		trustOnly(t, hub, kept)
		hub.Server.Trust(kept.BundlePEM()) // sees no session
		close(admitted)
		time.Sleep(time.Second)
		if list := hub.Server.Sessions().List(); len(list) != 0 {
			t.Errorf("sessions: %+v, want none of an authority that is gone", list)
		}
		var missing *tunnel.NotConnectedError
		if _, err := hub.Server.Sessions().Get(t.Context(), "spoke1"); !errors.As(err, &missing) || !errors.Is(missing.Reason, tunnel.ErrUntrusted) {
			t.Errorf("Get() error = %v, want %v", err, tunnel.ErrUntrusted)
		}
		agent.Stop()
	})
}

// TestWrongClockIsReportedAndRecovered has a certificate that is over by the clock of
// the other side. Both sides say so, and connect once it is mended.
func TestWrongClockIsReportedAndRecovered(t *testing.T) {
	for name, ahead := range map[string]time.Duration{
		"by an hour":   time.Hour,
		"by 400 days":  400 * 24 * time.Hour,
		"by a century": 100 * 365 * 24 * time.Hour,
	} {
		t.Run("the hub's certificate is over "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub := tunneltest.NewHub(t, nil)
				uri := identity.Hub{ID: hub.Authority.HubID}.URI()
				hub.Authority.Lifetime = -ahead
				hub.UseCertificate(hub.Authority.Issue(t, uri))
				hub.Authority.Lifetime = time.Hour
				agent := hub.Run(t, hub.Authority.NewCluster("spoke1"), tunneltest.NewNetwork(tunneltest.NetworkConfig{}), nil)
				synctest.Wait()
				var invalid x509.CertificateInvalidError
				if err := agent.Status().Err; !errors.As(err, &invalid) || invalid.Reason != x509.Expired {
					t.Errorf("the agent says %v, want that the certificate is not valid now", err)
				}
				hub.UseCertificate(hub.Authority.Issue(t, uri))
				time.Sleep(time.Minute)
				if !agent.Ready() {
					t.Errorf("with a good certificate: %v", agent.Status().Err)
				}
			})
		})
		t.Run("the agent's certificate is over "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub := tunneltest.NewHub(t, nil)
				cluster := hub.Authority.NewCluster("spoke1")
				hub.Authority.Lifetime = -ahead
				old := hub.Authority.Issue(t, cluster.URI())
				hub.Authority.Lifetime = time.Hour
				agent := hub.Run(t, cluster, tunneltest.NewNetwork(tunneltest.NetworkConfig{}), func(c *tunnel.AgentConfig) {
					c.Credentials.(*tunneltest.Credentials).Use(old)
				})
				time.Sleep(time.Minute)
				if agent.Ready() || len(hub.Server.Sessions().List()) != 0 {
					t.Fatal("a certificate that is over connects")
				}
				agent.Credentials.Use(hub.Authority.Issue(t, cluster.URI()))
				time.Sleep(time.Minute)
				if !agent.Ready() {
					t.Errorf("with a good certificate: %v", agent.Status().Err)
				}
			})
		})
	}
}
