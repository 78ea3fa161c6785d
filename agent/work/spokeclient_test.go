// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/work/inventory"
)

// busy is an API server that has no room for the first request.
func busy(t *testing.T) (s *spokeClient, requests *atomic.Int32) {
	t.Helper()
	requests = &atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if requests.Add(1) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429}`))
			return
		}
		_, _ = w.Write([]byte(`{"kind":"WidgetList","apiVersion":"x.io/v1","metadata":{},"items":[]}`))
	}))
	t.Cleanup(server.Close)
	s, err := newSpokeClient(&rest.Config{Host: server.URL}, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s, requests
}

func TestClientDoesNotDelayRefusedWatch(t *testing.T) {
	s, requests := busy(t)
	sc := inventory.Scope{GroupVersionResource: schema.GroupVersionResource{Group: "x.io", Version: "v1", Resource: "widgets"}}
	w, err := s.newFeed(sc).Watch(t.Context(), metav1.ListOptions{})
	if err == nil {
		w.Stop()
	}
	if !apierrors.IsTooManyRequests(err) || requests.Load() != 1 {
		t.Errorf("%d requests, error %v: the storage of a new kind is made in milliseconds, the client waits a second", requests.Load(), err)
	}
}

func TestClientRetriesRefusedRequest(t *testing.T) {
	s, requests := busy(t)
	sc := inventory.Scope{GroupVersionResource: schema.GroupVersionResource{Group: "x.io", Version: "v1", Resource: "widgets"}}
	if _, err := s.newFeed(sc).List(t.Context(), metav1.ListOptions{}); err != nil || requests.Load() != 2 {
		t.Errorf("%d requests, error %v: an overloaded API server says when to come back", requests.Load(), err)
	}
}
