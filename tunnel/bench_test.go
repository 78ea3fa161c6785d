// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/spokelet/spokelet/internal/testing/tunneltest"
	"github.com/spokelet/spokelet/tunnel"
)

// The benchmarks compare a session over konnectivity with HTTP/2 over TLS
// without a tunnel, in one process over loopback:
//
//	go test -run '^$' -bench . ./tunnel
var kibibyte = bytes.Repeat([]byte("x"), 1<<10)

func small(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(kibibyte) }

// bulk sends 64 MiB.
func bulk(w http.ResponseWriter, _ *http.Request) {
	chunk := make([]byte, 32<<10)
	for range (64 << 20) / len(chunk) {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

func benchMux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/small", small)
	mux.HandleFunc("/bulk", bulk)
	mux.HandleFunc("/endless", endless)
	return mux
}

// transports are the ways to reach benchMux.
func transports(b *testing.B) map[string]http.RoundTripper {
	b.Helper()
	hub, addr := listen(b, nil)
	runOver(b, hub, addr, "spoke1", map[string]http.Handler{tunnel.DoorKube: benchMux()})
	memory := tunneltest.NewHub(b, nil)
	memory.Connect(b, "spoke1", map[string]http.Handler{tunnel.DoorKube: benchMux()})
	return map[string]http.RoundTripper{
		"direct":  direct(b),
		"session": hub.Session(b, "spoke1"),
		"memory":  memory.Session(b, "spoke1"),
	}
}

func direct(b *testing.B) http.RoundTripper {
	b.Helper()
	server := httptest.NewUnstartedServer(benchMux())
	server.EnableHTTP2 = true
	server.StartTLS()
	b.Cleanup(server.Close)
	only := &http.Protocols{}
	only.SetHTTP2(true)
	transport := &http.Transport{
		Protocols:       only,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
		},
	}
	b.Cleanup(transport.CloseIdleConnections)
	return transport
}

func fetch(b *testing.B, rt http.RoundTripper, path string) int64 {
	b.Helper()
	req, err := http.NewRequest(http.MethodGet, "https://kube"+path, nil)
	if err != nil {
		b.Fatal(err)
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// cpu reports the processor time per operation, of everything in the process:
// it is what remains comparable on a busy machine.
func cpu(b *testing.B) func() {
	b.Helper()
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	began := used()
	return func() { b.ReportMetric(float64((used()-began).Microseconds())/float64(b.N), "cpu-us/op") }
}

func BenchmarkGet(b *testing.B) {
	for name, rt := range transports(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			defer cpu(b)()
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				fetch(b, rt, "/small")
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
		})
	}
}

func BenchmarkGet64(b *testing.B) {
	for name, rt := range transports(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			defer cpu(b)()
			b.SetParallelism(32) // times the processors
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					fetch(b, rt, "/small")
				}
			})
		})
	}
}

func BenchmarkBulk(b *testing.B) {
	for name, rt := range transports(b) {
		b.Run(name, func(b *testing.B) {
			defer cpu(b)()
			for b.Loop() {
				b.SetBytes(fetch(b, rt, "/bulk"))
			}
		})
	}
}

// BenchmarkSlowLink is a small GET beside a bulk download at 100 Mbit/s and 50
// ms round trip, in round trips.
func BenchmarkSlowLink(b *testing.B) {
	const rtt = 50 * time.Millisecond
	hub := tunneltest.NewHub(b, nil)
	network := tunneltest.NewNetwork(tunneltest.NetworkConfig{Latency: rtt / 2, Rate: 100e6 / 8, Buffer: 4 << 20})
	hub.Run(b, hub.Authority.NewCluster("spoke1"), network, func(c *tunnel.AgentConfig) {
		c.Doors = map[string]http.Handler{tunnel.DoorKube: benchMux()}
	})
	session := hub.Session(b, "spoke1")
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://kube/endless", nil)
	if err != nil {
		b.Fatal(err)
	}
	resp, err := session.RoundTrip(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	var moved int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		moved, _ = io.Copy(io.Discard, resp.Body)
	}()
	began := time.Now()
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		fetch(b, session, "/small")
		took = append(took, time.Since(start))
	}
	elapsed := time.Since(began)
	cancel()
	<-done
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/float64(rtt), "rtt")
	b.ReportMetric(float64(moved)/elapsed.Seconds()/1e6, "bulk-MB/s")
}

// BenchmarkStalled is the p99 of a small GET, alone and beside a stream whose
// reader has stopped.
func BenchmarkStalled(b *testing.B) {
	hub, addr := listen(b, nil)
	runOver(b, hub, addr, "spoke1", map[string]http.Handler{tunnel.DoorKube: benchMux()})
	session := hub.Session(b, "spoke1")
	measure := func(b *testing.B) {
		b.Helper()
		var took []time.Duration
		for b.Loop() {
			start := time.Now()
			fetch(b, session, "/small")
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
	}
	b.Run("alone", measure)
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://kube/endless", nil)
	if err != nil {
		b.Fatal(err)
	}
	resp, err := session.RoundTrip(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	b.Run("beside a stalled stream", measure)
}
