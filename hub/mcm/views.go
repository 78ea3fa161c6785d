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

// viewRequest is what one object asks.
type viewRequest struct {
	cluster, key string
	uid          types.UID
	generation   int64
}

// publishedView is a view that objects ask for.
type publishedView struct {
	body []byte
	// generation is that in Sync: a larger one has the agent answer again.
	generation  int64
	requestedBy map[objectKey]struct{}
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

// viewIndex are those of all clusters.
type viewIndex struct {
	source func(cluster string) *resource.Source

	mu sync.Mutex
	// All below are guarded by mu.
	requests       map[objectKey]viewRequest
	byCluster      map[string]map[string]*publishedView // by cluster and key
	lastGeneration int64
}

// newViewIndex begins with a generation that no hub before this one has used.
func newViewIndex(source func(cluster string) *resource.Source) *viewIndex {
	return &viewIndex{source: source, requests: map[objectKey]viewRequest{}, byCluster: map[string]map[string]*publishedView{}, lastGeneration: time.Now().UnixNano()}
}

// set has an object ask for a view, in place of what it asked for.
func (v *viewIndex) set(r objectKey, uid types.UID, generation int64, cluster string, view wire.View) error {
	key, body, err := encodeView(view)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	now := viewRequest{cluster: cluster, key: key, uid: uid, generation: generation}
	if v.requests[r] == now {
		return nil
	}
	if old, ok := v.requests[r]; ok && (old.cluster != cluster || old.key != key) {
		v.unset(r, old)
	}
	of := v.byCluster[cluster]
	if of == nil {
		of = map[string]*publishedView{}
		v.byCluster[cluster] = of
	}
	s := of[key]
	if s == nil {
		s = &publishedView{body: body, requestedBy: map[objectKey]struct{}{}}
		of[key] = s
	}
	s.requestedBy[r], v.requests[r] = struct{}{}, now
	return v.publish(cluster, key, s)
}

// publish asks the agent to answer, again where it has; v.mu is held.
func (v *viewIndex) publish(cluster, key string, s *publishedView) error {
	v.lastGeneration++
	s.generation = v.lastGeneration
	err := v.source(cluster).Put(resource.Resource{Key: key, Generation: s.generation, Body: s.body})
	if err != nil {
		return fmt.Errorf("publish view: %w", err)
	}
	return nil
}

// renew has the view of an object answered again.
func (v *viewIndex) renew(r objectKey) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	a, ok := v.requests[r]
	if !ok {
		return nil
	}
	return v.publish(a.cluster, a.key, v.byCluster[a.cluster][a.key])
}

// delete removes the request of an object.
func (v *viewIndex) delete(r objectKey) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if a, ok := v.requests[r]; ok {
		v.unset(r, a)
	}
}

// unset removes the request of an object, and with the last one the view; v.mu is held.
func (v *viewIndex) unset(r objectKey, a viewRequest) {
	delete(v.requests, r)
	s := v.byCluster[a.cluster][a.key]
	delete(s.requestedBy, r)
	if len(s.requestedBy) > 0 {
		return
	}
	delete(v.byCluster[a.cluster], a.key)
	if len(v.byCluster[a.cluster]) == 0 {
		delete(v.byCluster, a.cluster)
	}
	v.source(a.cluster).Delete(a.key)
}

// requestsFor are the objects that ask for a view, and what they ask.
func (v *viewIndex) requestsFor(cluster, key string) map[objectKey]viewRequest {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.byCluster[cluster][key]
	if s == nil {
		return nil
	}
	out := make(map[objectKey]viewRequest, len(s.requestedBy))
	for r := range s.requestedBy {
		out[r] = v.requests[r]
	}
	return out
}

// get is what an object asks for now.
func (v *viewIndex) get(r objectKey) (viewRequest, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	a, ok := v.requests[r]
	return a, ok
}

// republish puts all views of a cluster into its source, which may be a new one.
func (v *viewIndex) republish(cluster string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for key, s := range v.byCluster[cluster] {
		// It was published before.
		_ = v.source(cluster).Put(resource.Resource{Key: key, Generation: s.generation, Body: s.body})
	}
}
