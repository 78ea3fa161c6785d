// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"connectrpc.com/connect"
	"github.com/go-logr/logr"

	"github.com/spokelet/spokelet/api/rpc/v1/rpcv1connect"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/internal/ratelimit"
)

// door is the URL at which every session serves Sync.
const door = "http://sync"

// HubReceiver is a [Receiver] for every cluster. The calls for one cluster never
// overlap, those for different clusters do; none may block.
type HubReceiver struct {
	Put func(cluster string, r Resource)
	// Keeps: Put, or whoever it hands a resource on to, closes the resource's Account,
	// once what was decoded is of no more use. Without Keeps that is when Put returns.
	Keeps  bool
	Delete func(cluster, key string)
	Synced func(cluster string)
	// Known is that of [Receiver].
	Known func(cluster, key string) bool
	// About, in place of Known, names a kind that the hub publishes: known is what
	// is published to the cluster under the same key.
	About string
	// After names a kind that the hub publishes, whose source is to be complete before
	// an agent is asked for this kind: until then it sends nothing of it.
	After string
}

// HubLoad is a [Load] for every cluster.
type HubLoad func(cluster, key string) (Resource, bool)

// HubAsked is called when the agent of a cluster mirrors a kind, and ceased when the
// stream ends over which it does. Neither may block.
type HubAsked func(cluster string) (ceased func())

// Hub is the hub's end: one exchange per cluster, kept between its sessions.
// Kinds are declared with Publish and Mirror before the first Run.
type Hub struct {
	mu        sync.Mutex
	published map[string]HubLoad
	observers map[string]HubAsked
	mirrored  map[string]HubReceiver
	clusters  map[string]*cluster
	memory    *quota.Memory
	log       logr.Logger
	// logLimiter bounds what is logged of what agents send.
	logLimiter ratelimit.LogLimiter
}

type cluster struct {
	exchange exchange
	sources  map[string]*Source
	mirrors  map[string]*Mirror
}

// NewHub returns a hub end without kinds.
func NewHub() *Hub {
	return &Hub{published: map[string]HubLoad{}, observers: map[string]HubAsked{}, mirrored: map[string]HubReceiver{}, clusters: map[string]*cluster{}}
}

// Limit has what agents send counted as it will be once it is decoded, on the accounts
// of their clusters, before it is: what does not fit now waits, with all that the same
// agent sends after it; what can never fit is dropped and logged. It is to be called
// before the first Run and Source.
func (h *Hub) Limit(memory *quota.Memory, log logr.Logger) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.memory, h.log = memory, log
}

// Publish declares a kind that the hub is the source of. With load the sources
// keep no bodies (see newSource); nil keeps them.
func (h *Hub) Publish(kind string, load HubLoad) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.published[kind] = load
}

// PublishAsked is Publish for what is costly to have, or not for everybody: asked is
// called for each cluster that mirrors the kind. Nothing of it is sent to others.
func (h *Hub) PublishAsked(kind string, load HubLoad, asked HubAsked) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.published[kind], h.observers[kind] = load, asked
}

// Mirror declares a kind that the agents are the source of.
func (h *Hub) Mirror(kind string, r HubReceiver) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mirrored[kind] = r
}

// Source of a published kind for one cluster, connected or not. It panics when
// the kind was not declared, which is a mistake of the program.
func (h *Hub) Source(name, kind string) *Source {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cluster(name).source(kind)
}

func (c *cluster) source(kind string) *Source {
	s, ok := c.sources[kind]
	if !ok {
		panic(fmt.Sprintf("resource: kind %q is not published", kind))
	}
	return s
}

// Forget drops what is known of a cluster that is no more. A stream in flight
// keeps its own ends until its session is cut.
func (h *Hub) Forget(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.clusters, name)
}

// cluster returns the exchange of a cluster, made on first use; h.mu is held.
func (h *Hub) cluster(name string) *cluster {
	if c, ok := h.clusters[name]; ok {
		return c
	}
	c := &cluster{sources: map[string]*Source{}, mirrors: map[string]*Mirror{}}
	c.exchange.limits = &limits{memory: h.memory, owner: name, maxBody: MaxReport, onRefused: func(kind, key string, err error) {
		if h.logLimiter.Allow(name) {
			h.log.Error(err, "agent sent more than is taken", "cluster", name, "kind", kind, "key", key)
		}
	}}
	for kind, load := range h.published {
		c.sources[kind] = newSource(kind, bindLoad(name, load), MaxBody)
		if asked := h.observers[kind]; asked != nil {
			c.sources[kind].onMirrored = func() func() { return asked(name) }
		}
	}
	for kind, r := range h.mirrored {
		c.mirrors[kind] = NewMirror(kind, bindReceiver(name, r))
		if r.About != "" {
			c.mirrors[kind].receiver.Known = c.source(r.About).has
		}
		if r.After != "" {
			c.mirrors[kind].after = c.source(r.After)
		}
	}
	c.exchange.ends = func() ([]*Source, []*Mirror) {
		return slices.Collect(maps.Values(c.sources)), slices.Collect(maps.Values(c.mirrors))
	}
	h.clusters[name] = c
	return c
}

func bindLoad(name string, load HubLoad) Load {
	if load == nil {
		return nil
	}
	return func(key string) (Resource, bool) { return load(name, key) }
}

func bindReceiver(name string, r HubReceiver) Receiver {
	out := Receiver{keepsAccount: r.Keeps}
	if r.Put != nil {
		out.Put = func(v Resource) { r.Put(name, v) }
	}
	if r.Delete != nil {
		out.Delete = func(key string) { r.Delete(name, key) }
	}
	if r.Synced != nil {
		out.Synced = func() { r.Synced(name) }
	}
	if r.Known != nil {
		out.Known = func(key string) bool { return r.Known(name, key) }
	}
	return out
}

// Run serves one session of a cluster until it or ctx ends and returns why. A
// later Run for the same cluster ends this one with ErrSuperseded.
func (h *Hub) Run(ctx context.Context, name string, session http.RoundTripper) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := rpcv1connect.NewSyncServiceClient(&http.Client{Transport: session}, door,
		connect.WithCodec(countingCodec{}), connect.WithReadMaxBytes(MaxReport+messageOverhead), connect.WithSendGzip(), connect.WithCompressMinBytes(compressAbove))
	h.mu.Lock()
	c := h.cluster(name)
	h.mu.Unlock()
	stream := client.Sync(ctx)
	abort := func() {
		cancel()
		// An HTTP/2 transport that waits for more of the request looks at its
		// context only after the request has ended.
		_ = stream.CloseRequest()
	}
	defer abort()
	begin := func() error {
		// A hub that mirrors nothing has nothing to say first.
		if err := stream.Send(nil); err != nil {
			return fmt.Errorf("sync send: %w", err)
		}
		return nil
	}
	err := c.exchange.serve(ctx, stream, begin, abort)
	if connect.CodeOf(err) == connect.CodeAborted {
		// The agent has let go of this stream for another, or another process.
		return fmt.Errorf("%w: by the agent: %w", ErrSuperseded, shortError{err})
	}
	return shortError{err}
}

// maxReason bounds the text of why a stream ended, which is the agent's to write and
// goes to the hub's log.
const maxReason = 1024

// shortError is an error whose text is cut to maxReason.
type shortError struct{ whole error }

func (b shortError) Error() string {
	text := b.whole.Error()
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}

func (b shortError) Unwrap() error { return b.whole }
