// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	workv1 "open-cluster-management.io/api/work/v1"
)

// recorded is an API server that has nothing, and the paths that were asked for.
func recorded(t *testing.T) (cfg *rest.Config, paths func() []string) {
	t.Helper()
	asked := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked <- req.URL.Path
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}, func() []string {
		var got []string
		for len(asked) > 0 {
			got = append(got, <-asked)
		}
		return got
	}
}

func TestAnApplyOfAnotherWorkHoldsUpOneObjectAlone(t *testing.T) {
	cfg, paths := recorded(t)
	e, w, at := anchored(t, "A")
	var err error
	if e.spoke, err = newSpoke(cfg, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.spoke.close)
	d := &desired{}
	w.want = d
	after := at
	after.Name = "after"
	order := []*step{{at: at}, {at: after, manifest: manifest{ordinal: 1}}}
	for _, s := range order {
		s.how.strategy = workv1.UpdateStrategyTypeReadOnly
		e.table.claim(s.at, w.key.String(), w.anchor.uid)
		s.content = body
	}
	e.table.claim(at, "x", "anchor-x")
	e.table.begin(at.objectID, "x", time.Now()) // it repeats the reference that the work gives up now
	e.table.intend(at.objectID, w.key.String(), order[0].intent())

	if _, _, err := e.take(t.Context(), w, d, order); !errors.Is(err, errRepeated) {
		t.Errorf("error %v, want %v", err, errRepeated)
	}
	want := []string{"/api/v1/namespaces/n/configmaps/after"}
	if got := paths(); !slices.Equal(got, want) {
		t.Errorf("while another work applies one of two objects: requests %v, want %v", got, want)
	}
}
