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
	// fieldManager owns what is written for agents.
	fieldManager = "spokelet"
	// statusOwner owns the status of SharedResources.
	statusOwner = client.FieldOwner("spokelet-hub")

	// writeWorkers, readers, witnesses and writers bound what is done at once: requests for
	// agents, lists of namespaces, checks of deletions, and statuses.
	writeWorkers    = 8
	listWorkers     = 4
	deletionWorkers = 2
	statusWorkers   = 2

	// maxNewObjects bounds the writes of a cluster beyond those for objects that there are.
	maxNewObjects = 1024
	// maxTombstones bounds the deletions that are published of one share.
	maxTombstones = 1000
	// requestTimeout bounds one request for an agent.
	requestTimeout = 30 * time.Second
	// statusInterval is the shortest time between two writes of the status of one object.
	statusInterval = 500 * time.Millisecond
	// firstRetry and longestRetry are those of the backoff of what has failed.
	firstRetry   = 20 * time.Millisecond
	longestRetry = 30 * time.Second
)

// Replicator is the hub's end of Sync.
type Replicator interface {
	Publish(kind string, load resource.HubLoad)
	Mirror(kind string, r resource.HubReceiver)
	Source(cluster, kind string) *resource.Source
}

// Sessions knows the connected clusters.
type Sessions interface {
	// Subscribe calls f with every change, and first with what there is. f must not block.
	Subscribe(f func(cluster string, connected bool)) (cancel func())
}

// Config is what a controller is made of.
type Config struct {
	// Sync replicates shares and objects. Required.
	Sync Replicator
	// Client reads SharedResources from the cache and writes their statuses; Live reads
	// from the API server. Required.
	Client client.Client
	Live   client.Reader
	// Dynamic follows and writes the objects, without a limit of its own. Required.
	Dynamic dynamic.Interface
	// Informers are those of the cache. Required.
	Informers cache.Informers
	// Sessions are required.
	Sessions Sessions
	// Memory is what clusters may have the hub keep of objects that they share; nil has no
	// bounds.
	Memory *quota.Memory
	// Writes bounds what is written because agents ask for it; nil has no bounds.
	Writes *quota.Writes
	// Events are reported on the objects. Required.
	Events events.EventRecorder
	Logger logr.Logger
}

// Validate says what is missing.
func (c *Config) Validate() error {
	switch {
	case c.Sync == nil || c.Client == nil || c.Live == nil || c.Dynamic == nil:
		return errors.New("shared objects need Sync and clients")
	case c.Informers == nil || c.Sessions == nil || c.Events == nil:
		return errors.New("shared objects need informers, sessions and events")
	}
	return nil
}
