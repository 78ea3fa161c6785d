// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"errors"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/hub/requester"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/internal/rbacwatch"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// fieldOwner of what the hub writes.
	fieldOwner = client.FieldOwner("spokelet-hub")
	// reconcilers and writers bound what is done at once.
	reconcilers = 16
	writers     = 16
	// defaultMaxBytes is what a result may have.
	defaultMaxBytes = 512 << 10
)

// Replicator is the hub's end of Sync.
type Replicator interface {
	Publish(kind string, load resource.HubLoad)
	Mirror(kind string, r resource.HubReceiver)
	Source(cluster, kind string) *resource.Source
}

// Sessions knows the connected clusters.
type Sessions interface {
	Connected(cluster string) bool
	// Subscribe calls f with every change, and first with what there is. f must not block.
	Subscribe(f func(cluster string, connected bool)) (cancel func())
}

// Config is what a controller is made of.
type Config struct {
	// Sync replicates views and actions. Required.
	Sync Replicator
	// Client reads from the cache, whose objects Strip has gone over, and writes without a
	// limit of its own. Required.
	Client client.Client
	// Live reads from the API server. Required.
	Live client.Reader
	// Informers are those of the cache. Required.
	Informers cache.Informers
	// Access says what authors may do, and Rights when to ask again. Required.
	Access rbacwatch.AccessReviewer
	Rights *rbacwatch.Rechecker
	// Authors is the registration under which authors have to be recorded. Required.
	Authors *requester.Registration
	// Sessions are required.
	Sessions Sessions
	// MaxResultBytes bounds the result in one status. Default 512 KiB.
	MaxResultBytes int
	// ShowSecrets leaves the values of Secrets in results.
	ShowSecrets bool
	// Writes bounds what is written because of what clusters answer; nil has no bounds.
	Writes *quota.Writes
	// Events are reported on the objects. Required.
	Events events.EventRecorder
	Logger logr.Logger
}

// Default fills what was left empty.
func (c *Config) Default() {
	if c.MaxResultBytes == 0 {
		c.MaxResultBytes = defaultMaxBytes
	}
}

// Validate says what is missing.
func (c *Config) Validate() error {
	switch {
	case c.Sync == nil || c.Client == nil || c.Live == nil || c.Informers == nil || c.Events == nil:
		return errors.New("mcm needs Sync, a client, a live reader, informers and events")
	case c.Access == nil || c.Rights == nil || c.Authors == nil || c.Sessions == nil:
		return errors.New("mcm needs access reviews, rights, authors and sessions")
	}
	return nil
}
