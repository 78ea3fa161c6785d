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
	s := &spoke{feed: &feed{}, setStandby: func(bool) {}}
	hub := serveFeed(t, s.feed)
	life, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for life.Err() == nil {
			cutAfterOneChunk(life, hub)
			Pause(life, 100*time.Millisecond) // as a hub does not open another at once
		}
	}()
	defer func() {
		stop()
		<-ended
	}()
	if _, err := s.carryOut(t.Context(), Order{Do: Inventories, Within: time.Minute}); err != nil {
		t.Fatal(err)
	}
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	if s.feed.stream == nil || s.feed.streams < 2 {
		t.Errorf("the order is over without a stream after its own; there were %d", s.feed.streams)
	}
}

// cutAfterOneChunk is a hub that takes one message of a stream and cuts it.
func cutAfterOneChunk(ctx context.Context, hub rpcv1connect.SyncServiceClient) {
	ctx, cut := context.WithCancel(ctx)
	stream := hub.Sync(ctx)
	defer func() {
		cut()
		_ = stream.CloseRequest() // or the transport waits for more of it
	}()
	if err := stream.Send(nil); err == nil {
		_, _ = stream.Receive()
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
