// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"errors"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// fieldManager is the field manager of writes for agents.
	fieldManager = "spokelet"
	// statusOwner is the field manager of the status of SharedResources.
	statusOwner = client.FieldOwner("spokelet-hub")

	// These are the workers of each queue: writes for agents, lists of namespaces,
	// verifications of deletions, and statuses.
	writeWorkers    = 8
	listWorkers     = 4
	deletionWorkers = 2
	statusWorkers   = 2

	// maxNewObjects bounds the writes of a cluster beyond one for each existing object.
	maxNewObjects = 1024
	// maxTombstones bounds the published deletions of one share.
	maxTombstones = 1000
	// requestTimeout bounds one write for an agent.
	requestTimeout = 30 * time.Second
	// statusInterval is the shortest time between two writes of the status of one object.
	statusInterval = 500 * time.Millisecond
	// firstRetry and longestRetry bound the backoff of failed items.
	firstRetry   = 20 * time.Millisecond
	longestRetry = 30 * time.Second
)

// Replicator is the hub's end of Sync.
type Replicator interface {
	Publish(kind string, load resource.HubLoad)
	Mirror(kind string, r resource.HubReceiver)
	Source(cluster, kind string) *resource.Source
}

// Sessions reports which clusters are connected.
type Sessions interface {
	// Subscribe calls f with all connected clusters, and then with every change. f must not
	// block.
	Subscribe(f func(cluster string, connected bool)) (cancel func())
}

// Config configures a Controller.
type Config struct {
	// Sync replicates shares and objects. Required.
	Sync Replicator
	// Client reads SharedResources from the cache and writes their statuses; Live reads
	// from the API server. Required.
	Client client.Client
	Live   client.Reader
	// Dynamic watches and writes the objects, without a rate limit of its own. Required.
	Dynamic dynamic.Interface
	// Informers are the cache's. Required.
	Informers cache.Informers
	// Sessions are required.
	Sessions Sessions
	// Memory bounds the memory of the objects that clusters share; nil has no bounds.
	Memory *quota.Memory
	// Writes bounds what is written because agents request it; nil has no bounds.
	Writes *quota.Writes
	// Events are reported on the objects. Required.
	Events events.EventRecorder
	Logger logr.Logger
}

// Validate returns an error if a required part is missing.
func (c *Config) Validate() error {
	switch {
	case c.Sync == nil || c.Client == nil || c.Live == nil || c.Dynamic == nil:
		return errors.New("shared objects need Sync and clients")
	case c.Informers == nil || c.Sessions == nil || c.Events == nil:
		return errors.New("shared objects need informers, sessions and events")
	}
	return nil
}
