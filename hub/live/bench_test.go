// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spokelet/spokelet/internal/testing/tunneltest"
	"github.com/spokelet/spokelet/tunnel"
)

// The benchmarks ask through the server as the hub's API server does, by its
// front proxy, and through a session of the tunnel over memory:
//
//	go test -run '^$' -bench . ./hub/live

const smallObject = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"small","namespace":"bench","uid":"2b9f3c4e-9a0b-4a55-8a0e-1d8a2c8f5a11",` +
	`"resourceVersion":"512","creationTimestamp":"2026-01-01T00:00:00Z"},"data":{"k":"v"}}`

// serveSmallList is a kube door before an API server with little in it.
func serveSmallList(w http.ResponseWriter, r *http.Request) {
	answers := map[string]string{
		"/api":    `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis":   `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
		"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"configmaps","singularName":"configmap","namespaced":true,"kind":"ConfigMap","verbs":["get","list"]}]}`,
	}
	answer, ok := answers[r.URL.Path]
	if !ok {
		answer = smallObject
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, answer)
}

// tunnelSession is a session as package hub makes it of the tunnel's.
type tunnelSession struct{ *tunnel.Session }

func (s tunnelSession) Info() SessionInfo {
	return SessionInfo{ConnectedAt: s.Session.Info().ConnectedAt}
}

func startBenchmark(b *testing.B) (*liveServer, *http.Client) {
	b.Helper()
	hub := tunneltest.NewHub(b, nil)
	hub.Connect(b, "c1", map[string]http.Handler{tunnel.DoorKube: requireAlice(serveSmallList)})
	s := start(b, &fleet{clusters: map[string]Session{"c1": tunnelSession{hub.Session(b, "c1")}}}, allowAll, Limits{})
	client := s.frontProxyClient(b, "front-proxy")
	s.waitForStatus(b, client, http.StatusOK)
	return s, client
}

func BenchmarkProxyGet(b *testing.B) {
	s, client := startBenchmark(b)
	s.measure(b, client, http.MethodGet, livePath+"/clusters/c1/proxy/api/v1/namespaces/bench/configmaps/small", "", http.StatusOK)
}

func BenchmarkViewGet(b *testing.B) {
	s, client := startBenchmark(b)
	s.measure(b, client, http.MethodPost, livePath+"/namespaces/c1/viewworks",
		`{"apiVersion":"live.spokelet.io/v1alpha1","kind":"ViewWork","metadata":{"generateName":"b-"},`+
			`"spec":{"scope":{"resource":"configmaps","namespace":"bench","name":"small"}}}`, http.StatusCreated)
}

// measure reports the processor time of all ends together, which is what
// remains comparable on a busy machine.
func (s *liveServer) measure(b *testing.B, client *http.Client, method, path, body string, want int) {
	b.Helper()
	ask := func() {
		r, err := http.NewRequestWithContext(b.Context(), method, "https://"+s.address+path, strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}, "X-Remote-User": {"alice"}, "X-Remote-Group": {"devs"}}
		res, err := client.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		if text, err := io.ReadAll(res.Body); err != nil || res.StatusCode != want {
			b.Fatalf("answered %d %q, %v", res.StatusCode, text, err)
		}
	}
	ask()
	b.ReportAllocs()
	used := processorTime(b)
	for b.Loop() {
		ask()
	}
	b.ReportMetric(float64((processorTime(b)-used).Microseconds())/float64(b.N), "cpu-us/op")
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
