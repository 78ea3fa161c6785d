// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/provider/pod/podobject"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// away is the way to an API server that cannot be had.
type away func(*http.Request) (*http.Response, error)

func (a away) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

func TestWatchesStopAtOnceWithoutAPIServer(t *testing.T) {
	cases := map[string]struct {
		reason string
		way    away
	}{
		"it is down": {"a reflector waits for it", func(*http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
		}},
		"it is busy": {"a reflector waits for it, too", func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusTooManyRequests, Body: io.NopCloser(strings.NewReader(""))}, nil
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://hub.test", QPS: -1, Transport: tc.way})
				if err != nil {
					t.Fatal(err)
				}
				k, err := New(Config{Client: client, Sync: resource.NewHub(), Registerer: prometheus.NewRegistry()})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- k.Start(ctx) }()
				k.objects.AddReference(podobject.NewSubscriber(spoke), wire.PodObjectKey{Kind: wire.PodObjectSecret, Namespace: "default", Name: "s"})
				stop := k.Watch(t.Context(), spoke)
				<-time.After(time.Hour)
				synctest.Wait()
				began := time.Now()
				stop()
				if took := time.Since(began); took > 0 {
					t.Errorf("%s: the watch of a node's pods ended after %s", tc.reason, took)
				}
				cancel()
				if err := <-done; err != nil || time.Since(began) > 0 {
					t.Errorf("%s: the controller ended after %s: %v", tc.reason, time.Since(began), err)
				}
			})
		})
	}
}
