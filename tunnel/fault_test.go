// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spokelet/spokelet/internal/testing/testscale"
	"github.com/spokelet/spokelet/internal/testing/tunneltest"
	"github.com/spokelet/spokelet/tunnel"
	"github.com/spokelet/spokelet/tunnel/identity"
	"github.com/spokelet/spokelet/tunnel/pipe"
)

// lesson is what the doors of the cut tests send, and more than one frame of it.
var lesson = bytes.Repeat([]byte("0123456789abcdef"), 3<<10)

// teach answers requests and raw streams with the lesson.
func teach(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(lesson) }

// TestCutAtEveryByte cuts a session after some number of bytes, in either direction,
// while it carries a request and a raw stream. A client gets a prefix and an error, or
// everything; never a prefix and a clean end. One run cuts at every thirteenth byte, another
// one between those, and all of them at SPOKELET_TEST_FULL.
func TestCutAtEveryByte(t *testing.T) {
	// The first bytes are those of TLS and HTTP/2 settings; the long tail behind them is
	// taken in larger steps that are not a multiple of a frame.
	const settings = 6000
	step, tail := testscale.Of(13, 1), testscale.Of(499, 211)
	prepared := prepareLesson(t)
	first := 1 + rand.IntN(step)
	t.Logf("the first cut is after %d bytes, the others each %d bytes later, and each %d bytes beyond %d", first, step, tail, settings)
	for cut := first; cut < prepared.size; cut += step {
		if cut > settings {
			step = tail
		}
		synctest.Test(t, func(t *testing.T) { prepared.cut(t, cut) })
	}
}

// A preparedLesson has what every session of the lesson is made of, and can be made once.
type preparedLesson struct {
	authority   *tunneltest.Authority
	certificate *tls.Certificate
	credentials *tunneltest.Credentials
	// size is how many bytes are sent where nothing is cut.
	size int
}

// prepareLesson makes certificates in a bubble: every bubble begins at the same time.
func prepareLesson(t *testing.T) (l preparedLesson) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l.authority = tunneltest.NewAuthority(t)
		l.certificate = l.authority.Issue(t, identity.Hub{ID: l.authority.HubID}.URI())
		l.credentials = l.authority.Credentials(t, l.authority.NewCluster("spoke1"))
		hub, agent := l.run(t, tunneltest.NetworkConfig{})
		readLesson(t, hub.Session(t, "spoke1"))
		l.size = agent.Network.Written()
	})
	return l
}

func (l preparedLesson) run(t *testing.T, network tunneltest.NetworkConfig) (*tunneltest.Hub, *tunneltest.Agent) {
	t.Helper()
	hub := tunneltest.NewHubWith(t, l.authority, l.certificate, nil)
	return hub, hub.RunWith(t, l.credentials, tunneltest.NewNetwork(network), func(c *tunnel.AgentConfig) { c.Doors = kube(teach) })
}

func (l preparedLesson) cut(t *testing.T, after int) {
	t.Helper()
	hub, agent := l.run(t, tunneltest.NetworkConfig{CutAfter: after})
	synctest.Wait()
	session, err := hub.Server.Sessions().Get(t.Context(), "spoke1")
	if err == nil {
		readLesson(t, session)
	}
	agent.Stop()
	if t.Failed() {
		t.Logf("the cut was after %d bytes", after)
	}
}

// readLesson reads the lesson twice, and complains about what a cut must not do.
func readLesson(t *testing.T, session *tunnel.Session) {
	t.Helper()
	resp, err := client(session).Get("http://kube/")
	if err == nil {
		checkPrefix(t, "answer", resp.Body)
		resp.Body.Close()
	}
	conn, err := session.Dial(t.Context(), tunnel.DoorKube)
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.0\r\n\r\n")
	head := make([]byte, 0, 512)
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		var b [1]byte
		if _, err := conn.Read(b[:]); err != nil {
			if errors.Is(err, io.EOF) {
				t.Errorf("raw stream: clean end inside the header")
			}
			return
		}
		head = append(head, b[0])
	}
	checkPrefix(t, "raw stream", conn)
}

func checkPrefix(t *testing.T, what string, r io.Reader) {
	t.Helper()
	got, err := io.ReadAll(r)
	if !bytes.HasPrefix(lesson, got) {
		t.Errorf("%s: %d bytes that are not a prefix", what, len(got))
	}
	if err == nil && len(got) != len(lesson) {
		t.Errorf("%s: clean end after %d of %d bytes", what, len(got), len(lesson))
	}
}

func TestBytesArriveInAnySlices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := tunneltest.NewHub(t, nil)
		network := tunneltest.NewNetwork(tunneltest.NetworkConfig{Slice: 1})
		hub.Run(t, hub.Authority.NewCluster("spoke1"), network, func(c *tunnel.AgentConfig) { c.Doors = kube(teach) })
		resp, err := client(hub.Session(t, "spoke1")).Get("http://kube/")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, lesson) {
			t.Errorf("%d bytes, %v, want the lesson", len(got), err)
		}
	})
}

// stuck reads nothing and says nothing until its request ends.
func stuck(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// endless sends until its request ends.
func endless(w http.ResponseWriter, _ *http.Request) {
	for {
		if _, err := w.Write(lesson); err != nil {
			return
		}
	}
}

func TestStalledStreamsDelayNoOther(t *testing.T) {
	stalled := testscale.Of(30, 100)
	for name, stall := range map[string]func(*testing.T, *tunnel.Session){
		"uploads that nobody reads": func(t *testing.T, s *tunnel.Session) {
			t.Helper()
			body, _ := io.Pipe()
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://kube/stuck", io.MultiReader(endlessReader{}, body))
			go func() {
				if resp, err := s.RoundTrip(req); err == nil {
					resp.Body.Close()
				}
			}()
		},
		"downloads that nobody reads": func(t *testing.T, s *tunnel.Session) {
			t.Helper()
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://kube/endless", nil)
			resp, err := s.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { resp.Body.Close() })
		},
		"raw streams that nobody reads": func(t *testing.T, s *tunnel.Session) {
			t.Helper()
			conn, err := s.Dial(t.Context(), tunnel.DoorKube)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.(interface{ Abort(error) }).Abort(errBoom) })
			fmt.Fprintf(conn, "GET /endless HTTP/1.1\r\nHost: kube\r\n\r\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.HandleFunc("/stuck", stuck)
			mux.HandleFunc("/endless", endless)
			mux.HandleFunc("/", echo)
			synctest.Test(t, func(t *testing.T) {
				hub := tunneltest.NewHub(t, nil)
				hub.Connect(t, "spoke1", map[string]http.Handler{tunnel.DoorKube: mux})
				session := hub.Session(t, "spoke1")
				for range stalled {
					stall(t, session)
				}
				synctest.Wait() // every window is full now
				for range 20 {
					resp, err := client(session).Post("http://kube/small", "text/plain", bytes.NewReader(lesson))
					if err != nil {
						t.Fatal(err)
					}
					if n, err := io.Copy(io.Discard, resp.Body); err != nil || n < int64(len(lesson)) {
						t.Errorf("beside %d stalled: %d bytes, %v", stalled, n, err)
					}
					resp.Body.Close()
				}
			})
		})
	}
}

type endlessReader struct{}

func (endlessReader) Read(p []byte) (int, error) { return len(p), nil }

func TestStreamsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := tunnel.Limits{Streams: 8, ReservedStreams: 3}
		hub := tunneltest.NewHub(t, func(c *tunnel.ServerConfig) { c.Limits = limits })
		door := newHold()
		hub.Connect(t, "spoke1", map[string]http.Handler{tunnel.DoorKube: door, tunnel.DoorSync: door})
		session := hub.Session(t, "spoke1")
		// The control stream is the first of the eight.
		for range 4 {
			open(t, session)
		}
		_, err := client(session).Get("http://kube/")
		var busy *tunnel.BusyError
		if !errors.As(err, &busy) || tunnel.StatusCode(err) != http.StatusTooManyRequests {
			t.Fatalf("one stream too many: %v, want BusyError and 429", err)
		}
		if _, err := session.Dial(t.Context(), tunnel.DoorKube); !errors.Is(err, tunnel.ErrBusy) {
			t.Errorf("one raw stream too many: %v, want ErrBusy", err)
		}
		resp, err := client(session).Get("http://sync/")
		if err != nil {
			t.Fatalf("a reserved stream: %v", err)
		}
		resp.Body.Close()
		close(door.release)
	})
}

func TestAgentRefusesStreamsOverItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := tunneltest.NewHub(t, nil) // 2048 streams
		door := newHold()
		network := tunneltest.NewNetwork(tunneltest.NetworkConfig{})
		hub.Run(t, hub.Authority.NewCluster("spoke1"), network, func(c *tunnel.AgentConfig) {
			c.Doors = holding(door)
			c.Limits = tunnel.Limits{Streams: 4, ReservedStreams: 1}
		})
		session := hub.Session(t, "spoke1")
		open(t, session)
		open(t, session)
		resp, err := client(session).Get("http://kube/")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusTooManyRequests {
			t.Errorf("status = %d, want 429", resp.StatusCode)
		}
		if _, err := session.Dial(t.Context(), tunnel.DoorKube); !errors.Is(err, tunnel.ErrBusy) {
			t.Errorf("raw stream: %v, want ErrBusy", err)
		}
		close(door.release)
	})
}

func TestUnknownDoors(t *testing.T) {
	hub := tunneltest.NewHub(t, nil)
	hub.Connect(t, "spoke1", kube(echo))
	session := hub.Session(t, "spoke1")
	for name, host := range map[string]string{
		"a door that this agent does not have": "act",
		"upper case":                           "KUBE",
		"a port":                               "kube:443",
		"a trailing dot":                       "kube.",
		"a name with a dot":                    "kube.local",
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := client(session).Get("http://" + host + "/")
			if err == nil {
				defer resp.Body.Close()
				if resp.StatusCode != http.StatusNotFound {
					t.Errorf("request to %q: status %d, want 404", host, resp.StatusCode)
				}
			} else if !errors.Is(err, tunnel.ErrDoor) {
				t.Errorf("request to %q: %v, want ErrDoor", host, err)
			}
			if _, err := session.Dial(t.Context(), host); !errors.Is(err, tunnel.ErrDoor) {
				t.Errorf("raw stream to %q: %v, want ErrDoor", host, err)
			}
		})
	}
}

func TestHostHeaderChoosesNoDoor(t *testing.T) {
	hub := tunneltest.NewHub(t, nil)
	hub.Connect(t, "spoke1", map[string]http.Handler{
		tunnel.DoorKube: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "kube "+r.Host) }),
		tunnel.DoorNode: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "node") }),
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://kube/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = tunnel.DoorNode
	resp, err := hub.Session(t, "spoke1").RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); string(body) != "kube kube" {
		t.Errorf("answered by %q, want the door of the URL", body)
	}
	if req.Host != tunnel.DoorNode {
		t.Error("the caller's request was changed")
	}
}

func TestHeadersPassUntouched(t *testing.T) {
	hub := tunneltest.NewHub(t, nil)
	hub.Connect(t, "spoke1", kube(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("Traceparent"), " ", r.Header.Get("Accept-Encoding"))
	}))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://kube/", nil)
	if err != nil {
		t.Fatal(err)
	}
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	req.Header.Set("Traceparent", trace)
	resp, err := hub.Session(t, "spoke1").RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); string(body) != trace+" " {
		t.Errorf("door saw %q, want %q", body, trace+" ")
	}
}

func TestWrongPeersAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		peer   func(h *tunneltest.Hub, p *pipe.Peer)
		agent  func(t *testing.T, h *tunneltest.Hub, c *tunneltest.Credentials)
	}{
		"a pipe of another cluster": {
			reason: "the session's certificate must be that of the pipe's",
			peer:   func(h *tunneltest.Hub, p *pipe.Peer) { p.Cluster = h.Authority.NewCluster("other") },
		},
		"a re-created cluster": {
			reason: "the same name with another id is a stranger",
			peer:   func(h *tunneltest.Hub, p *pipe.Peer) { p.Cluster = h.Authority.NewCluster(p.Cluster.Name) },
		},
		"another hub": {
			reason: "an authority that serves two hubs does not make them one",
			agent: func(_ *testing.T, h *tunneltest.Hub, c *tunneltest.Credentials) {
				c.HubID = h.Authority.NewCluster("x").ID
			},
		},
		"another authority": {
			reason: "the names are right, the signature is not ours",
			agent: func(t *testing.T, _ *tunneltest.Hub, c *tunneltest.Credentials) {
				t.Helper()
				t.Helper()
				stranger := tunneltest.NewAuthority(t)
				c.Use(stranger.Issue(t, c.Cluster.URI()))
			},
		},
		"a hub's certificate at the agent": {
			reason: "a hub is not a cluster",
			agent: func(t *testing.T, h *tunneltest.Hub, c *tunneltest.Credentials) {
				t.Helper()
				c.Use(h.Authority.Issue(t, identity.Hub{ID: h.Authority.HubID}.URI()))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub := tunneltest.NewHub(t, nil)
				d := keepDiary(t, hub)
				cluster := hub.Authority.NewCluster("spoke1")
				network := tunneltest.NewNetwork(tunneltest.NetworkConfig{})
				agent := hub.Run(t, cluster, network, func(c *tunnel.AgentConfig) {
					if tc.agent != nil {
						tc.agent(t, hub, c.Credentials.(*tunneltest.Credentials))
					}
					c.DialPipe = func(_ context.Context, p pipe.DialConfig) (pipe.Link, error) {
						peer := pipe.Peer{Cluster: cluster, Process: p.Process, Remote: &net.TCPAddr{}}
						if tc.peer != nil {
							tc.peer(hub, &peer)
						}
						return hub.Serve(network, peer), nil
					}
				})
				time.Sleep(time.Minute)
				if agent.Ready() || len(d.lines()) != 0 {
					t.Errorf("connected although %s", tc.reason)
				}
				if agent.Status().Err == nil {
					t.Error("Status() has no error")
				}
			})
		})
	}
}

func TestThousandCutsLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := tunneltest.NewHub(t, nil)
		hub.Authority.Lifetime = 1000 * time.Hour
		hub.UseCertificate(hub.Authority.Issue(t, identity.Hub{ID: hub.Authority.HubID}.URI()))
		agent := hub.Connect(t, "spoke1", holding(newHold()))
		var streams sync.WaitGroup
		for range testscale.Of(150, 1000) {
			session := hub.Session(t, "spoke1")
			body := open(t, session)
			streams.Go(func() { _, _ = io.Copy(io.Discard, body) })
			agent.Network.Cut()
			<-session.Done()
			time.Sleep(time.Minute)
		}
		streams.Wait()
		if n := len(hub.Server.Sessions().List()); n != 1 {
			t.Errorf("%d sessions are left, want 1", n)
		}
	}) // the bubble fails unless every goroutine ends; goleak watches the rest
}

func TestSubscribersSeeChangesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := tunneltest.NewHub(t, nil)
		hub.Connect(t, "a", kube(echo))
		hub.Connect(t, "b", kube(echo))
		var seen []string
		cancel := hub.Server.Sessions().Subscribe(func(e tunnel.Event) {
			seen = append(seen, e.Cluster)
			// Looking around from within is allowed.
			_, _ = hub.Server.Sessions().Get(t.Context(), e.Cluster)
			hub.Server.Sessions().List()
		})
		hub.Connect(t, "c", kube(echo))
		cancel()
		hub.Connect(t, "d", kube(echo))
		if got := strings.Join(seen, ""); got != "abc" {
			t.Errorf("saw %q, want abc: the present, then changes, until cancel", got)
		}
	})
}
