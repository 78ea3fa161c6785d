// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/testing/resourcetest"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// rig is a hub and a cluster, with what survives the processes of the agent. It lives in a
// bubble.
type rig struct {
	t                      *testing.T
	hub, spoke             *fakeStore
	up                     *fakeHub
	disk                   *fakeDisk
	network                *fakeNetwork
	events                 *fakeEvents
	rand                   *rand.Rand
	verbose                bool
	hubStatus, spokeStatus bool
	process                *process
	// cut ends the tunnel; nil while there is none.
	cut   func()
	quota wire.SharedSize
	// before are the writes in the cluster of processes that are no more.
	before []string
}

// process is one of the agent.
type process struct {
	engine  *Engine
	agent   *resource.Agent
	client  *fakeClient
	records *fakeRecords
	end     func()
}

// options say what a rig is.
type options struct {
	share                  wire.Share
	hubStatus, spokeStatus bool
	seed                   uint64
	// quota is that of the cluster's owner; without one there is much room.
	quota wire.SharedSize
}

func newRig(t *testing.T, o options) *rig {
	t.Helper()
	r := &rig{
		t: t, hub: newFakeCluster(o.hubStatus), spoke: newFakeCluster(o.spokeStatus), disk: newFakeDisk(),
		events: &fakeEvents{}, rand: rand.New(rand.NewPCG(o.seed, 7)), hubStatus: o.hubStatus, spokeStatus: o.spokeStatus, quota: o.quota,
	}
	if r.quota == (wire.SharedSize{}) {
		r.quota = muchRoom()
	}
	r.network = &fakeNetwork{rand: rand.New(rand.NewPCG(o.seed, 8))}
	o.share.StatusSubresource = o.hubStatus
	r.up = newFakeHub(t, r.hub, r.network, o.share)
	t.Cleanup(func() {
		r.disconnect()
		if r.process != nil {
			r.process.end()
		}
	})
	return r
}

// newSharing is a rig with a process that is connected.
func newSharing(t *testing.T, o options) *rig {
	t.Helper()
	r := newRig(t, o)
	r.start()
	r.connect()
	return r
}

// start begins a process.
func (r *rig) start() {
	r.t.Helper()
	p := &process{
		client: &fakeClient{store: r.spoke, network: r.network}, records: r.disk.open(rand.New(rand.NewPCG(r.rand.Uint64(), 9))),
	}
	log := logr.Discard()
	if r.verbose {
		log = testr.NewWithOptions(r.t, testr.Options{Verbosity: 1, LogTimestamp: true})
	}
	engine, err := New(Config{
		Objects: p.client, Definitions: p.client, Records: p.records, Events: r.events, KubeSystemUID: "spoke-1", Logger: log, Quota: r.quota,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	p.engine = engine
	if p.agent, err = resource.NewAgent(engine.Sources(), engine.Mirrors()); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = engine.Run(ctx)
	}()
	p.end = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	r.process = p
}

// setOwnersQuota has the process know another quota of its cluster's owner.
func (r *rig) setOwnersQuota(q wire.SharedSize) {
	r.quota = q
	s := r.process.engine.getOrCreateShare(shareName)
	s.mu.Lock()
	defer s.mu.Unlock()
	r.process.engine.cfg.Quota = q
	s.requeueWaiting()
}

// crash ends the process at once: what it has not said, asked for or made durable is lost.
func (r *rig) crash() {
	p := r.process
	p.records.kill()
	p.client.kill()
	r.disconnect()
	p.end()
	r.before = append(r.before, p.client.wrote()...)
	r.process = nil
}

func (r *rig) connect() {
	if r.cut == nil {
		r.up.store.mu.Lock()
		hub := r.up.sync
		r.up.store.mu.Unlock()
		r.cut = resourcetest.Connect(r.t, hub, cluster, r.process.agent)
	}
}

func (r *rig) disconnect() {
	if r.cut != nil {
		r.cut()
		r.cut = nil
	}
}

// restartHub has the hub begin anew, over the same objects.
func (r *rig) restartHub() {
	connected := r.cut != nil
	r.disconnect()
	r.up.restart()
	if connected {
		r.connect()
	}
}

// written are all writes in the cluster.
func (r *rig) written() []string {
	return append(append([]string(nil), r.before...), r.process.client.wrote()...)
}

// listHubWrites are all writes that were asked of the hub.
func (r *rig) listHubWrites() []string {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	return append([]string(nil), r.up.writes...)
}

// side is the store of one.
func (r *rig) side(of wire.SharedSide) *fakeStore {
	if of == wire.SharedHub {
		return r.hub
	}
	return r.spoke
}

// settle waits, by the clock of a bubble, until nothing is left to do, if nothing fails.
func settle() { <-time.After(15 * time.Minute) }

// fakeEvents are those that were sent.
type fakeEvents struct {
	mu  sync.Mutex
	all []string // guarded by mu; name and note
}

// Event implements Events.
func (e *fakeEvents) Event(regarding *corev1.ObjectReference, _, note string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, regarding.Name+": "+note)
}

// parseEvent returns the object that an event is of, and the fields that it names.
func parseEvent(event string) (name string, fields []string) {
	name, note, _ := strings.Cut(event, ": both sides changed ")
	note, _, _ = strings.Cut(note, ": the change of the ")
	return name, strings.Split(note, ", ")
}
