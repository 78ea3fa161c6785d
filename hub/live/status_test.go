// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestViewWorkReplacesInvalidStatusCode has a cluster fail requests with what its API
// server would never say, at the object and at discovery.
func TestViewWorkReplacesInvalidStatusCode(t *testing.T) {
	cases := map[string]struct {
		reason string
		http   int
		status string
		code   int32
		retry  int32
	}{
		"refusal":            {reason: "the cluster's own words", http: 403, status: `"status":"Failure","code":403`, code: 403},
		"one":                {reason: "no such code, writing it panics", http: 403, status: `"status":"Failure","code":1`, code: 403},
		"thousand":           {reason: "no such code, writing it panics", http: 403, status: `"status":"Failure","code":1000`, code: 403},
		"negative":           {reason: "no such code, writing it panics", http: 403, status: `"status":"Failure","code":-1`, code: 403},
		"informational":      {reason: "the answer would still be to come", http: 500, status: `"status":"Failure","code":100`, code: 500},
		"success in failure": {reason: "a failure would pass for an answer", http: 500, status: `"status":"Failure","code":200`, code: 500},
		"redirect in status": {reason: "it leads nowhere", http: 500, status: `"status":"Failure","code":302`, code: 500},
		"success":            {reason: "it is no failure, whatever its code", http: 500, status: `"status":"Success","code":404`, code: 500},
		"redirect":           {reason: "views follow none", http: 302, status: `"status":"Success","code":200`, code: 502},
		"no content":         {reason: "it holds no objects", http: 204, code: 502},
		"long wait":          {reason: "clients obey", http: 429, status: `"status":"Failure","code":429,"details":{"retryAfterSeconds":86400}`, code: 429, retry: 60},
		"short wait":         {reason: "it is the cluster's to say", http: 429, status: `"status":"Failure","code":429,"details":{"retryAfterSeconds":7}`, code: 429, retry: 7},
	}
	f := &fleet{clusters: map[string]Session{}}
	for name, tc := range cases {
		sp := newFakeCluster()
		f.clusters[name] = newTestAgent(t, func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/pods") {
				sp.serve(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(tc.http)
			if tc.status != "" {
				_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1",%s}`, tc.status)
			}
		})
	}
	s := start(t, f, allowAll, Limits{})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, failure := s.view(t, "alice", name, podsIn("a"))
			checkRefusal(t, tc.reason, failure, tc.code, tc.retry)
		})
	}
	question := podsIn("a")
	question.ClusterSelector = &metav1.LabelSelector{}
	v, failure := s.view(t, "alice", "anywhere", question)
	if failure != nil {
		t.Fatal(failure.Message)
	}
	for _, c := range v.Status.Clusters {
		if want := cases[c.Cluster].code; c.Error == nil || c.Error.Code != want {
			t.Errorf("%s: among many: %+v, want code %d", c.Cluster, c.Error, want)
		}
	}
}

func checkRefusal(t *testing.T, reason string, failure *metav1.Status, code, retry int32) {
	t.Helper()
	if failure == nil || failure.Status != metav1.StatusFailure || failure.Code != code {
		t.Fatalf("%s: %+v, want a failure with code %d", reason, failure, code)
	}
	if d := failure.Details; retry != 0 && (d == nil || d.RetryAfterSeconds != retry) {
		t.Errorf("%s: details %+v, want to wait %d s", reason, d, retry)
	}
}

func TestDiscoveryReplacesInvalidStatusCode(t *testing.T) {
	f, codes := &fleet{clusters: map[string]Session{}}, []int{-1, 1, 99, 100, 200, 302, 600, 1000}
	for i, code := range codes {
		f.clusters[fmt.Sprintf("c%d", i)] = newTestAgent(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d}`, code)
		})
	}
	s := start(t, f, allowAll, Limits{})
	for i, code := range codes {
		_, failure := s.view(t, "alice", fmt.Sprintf("c%d", i), podsIn("a"))
		if failure == nil || !isErrorCode(int(failure.Code)) {
			t.Errorf("code %d: answer %+v, want a failure", code, failure)
		}
	}
}

// statusCodeSession answers every request with a code, as a hostile agent's HTTP/2 can.
type statusCodeSession struct {
	brokenSession
	code int
}

func (c statusCodeSession) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: c.code, Header: http.Header{}, Body: http.NoBody}, nil
}

func TestProxyReplacesInvalidStatusCode(t *testing.T) {
	codes := map[int]int{
		-1: 502, 0: 502, 1: 502, 99: 502, 600: 502, 999: 502, 1000: 502, 200: 200, 404: 404, 599: 599,
		100: 502, 101: 502, 102: 502, 103: 502, 199: 502, // they end no request
	}
	f := &fleet{clusters: map[string]Session{}}
	for code := range codes {
		f.clusters[fmt.Sprintf("c%d", code)] = statusCodeSession{code: code}
	}
	s := start(t, f, allowAll, Limits{})
	for code, want := range codes {
		res := s.do(t, http.MethodGet, fmt.Sprintf("%s/clusters/c%d/proxy/api", livePath, code), "alice", nil)
		raw, _ := io.ReadAll(res.Body)
		if res.StatusCode != want || want == 502 && !strings.Contains(string(raw), "answer has no valid status code") {
			t.Errorf("code %d: answered %d %s, want %d", code, res.StatusCode, raw, want)
		}
	}
}

// TestProxyRefusesRedirect has a cluster send callers elsewhere: a client
// that follows would ask the hub, with its credentials for the hub.
func TestProxyRefusesRedirect(t *testing.T) {
	cases := map[string]struct {
		reason   string
		code     int
		location string
		want     int
	}{
		"moved":        {reason: "the place is the cluster's choice", code: 301, location: "/api/v1/secrets", want: 502},
		"found":        {reason: "the place is the cluster's choice", code: 302, location: "//evil.example/", want: 502},
		"same method":  {reason: "a body would go along", code: 307, location: "/api/v1/namespaces", want: 502},
		"not modified": {reason: "it leads nowhere", code: 304, want: 304},
		"created":      {reason: "clients do not follow it", code: 201, location: "/api/v1/namespaces/a", want: 201},
		"choices":      {reason: "a client may choose the first", code: 300, location: "/api/v1/secrets", want: 502},
		"odd":          {reason: "some readers follow it whatever the code", code: 404, location: "/api/v1/secrets", want: 502},
		"busy":         {reason: "some readers follow it whatever the code", code: 503, location: "/api/v1/secrets", want: 502},
	}
	s := start(t, &fleet{clusters: map[string]Session{"c1": newTestAgent(t, func(w http.ResponseWriter, r *http.Request) {
		tc := cases[r.URL.Query().Get("case")]
		if tc.location != "" {
			w.Header().Set("Location", tc.location)
		}
		w.WriteHeader(tc.code)
	})}}, allowAll, Limits{})
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := "/exec?case=" + strings.ReplaceAll(name, " ", "%20")
			res := s.do(t, http.MethodGet, livePath+"/clusters/c1/proxy"+path, "alice", nil)
			if location := res.Header.Get("Location"); res.StatusCode != tc.want || tc.want == 502 && location != "" {
				t.Errorf("%s: answered %d to %q, want %d", tc.reason, res.StatusCode, location, tc.want)
			}
			_, br := s.dial(t, upgradeRequest("alice", path, ""))
			res, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }()
			if res.StatusCode != tc.want {
				t.Errorf("%s: an upgrade is answered %d, want %d", tc.reason, res.StatusCode, tc.want)
			}
		})
	}
}
