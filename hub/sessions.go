// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/hub/live"
	"github.com/spokelet/spokelet/provider"
	"github.com/spokelet/spokelet/provider/kubelet"
	"github.com/spokelet/spokelet/tunnel"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// The parts know sessions by interfaces of their own; these are the tunnel's
// sessions in those forms.

// liveSessions is live.Sessions.
type liveSessions struct{ *tunnel.Sessions }

func (s liveSessions) Get(ctx context.Context, cluster string) (live.Session, error) {
	session, err := s.Sessions.Get(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return liveSession{session}, nil
}

func (s liveSessions) Subscribe(f func(live.SessionEvent)) (cancel func()) {
	return s.Sessions.Subscribe(func(e tunnel.Event) {
		event := live.SessionEvent{Cluster: e.Cluster, Reason: e.Reason}
		if e.Session != nil {
			event.Session = liveSession{e.Session}
		}
		f(event)
	})
}

// liveSession is live.Session; equal sessions are equal values.
type liveSession struct{ *tunnel.Session }

func (s liveSession) Info() live.SessionInfo {
	info := s.Session.Info()
	return live.SessionInfo{
		ConnectedAt:   info.ConnectedAt,
		RTT:           info.RTT,
		AgentVersion:  info.AgentVersion,
		Protocol:      strconv.FormatUint(uint64(info.Protocol), 10),
		ProcessID:     info.ProcessID,
		KubeSystemUID: info.KubeSystemUID,
	}
}

// linkSource is provider.Links. The tunnel is made after the nodes, and asked only
// once both run.
type linkSource struct{ h *hub }

func (l linkSource) Subscribe(f func(provider.Link)) (cancel func()) {
	return provider.LinksOf(l.h.tunnel.Sessions()).Subscribe(f)
}

// nodeRemover is registration.NodeRemover: what is known of a cluster goes with
// its node, in Sync too (which pods does), or the cluster would not be told of
// again when it comes back.
type nodeRemover struct{ h *hub }

func (r nodeRemover) Remove(ctx context.Context, cluster string) error {
	if err := r.h.nodes.Remove(ctx, cluster); err != nil {
		return err
	}
	r.h.pods.RemoveCluster(cluster)
	r.h.nodes.Forget(cluster)
	return nil
}

// nodeTransport is kubelet.Door.
func (h *hub) nodeTransport(ctx context.Context, node string) (http.RoundTripper, error) {
	cluster, _ := wire.ParseNodeName(node)
	session, err := h.tunnel.Sessions().Get(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return labelingSession{session, h.nodes.SplitLabel(cluster)}, nil
}

// nodeSession is what kubelet endpoints need of a session: answers and raw streams.
type nodeSession interface {
	http.RoundTripper
	kubelet.Dialer
}

// labelingSession tells the door "node" by which label the hub shows the cluster.
type labelingSession struct {
	nodeSession
	label string
}

// RoundTrip sends a request with the label.
func (s labelingSession) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.label != "" && r.URL.Host == tunnel.DoorNode {
		r = r.Clone(r.Context())
		r.Header.Set(wire.SplitLabelHeader, s.label)
	}
	return s.nodeSession.RoundTrip(r)
}

// watchSessions reports sessions to registration and runs Sync over each, until
// ctx ends and every stream has.
func (h *hub) watchSessions(ctx context.Context) error {
	var streams sync.WaitGroup
	cancel := h.tunnel.Sessions().Subscribe(func(e tunnel.Event) {
		if e.Session == nil {
			h.registration.SessionChanged(e.Cluster, nil)
			return
		}
		who := e.Session.Cluster()
		h.registration.SessionChanged(e.Cluster, &who)
	})
	cancelSync := h.tunnel.Sessions().SubscribeExecutor(func(e tunnel.Event) {
		if e.Session != nil {
			streams.Go(func() { h.runSync(ctx, e.Session) })
		}
	})
	<-ctx.Done()
	cancel()
	cancelSync()
	streams.Wait()
	return nil
}

// runSync replicates over one session, for as long as it is the one in use. A
// stream that ends while its session lives would leave works unanswered, so the
// session is given up with it.
func (h *hub) runSync(ctx context.Context, session *tunnel.Session) {
	cluster := session.Cluster().Name
	defer h.pods.Open(cluster)()
	err := h.sync.Run(ctx, cluster, session)
	if ctx.Err() != nil || errors.Is(err, resource.ErrSuperseded) {
		return
	}
	// One that has ended, or drains because a newer one took its place, is no
	// loss.
	if current, _ := h.tunnel.Sessions().Get(ctx, cluster); current != session || session.Info().Draining {
		return
	}
	h.opts.Logger.Error(err, "sync ended before its session", "cluster", cluster)
	session.Discard(fmt.Errorf("sync: %w", err))
}
