// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/internal/impersonation"
	"github.com/spokelet/spokelet/internal/quota"
)

// maxCatalogs is what the catalogs of all clusters take, in bytes.
const maxCatalogs = 128 << 20

// resource is one resource of a cluster, as far as views need it.
type resource struct {
	gv         schema.GroupVersion
	plural     string
	singular   string
	kind       string
	shortNames []string
	namespaced bool
}

// memorySize is what the resource takes in memory, in bytes.
func (r resource) memorySize() int64 {
	const structs, header = 256, 16 // with its place in a slice that grows
	n := structs + len(r.plural) + len(r.singular) + len(r.kind)
	for _, name := range r.shortNames {
		n += header + len(name)
	}
	return int64(n)
}

// catalog is what one session's cluster serves, in the order in which names
// are looked up: groups as the cluster lists them, preferred versions first.
type catalog struct {
	session   Session
	resources []resource
	size      int64 // what the resources take, in bytes
}

// find returns the resource that arg means: by name or kind first, then by
// short name, as kubectl does.
func (c *catalog) find(arg resourceArg) (resource, bool) {
	for _, match := range []func(resource) bool{
		func(r resource) bool {
			return arg.name == r.plural || arg.name == r.singular || strings.EqualFold(arg.name, r.kind)
		},
		func(r resource) bool { return slices.Contains(r.shortNames, arg.name) },
	} {
		for _, within := range arg.groupVersionPredicates() {
			for _, r := range c.resources {
				if within(r.gv) && match(r) {
					return r, true
				}
			}
		}
	}
	return resource{}, false
}

// groupVersionPredicates are the group versions that the argument may mean, the most
// specific first.
func (a resourceArg) groupVersionPredicates() []func(schema.GroupVersion) bool {
	if !a.qualified {
		return []func(schema.GroupVersion) bool{func(schema.GroupVersion) bool { return true }}
	}
	return []func(schema.GroupVersion) bool{
		func(gv schema.GroupVersion) bool { return a.versioned != nil && gv == *a.versioned },
		func(gv schema.GroupVersion) bool { return gv.Group == a.group },
	}
}

// catalogs keeps the catalog of each session that was asked.
type catalogs struct {
	memory *quota.Memory

	mu        sync.Mutex
	byCluster map[string]*catalog      // guarded by mu
	locks     map[string]chan struct{} // guarded by mu; full while a cluster's discovery is read
}

func newCatalogs(memory *quota.Memory) *catalogs {
	return &catalogs{memory: memory, byCluster: map[string]*catalog{}, locks: map[string]chan struct{}{}}
}

// get returns the catalog of a session. One that is stale, being the one that
// the caller already looked in, is read anew. A cluster's discovery is read
// once at a time, so that it costs what one may cost, however many ask.
func (c *catalogs) get(ctx context.Context, cluster string, s Session, caller impersonation.Principal, stale *catalog) (*catalog, error) {
	known, turn := c.lookup(cluster)
	if known.isCurrent(s, stale) {
		return known, nil
	}
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if known, _ = c.lookup(cluster); known.isCurrent(s, stale) {
		return known, nil
	}
	held := memoryReservation{clusterAccount: c.memory.Account(cluster)}
	defer held.close()
	fresh, err := readCatalog(ctx, cluster, s, caller, held)
	if err != nil {
		return nil, err
	}
	c.store(cluster, fresh)
	return fresh, nil
}

// store remembers a catalog. Where all would take too much, the largest is dropped,
// which may be the new one, so that no cluster costs others theirs.
func (c *catalogs) store(cluster string, fresh *catalog) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byCluster[cluster] = fresh
	var total int64
	for _, known := range c.byCluster {
		total += known.size
	}
	for total > maxCatalogs {
		largest, size := "", int64(0)
		for name, known := range c.byCluster {
			if known.size > size {
				largest, size = name, known.size
			}
		}
		total -= size
		delete(c.byCluster, largest)
	}
}

// isCurrent reports whether the catalog is of the session and not the stale one.
func (c *catalog) isCurrent(s Session, stale *catalog) bool {
	return c != nil && c.session == s && c != stale
}

// lookup returns the catalog of a cluster, if there is one, and the channel to
// fill while reading another.
func (c *catalogs) lookup(cluster string) (*catalog, chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	turn := c.locks[cluster]
	if turn == nil {
		turn = make(chan struct{}, 1)
		c.locks[cluster] = turn
	}
	return c.byCluster[cluster], turn
}

// remove drops the catalog of a cluster whose session has changed. Whoever
// reads its discovery now may be joined by one who does so for the new session.
func (c *catalogs) remove(cluster string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byCluster, cluster)
	delete(c.locks, cluster)
}
