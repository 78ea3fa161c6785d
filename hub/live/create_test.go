// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

const podsQuestion = `{"apiVersion":"live.spokelet.io/v1alpha1","kind":"ViewWork","metadata":{"name":"look"},"spec":{"scope":{"resource":"po","namespace":"a"}}}`

func TestCreateViewWorkReadsWholeBodyOrFails(t *testing.T) {
	s := start(t, &fleet{clusters: map[string]Session{"c1": brokenSession{err: errors.New("must not be asked")}, "c2": newTestAgent(t, newFakeCluster().serve)}}, allowAll, Limits{})
	yaml := "apiVersion: live.spokelet.io/v1alpha1\nkind: ViewWork\nspec:\n  scope: {resource: po, namespace: a}\n"
	cases := map[string]struct {
		reason  string
		cluster string
		query   string
		media   string
		body    string
		code    int
		message string
	}{
		"JSON":               {reason: "the usual case", cluster: "c2", body: podsQuestion, code: 201, message: `"items":2`},
		"YAML":               {reason: "people write it", cluster: "c2", media: "application/yaml", body: yaml, code: 201, message: `"items":2`},
		"without a type":     {reason: "the path has it", cluster: "c2", body: `{"spec":{"scope":{"resource":"po","namespace":"a"}}}`, code: 201, message: `"kind":"ViewWork"`},
		"dry run":            {reason: "nothing is asked", query: "?dryRun=All", body: podsQuestion, code: 201, message: `"name":"look"`},
		"odd dry run":        {reason: "it may be meant to ask nothing", query: "?dryRun=Some", body: podsQuestion, code: 422, message: "dryRun"},
		"unknown field":      {reason: "a dropped selector selects everything", body: strings.Replace(podsQuestion, `"namespace"`, `"nameSpaces"`, 1), code: 400, message: "nameSpaces"},
		"field twice":        {reason: "which one?", body: strings.Replace(podsQuestion, `"scope":`, `"scope":{},"scope":`, 1), code: 400, message: "scope"},
		"other kind":         {reason: "it is no question", body: strings.Replace(podsQuestion, `"ViewWork"`, `"Cluster"`, 1), code: 400, message: "Cluster"},
		"other group":        {reason: "it is somebody else's", body: strings.Replace(podsQuestion, "live.spokelet.io", "x.io", 1), code: 400, message: "ViewWork"},
		"other namespace":    {reason: "one namespace is authorized and asked", body: strings.Replace(podsQuestion, `"name":"look"`, `"namespace":"c2"`, 1), code: 400, message: "namespace"},
		"unknown media type": {reason: "it cannot be read", media: "text/plain", body: podsQuestion, code: 415, message: "media type"},
		"no JSON":            {reason: "it cannot be read", body: "<html>", code: 400, message: "ViewWork"},
		"empty":              {reason: "nothing is asked", body: "", code: 400, message: "ViewWork"},
		"too large":          {reason: "memory is bounded", body: strings.Replace(podsQuestion, `"look"`, `"`+strings.Repeat("x", maxViewWork)+`"`, 1), code: 413, message: "limit"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cluster, media := "c1", "application/json"
			if tc.cluster != "" {
				cluster = tc.cluster
			}
			if tc.media != "" {
				media = tc.media
			}
			res := s.do(t, http.MethodPost, livePath+"/namespaces/"+cluster+"/viewworks"+tc.query, "alice",
				http.Header{"Content-Type": {media}, "Accept": {"application/json"}}, tc.body)
			raw, err := io.ReadAll(res.Body)
			if err != nil || res.StatusCode != tc.code || !strings.Contains(string(raw), tc.message) {
				t.Errorf("%s: answered %d %.300s, %v; want %d naming %q", tc.reason, res.StatusCode, raw, err, tc.code, tc.message)
			}
		})
	}
}

// incompleteRequest begins a question and never sends its last byte.
func incompleteRequest(user string) string { return rawViewRequest(user, len(podsQuestion)+1) }

// rawViewRequest is a request of HTTP/1.1 with a question that is said to have so many
// bytes.
func rawViewRequest(user string, length int) string {
	return fmt.Sprintf("POST %s/namespaces/c1/viewworks HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		livePath, user, length, podsQuestion)
}

// TestEndlessBodiesUseSlotsOfTheirUserOnly has one user send more of them
// than the server has requests in flight.
func TestEndlessBodiesUseSlotsOfTheirUserOnly(t *testing.T) {
	const bodies, turns = 210, 4
	s := start(t, &fleet{clusters: map[string]Session{"c1": newTestAgent(t, newFakeCluster().serve)}}, allowAll, Limits{ViewBodyTimeout: 5 * time.Minute})
	type connection struct {
		conn *tls.Conn
		br   *bufio.Reader
	}
	var all []connection
	for range bodies {
		conn, br := s.dial(t, incompleteRequest("mallory"))
		all = append(all, connection{conn, br})
	}
	refused := make(chan bool, bodies)
	for _, c := range all {
		go func() {
			_ = c.conn.SetReadDeadline(time.Now().Add(time.Minute))
			res, err := http.ReadResponse(c.br, nil)
			if err == nil {
				_ = res.Body.Close()
			}
			refused <- err == nil && res.StatusCode == http.StatusTooManyRequests
		}()
	}
	for range bodies - turns {
		if !<-refused {
			t.Fatal("a body beyond the limit of its user is waited for")
		}
	}
	if _, failure := s.view(t, "alice", "c1", podsIn("a")); failure != nil {
		t.Errorf("another user: %d %s, want an answer", failure.Code, failure.Message)
	}
	if _, failure := s.view(t, "mallory", "c1", podsIn("a")); failure == nil || failure.Code != http.StatusTooManyRequests {
		t.Errorf("the same user: %+v, want 429", failure)
	}
	select {
	case <-refused:
		t.Error("a body within the limit of its user is not waited for")
	default:
	}
	for _, c := range all {
		_ = c.conn.Close()
	}
	for range turns {
		<-refused
	}
}

func TestEndlessBodyTimesOut(t *testing.T) {
	t.Parallel() // it waits
	limits := Limits{ViewsPerUser: 1, ViewBodyTimeout: 2 * time.Second}
	s := start(t, &fleet{clusters: map[string]Session{"c1": newTestAgent(t, newFakeCluster().serve)}}, allowAll, limits)
	_, br := s.dial(t, incompleteRequest("bob"))
	if rest, err := io.ReadAll(br); err != nil && len(rest) == 0 {
		t.Errorf("by HTTP/1.1: %v, want an end in order", err)
	}
	body, never := io.Pipe()
	defer func() { _ = never.Close() }()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+s.address+livePath+"/namespaces/c1/viewworks", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Authorization": {"Bearer mallory"}, "Content-Type": {"application/json"}}
	res, err := s.client.Do(r)
	if err != nil || res.StatusCode != http.StatusGatewayTimeout {
		t.Fatalf("by HTTP/2: answered %v, %v; want 504", res, err)
	}
	_ = res.Body.Close()
	if _, failure := s.view(t, "mallory", "c1", podsIn("a")); failure != nil {
		t.Errorf("thereafter: %d %s, want an answer", failure.Code, failure.Message)
	}
}

// TestBodyDeadlineDoesNotOutliveBody has an answer take longer than a body may, on a
// connection of either protocol.
func TestBodyDeadlineDoesNotOutliveBody(t *testing.T) {
	t.Parallel() // it waits
	sp, limits := newFakeCluster(), Limits{ViewBodyTimeout: 2 * time.Second}
	s := start(t, &fleet{clusters: map[string]Session{"c1": newTestAgent(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/pods") {
			select {
			case <-time.After(2 * limits.ViewBodyTimeout):
			case <-r.Context().Done():
			}
		}
		sp.serve(w, r)
	})}}, allowAll, limits)
	second := make(chan error, 1)
	go func() {
		_, br := s.dial(t, rawViewRequest("bob", len(podsQuestion)))
		res, err := http.ReadResponse(br, nil)
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode != http.StatusCreated {
				err = fmt.Errorf("answered %d", res.StatusCode)
			}
		}
		second <- err
	}()
	if _, failure := s.view(t, "alice", "c1", podsIn("a")); failure != nil {
		t.Errorf("by HTTP/2: %d %s, want an answer", failure.Code, failure.Message)
	}
	if err := <-second; err != nil {
		t.Errorf("by HTTP/1.1: %v", err)
	}
}
