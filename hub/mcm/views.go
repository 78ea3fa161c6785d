// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// ask is what one object asks.
type ask struct {
	cluster, key string
	uid          types.UID
	generation   int64
}

// shared is a view that objects ask for.
type shared struct {
	body []byte
	// generation is that in Sync: a larger one has the agent answer again.
	generation int64
	by         map[ref]struct{}
}

// encodeView makes the key and the body of a view in Sync.
func encodeView(v wire.View) (key string, body []byte, err error) {
	if key, err = v.Key(); err != nil {
		return "", nil, err
	}
	if body, err = json.Marshal(v); err != nil {
		return "", nil, fmt.Errorf("encode view: %w", err)
	}
	return key, body, nil
}

// views are those of all clusters.
type views struct {
	source func(cluster string) *resource.Source

	mu sync.Mutex
	// All below are guarded by mu.
	asks      map[ref]ask
	byCluster map[string]map[string]*shared // by cluster and key
	last      int64
}

// newViews begins with a generation that no hub before this one has used.
func newViews(source func(cluster string) *resource.Source) *views {
	return &views{source: source, asks: map[ref]ask{}, byCluster: map[string]map[string]*shared{}, last: time.Now().UnixNano()}
}

// set has an object ask for a view, in place of what it asked for.
func (v *views) set(r ref, uid types.UID, generation int64, cluster string, view wire.View) error {
	key, body, err := encodeView(view)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	now := ask{cluster: cluster, key: key, uid: uid, generation: generation}
	if v.asks[r] == now {
		return nil
	}
	if old, ok := v.asks[r]; ok && (old.cluster != cluster || old.key != key) {
		v.leave(r, old)
	}
	of := v.byCluster[cluster]
	if of == nil {
		of = map[string]*shared{}
		v.byCluster[cluster] = of
	}
	s := of[key]
	if s == nil {
		s = &shared{body: body, by: map[ref]struct{}{}}
		of[key] = s
	}
	s.by[r], v.asks[r] = struct{}{}, now
	return v.publish(cluster, key, s)
}

// publish asks the agent to answer, again where it has; v.mu is held.
func (v *views) publish(cluster, key string, s *shared) error {
	v.last++
	s.generation = v.last
	err := v.source(cluster).Put(resource.Resource{Key: key, Generation: s.generation, Body: s.body})
	if err != nil {
		return fmt.Errorf("publish view: %w", err)
	}
	return nil
}

// renew has the view of an object answered again.
func (v *views) renew(r ref) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	a, ok := v.asks[r]
	if !ok {
		return nil
	}
	return v.publish(a.cluster, a.key, v.byCluster[a.cluster][a.key])
}

// remove ends what an object asks for.
func (v *views) remove(r ref) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if a, ok := v.asks[r]; ok {
		v.leave(r, a)
	}
}

// leave drops one who asks, and with the last the view; v.mu is held.
func (v *views) leave(r ref, a ask) {
	delete(v.asks, r)
	s := v.byCluster[a.cluster][a.key]
	delete(s.by, r)
	if len(s.by) > 0 {
		return
	}
	delete(v.byCluster[a.cluster], a.key)
	if len(v.byCluster[a.cluster]) == 0 {
		delete(v.byCluster, a.cluster)
	}
	v.source(a.cluster).Delete(a.key)
}

// by are the objects that ask for a view, and what they ask.
func (v *views) by(cluster, key string) map[ref]ask {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.byCluster[cluster][key]
	if s == nil {
		return nil
	}
	out := make(map[ref]ask, len(s.by))
	for r := range s.by {
		out[r] = v.asks[r]
	}
	return out
}

// asked is what an object asks for now.
func (v *views) asked(r ref) (ask, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	a, ok := v.asks[r]
	return a, ok
}

// republish puts all views of a cluster into its source, which may be a new one.
func (v *views) republish(cluster string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for key, s := range v.byCluster[cluster] {
		// It was published before.
		_ = v.source(cluster).Put(resource.Resource{Key: key, Generation: s.generation, Body: s.body})
	}
}
