// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"sync"

	"github.com/spokelet/spokelet/provider/pod/address"
)

// Consent is what the record of a cluster allows of what its agent says.
type Consent struct {
	// SplitLabel is the label by which the cluster may be shown in groups of its nodes;
	// empty for none.
	SplitLabel string
	// Addresses are those that its pods may have.
	Addresses address.Limit
}

// consents are those of the clusters whose records are known. The zero value is ready.
type consents struct {
	mu  sync.RWMutex // taken last
	all map[string]Consent
}

func (c *consents) get(cluster string) (Consent, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	allowed, ok := c.all[cluster]
	return allowed, ok
}

// set reports whether other addresses are allowed than before.
func (c *consents) set(cluster string, allowed Consent) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, ok := c.all[cluster]
	if c.all == nil {
		c.all = map[string]Consent{}
	}
	c.all[cluster] = allowed
	return !ok || !before.Addresses.Equal(allowed.Addresses)
}

func (c *consents) remove(cluster string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, cluster)
}

// SetConsent takes what the record of a cluster allows, and looks at the addresses of its
// pods again. Until then none of them gets an address that it does not have.
func (c *Controller) SetConsent(cluster string, allowed Consent) {
	if c.consents.set(cluster, allowed) {
		c.recheckClusterAddresses(cluster)
	}
}
