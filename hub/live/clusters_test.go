// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
)

func TestServerServesClusters(t *testing.T) {
	f := &fleet{clusters: map[string]Session{"c1": newTestAgent(t, newFakeCluster().serve), "c2": nil}}
	s := start(t, f, allowAll, Limits{})
	res := s.do(t, http.MethodGet, livePath+"/clusters", "alice", http.Header{"Accept": {"application/json;as=Table;g=meta.k8s.io;v=v1"}})
	var table metav1.Table
	if err := json.NewDecoder(res.Body).Decode(&table); err != nil {
		t.Fatal(err)
	}
	var columns, cells []string
	for _, c := range table.ColumnDefinitions {
		if c.Priority == 0 {
			columns = append(columns, c.Name)
		}
	}
	for _, r := range table.Rows {
		cells = append(cells, fmt.Sprint(r.Cells[0], r.Cells[1], r.Cells[5]))
	}
	if diff := cmp.Diff([]string{"Name", "Connected", "Since", "RTT", "Version", "Agent"}, columns); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"c1Truev0.1.0", "c2False"}, cells); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if res := s.do(t, http.MethodGet, livePath+"/clusters/nope", "alice", nil); res.StatusCode != http.StatusNotFound {
		t.Errorf("unknown cluster: %d", res.StatusCode)
	}
	if res := s.do(t, http.MethodGet, livePath+"/clusters?fieldSelector=status.connected%3Dtrue", "alice", nil); res.StatusCode != http.StatusBadRequest {
		t.Errorf("unknown field selector: %d", res.StatusCode)
	}
}

func TestServerServesClusterWatches(t *testing.T) {
	const stream = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	cases := map[string]struct {
		reason string
		query  string
		want   []string
	}{
		"one":      {reason: "as kubectl get -w of a name asks", query: "&fieldSelector=metadata.name%3Dc2", want: []string{"ADDED c2 false", "MODIFIED c2 true"}},
		"streamed": {reason: "as informers ask (KEP-3157)", query: stream, want: []string{"ADDED c1 true", "ADDED c2 false", "BOOKMARK  false", "MODIFIED c2 true"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := &fleet{clusters: map[string]Session{"c1": newTestAgent(t, newFakeCluster().serve), "c2": nil}}
			s := start(t, f, allowAll, Limits{})
			events := json.NewDecoder(s.do(t, http.MethodGet, livePath+"/clusters?watch=1"+tc.query, "alice", nil).Body)
			for i, want := range tc.want {
				var e struct {
					Type   string               `json:"type"`
					Object livev1alpha1.Cluster `json:"object"`
				}
				if err := events.Decode(&e); err != nil {
					t.Fatalf("%s: %v", tc.reason, err)
				}
				if got := fmt.Sprintf("%s %s %v", e.Type, e.Object.Name, e.Object.Status.Connected); got != want {
					t.Errorf("%s: event %q, want %q", tc.reason, got, want)
				}
				if i == len(tc.want)-2 {
					f.set("c2", f.clusters["c1"])
				}
			}
		})
	}
}
