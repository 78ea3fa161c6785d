// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/helm"
	"github.com/spokelet/spokelet/agent/helm/message"
	"github.com/spokelet/spokelet/api/wire"
)

const (
	// workers bounds the actions on objects that are executed at once.
	workers = 16
	// releaseWorkers bounds the actions of Helm that are, each of which needs a process.
	releaseWorkers = 2
	// requestTimeout exceeds the time that an API server takes for a request.
	requestTimeout = 90 * time.Second
	// minBackoff and maxBackoff bound the time between attempts.
	minBackoff = 100 * time.Millisecond
	maxBackoff = 30 * time.Second
	// minRefreshInterval separates two refreshes of discovery.
	minRefreshInterval = 10 * time.Second
	// maxTotalSize bounds the objects of all published results, in bytes.
	maxTotalSize = 64 << 20
	// maxTries bounds the attempts, over some 30 seconds, at an action that the API server
	// answers with an internal error.
	maxTries = 9
)

// Door authorizes users of the hub.
type Door interface {
	// Config returns a configuration that acts as the requester. The error refuses it.
	Config(r wire.Requester) (*rest.Config, error)
}

// Resources finds the resources of the cluster.
type Resources interface {
	// Resource wraps a mapping.NoMatchError or mapping.ErrAmbiguous, if the cluster was
	// read.
	Resource(t wire.Target) (*meta.RESTMapping, error)
	// Reset discards the cached discovery, because the cluster may serve something else.
	Reset()
}

// Releases runs Helm.
type Releases interface {
	// Run executes a request as the requester; see helm.Runner.
	Run(ctx context.Context, by wire.Requester, request message.Request, on helm.Events) (message.Answer, error)
}

// Config configures an engine.
type Config struct {
	// Door and Resources are required.
	Door      Door
	Resources Resources
	// Entries accesses the ConfigMaps of the agent's namespace, as the agent itself. It must
	// refuse writes of a process that has lost its lease. Required.
	Entries corev1client.ConfigMapInterface
	// Guard wraps the transports that act as a requester, for the same reason; it may be nil.
	Guard func(http.RoundTripper) http.RoundTripper
	// Releases is required.
	Releases Releases
	Logger   logr.Logger
}

// Validate returns an error if a required field is missing.
func (c *Config) Validate() error {
	if c.Door == nil || c.Resources == nil || c.Entries == nil || c.Releases == nil {
		return errors.New("actions need a door, resources, entries and releases")
	}
	return nil
}
