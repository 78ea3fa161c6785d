// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package spoke

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/spokelet/spokelet/api/rpc/v1/rpcv1connect"
)

func TestAnOrderThatEndsItsStreamIsOverOnceThereIsAnother(t *testing.T) {
	s := &spoke{feed: &feed{}}
	hub := serveFeed(t, s.feed)
	life, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for life.Err() == nil {
			stream := hub.Sync(life)
			err := stream.Send(nil)
			for err == nil {
				_, err = stream.Receive()
			}
			_ = stream.CloseRequest()
			Pause(life, 300*time.Millisecond) // as a hub does not open another at once
		}
	}()
	defer func() {
		stop()
		<-ended
	}()
	if _, err := s.carryOut(t.Context(), Order{Do: Inventories, Within: 300 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if got := s.feed.streamCount(); got != 2 {
		t.Errorf("got %d streams, want the one of the order and the one after it", got)
	}
}

// serveFeed serves a feed as the hostile spoke does.
func serveFeed(t *testing.T, f *feed) rpcv1connect.SyncServiceClient {
	t.Helper()
	_, replicator := rpcv1connect.NewSyncServiceHandler(f, connect.WithReadMaxBytes(maxReceived))
	server := httptest.NewUnstartedServer(serve(replicator))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return rpcv1connect.NewSyncServiceClient(&http.Client{Transport: server.Client().Transport}, server.URL)
}
