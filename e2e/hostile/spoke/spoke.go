// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package spoke

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/spokelet/spokelet/api/rpc/v1/rpcv1connect"
	"github.com/spokelet/spokelet/e2e/fleet"
	"github.com/spokelet/spokelet/tunnel"
)

// spoke is an agent whose answers an attack chooses.
type spoke struct {
	agent *tunnel.Agent
	// setStandby is the agent's: whether it executes works.
	setStandby func(standby bool)

	feed *feed
	kube door
	node door
	// restoreDoor ends what a door answers because of an order; nil if none does.
	restoreDoor func() int64

	stop  context.CancelFunc
	ended sync.WaitGroup
}

// door answers by what an attack has put in, and counts; else as an honest cluster does.
type door struct {
	handler atomic.Pointer[http.Handler]
	served  atomic.Int64
	honest  http.Handler
}

// ServeHTTP implements http.Handler.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := d.handler.Load(); h != nil {
		d.served.Add(1)
		(*h).ServeHTTP(w, r)
		return
	}
	d.honest.ServeHTTP(w, r)
}

// answer has the door answer by h until the returned function is called, which
// returns how many requests came.
func (d *door) answer(h http.Handler) (restore func() int64) {
	d.served.Store(0)
	d.handler.Store(&h)
	return func() int64 {
		d.handler.Store(nil)
		return d.served.Load()
	}
}

// join joins the cluster and waits until it is connected.
func join(ctx context.Context, invitation []byte) (*spoke, error) {
	summary, err := fleet.Summary(split())
	if err != nil {
		return nil, err
	}
	s := &spoke{feed: &feed{summary: summary}, kube: door{honest: fleet.Kube()}, node: door{honest: http.HandlerFunc(usual)}}
	_, replicator := rpcv1connect.NewSyncServiceHandler(s.feed, connect.WithCompressMinBytes(1), connect.WithReadMaxBytes(maxReceived))
	s.agent, err = fleet.Join(ctx, invitation, map[string]http.Handler{
		tunnel.DoorSync: serve(replicator), tunnel.DoorKube: &s.kube, tunnel.DoorNode: &s.node,
	}, true)
	if err != nil {
		return nil, err
	}
	s.setStandby = s.agent.SetStandby
	s.setStandby(false)
	// The agent lives until close, which ends it in order.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.ended.Go(func() { _ = s.agent.Run(life) }) // ends with life
	if err := s.connected(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// connected waits until a session lives.
func (s *spoke) connected(ctx context.Context) error {
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return s.agent.Ready(), nil
	})
}

func (s *spoke) close() {
	s.stop()
	s.ended.Wait()
}
