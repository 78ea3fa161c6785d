// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spokelet/spokelet/internal/testing/testscale"
	"github.com/spokelet/spokelet/internal/testing/tunneltest"
	"github.com/spokelet/spokelet/tunnel"
)

// TestControlPassesOnASlowLink carries a bulk stream over 64 kbit/s, and
// measures what travels beside it: the hub's news, which go against the stream,
// and small answers on a reserved door, which go along with it. Once a ping has
// told how slow the link is, both take less than a second.
func TestControlPassesOnASlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := lastingHub(t)
		network := tunneltest.NewNetwork(tunneltest.NetworkConfig{
			Rate: 64_000 / 8, Latency: 100 * time.Millisecond, Buffer: 16 << 10,
		})
		agent := hub.Run(t, hub.Authority.NewCluster("spoke1"), network, func(c *tunnel.AgentConfig) {
			c.Doors = map[string]http.Handler{tunnel.DoorKube: http.HandlerFunc(endless), tunnel.DoorSync: http.HandlerFunc(echo)}
		})
		download := answerOf(t, hub)
		go func() { _, _ = io.Copy(io.Discard, download) }()
		time.Sleep(time.Minute)

		var answers []time.Duration
		for range 20 {
			time.Sleep(10 * time.Second)
			if took := tell(t, hub, agent); took > time.Second {
				t.Errorf("the hub's news took %v, want less than 1s", took)
			}
			began := time.Now()
			if _, err := io.Copy(io.Discard, ask(t, hub, "http://sync/")); err != nil {
				t.Fatal(err)
			}
			answers = append(answers, time.Since(began))
		}
		slices.Sort(answers)
		if median, longest := answers[len(answers)/2], answers[len(answers)-1]; median > time.Second || longest > 2*time.Second {
			t.Errorf("small answers took %v, and up to %v; want less than 1s", median, longest)
		}
	})
}

// tell measures how long the hub's news take to an agent.
func tell(t *testing.T, hub *tunneltest.Hub, agent *tunneltest.Agent) time.Duration {
	t.Helper()
	began, before := time.Now(), agent.Credentials.Bundles()
	hub.Server.Trust(hub.Authority.BundlePEM())
	for agent.Credentials.Bundles() == before && time.Since(began) < time.Minute {
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}

// TestSingleByteWritesCostBoundedTraffic reads answers that arrive in single
// bytes: four times the bytes may cost four times the processor, not sixteen.
func TestSingleByteWritesCostBoundedTraffic(t *testing.T) {
	cost := func(size int) (took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			hub := tunneltest.NewHub(t, nil)
			network := tunneltest.NewNetwork(tunneltest.NetworkConfig{Slice: 1})
			want := bytes.Repeat([]byte("0123456789abcdef"), size/16)
			hub.Run(t, hub.Authority.NewCluster("spoke1"), network, func(c *tunnel.AgentConfig) {
				c.Doors = kube(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(want) })
			})
			session := hub.Session(t, "spoke1")
			before := processor(t)
			resp, err := client(session).Get("http://kube/")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%d bytes, %v, want %d", len(got), err, len(want))
			}
			took = processor(t) - before
		})
		return took
	}
	// The collector works for what the tests before have left, too: the least of some
	// measurements is what the bytes cost.
	few := testscale.Of(32, 128) << 10
	small, large := cost(few), cost(4*few)
	for again := 4; again > 0 && large > 8*small; again-- {
		small, large = min(small, cost(few)), min(large, cost(4*few))
	}
	if large > 8*small {
		t.Errorf("%d bytes took %v of the processor, %d bytes %v: more than in proportion", 4*few, large, few, small)
	}
}

// TestSlowReaderHoldsBoundedMemory reads a log of 10 GiB at 1 KiB/s. What
// has not been read waits at its source, not in the hub or in the agent.
func TestSlowReaderHoldsBoundedMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := lastingHub(t)
		hub.Connect(t, "spoke1", kube(func(w http.ResponseWriter, _ *http.Request) {
			for range (10 << 30) / len(lesson) {
				if _, err := w.Write(lesson); err != nil {
					return
				}
			}
		}))
		for name, read := range map[string]io.Reader{"answer": answerOf(t, hub), "raw stream": rawAnswerOf(t, hub)} {
			const second = 1 << 10
			buffer := make([]byte, second)
			before := 0
			for i := range testscale.Of(1000, 100_000) {
				if _, err := io.ReadFull(read, buffer); err != nil {
					t.Fatalf("%s: after %d KiB: %v", name, i, err)
				}
				if i == 60 {
					before = memory()
				}
				time.Sleep(time.Second)
			}
			if grown := memory() - before; grown > 1<<20 {
				t.Errorf("%s: memory grew by %d bytes after the first minute, want at most 1 MiB", name, grown)
			}
		}
	})
}

func answerOf(t *testing.T, hub *tunneltest.Hub) io.Reader {
	t.Helper()
	return ask(t, hub, "http://kube/log")
}

func ask(t *testing.T, hub *tunneltest.Hub, url string) io.Reader {
	t.Helper()
	resp, err := client(hub.Session(t, "spoke1")).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp.Body
}

func rawAnswerOf(t *testing.T, hub *tunneltest.Hub) io.Reader {
	t.Helper()
	conn, err := hub.Session(t, "spoke1").Dial(t.Context(), tunnel.DoorKube)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, "GET /log HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return conn
}
