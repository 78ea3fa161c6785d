// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/spokelet/spokelet/api/wire"
)

// A process that dies may leave a request on its way, of which nobody would know.
func TestProxyRefusesChangesAfterProcessEnds(t *testing.T) {
	c := newCluster(t)
	r := newRun(t, c, "works", nil)
	begun := 0
	g, err := r.runner.newClusterProxy(t.Context(), wire.Requester{User: "alice"}, func(context.Context) error { begun++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := g.close(); err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	g.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/a/configmaps", strings.NewReader("{}")))
	if answer.Code != http.StatusServiceUnavailable || begun != 0 || len(c.seen()) > 0 {
		t.Errorf("answer %d, begun %d times, requests %q", answer.Code, begun, c.seen())
	}
}

// A busy machine takes its time to start a process, which says nothing until then.
func TestSlowProcessReachesCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		stop := serve(ours, ok, extraTime, logr.Discard())
		defer stop()
		time.Sleep(extraTime - time.Second)
		client, err := exceedMemory(theirs).NewClientConn(t.Context(), "http", "cluster:80")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = client.Close() }()
		response, err := client.RoundTrip(httptest.NewRequest(http.MethodGet, "http://cluster/version", http.NoBody))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
	})
}
