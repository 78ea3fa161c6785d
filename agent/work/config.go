// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/work/feedback"
	"github.com/spokelet/spokelet/api/wire"
)

// Config of an Engine.
type Config struct {
	// REST reaches the spoke's API server as the agent. Required.
	REST *rest.Config
	// Impersonate is the user that everything of a work is read and written as;
	// empty is the agent itself.
	Impersonate string
	// HubID marks the anchors of this hub, which alone are evicted. Required; a
	// label value.
	HubID string
	// Namespace is where the copy of the desired works is kept, as the agent
	// itself. Empty keeps none.
	Namespace string
	// Namespaces, when not empty, are the only ones that works may write to;
	// cluster-scoped manifests are then refused.
	Namespaces []string
	// EvictionGrace is how long an anchor whose work is unknown to the hub keeps
	// its objects. Default 60 min.
	EvictionGrace time.Duration
	// Dialects are those whose works are executed, wire.Dialect...; default all. The
	// kinds of their anchors must be served.
	Dialects []string
	// HubHash is that of the hub, in OCM's sense, where the agent knows it by itself:
	// a work's AppliedManifestWork that has it is taken over, whichever agent made
	// it. Empty learns the hash from the works, which proves nothing.
	HubHash string
	// AgentID is what AppliedManifestWorks name as their agent; empty is the hub's
	// hash.
	AgentID string
	// Cluster is the namespace of this cluster's ManifestWorks on the hub; works of
	// others are refused.
	Cluster string
	// Feedback is how values are read from objects.
	Feedback feedback.Options
	// ExecutorCaches keeps what executors may do until the spoke's roles change.
	ExecutorCaches bool
	// Reporter takes the statuses; nil is a Source for Sync.
	Reporter Reporter
	// Workers bounds how many works are executed at once. Default 16.
	Workers int
	// Logger of the engine; the zero value is silent.
	Logger logr.Logger
	// Registerer takes the metrics; nil keeps them to ourselves.
	Registerer prometheus.Registerer
}

// Default fills what was left empty.
func (c *Config) Default() {
	if c.EvictionGrace == 0 {
		c.EvictionGrace = time.Hour
	}
	if c.Workers == 0 {
		c.Workers = 16
	}
	if len(c.Dialects) == 0 {
		c.Dialects = []string{wire.DialectMulticluster, wire.DialectManifestWork}
	}
}

// Validate reports everything that is wrong, joined.
func (c *Config) Validate() error {
	var errs []error
	if c.REST == nil {
		errs = append(errs, errors.New("field REST is required"))
	}
	if c.HubID == "" {
		errs = append(errs, errors.New("field HubID is required"))
	}
	for _, d := range c.Dialects {
		if _, ok := allPolicies()[d]; !ok {
			errs = append(errs, fmt.Errorf("field Dialects: %q is not known", d))
		}
	}
	if c.EvictionGrace < 0 {
		errs = append(errs, fmt.Errorf("field EvictionGrace: %s is negative", c.EvictionGrace))
	}
	if c.Workers < 0 {
		errs = append(errs, fmt.Errorf("field Workers: %d is negative", c.Workers))
	}
	return errors.Join(errs...)
}
