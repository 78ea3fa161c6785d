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
	// workers is how many actions on objects are executed at once.
	workers = 16
	// releaseWorkers is how many actions of Helm are, each of which takes a process.
	releaseWorkers = 2
	// requestTimeout is longer than an API server takes for a request by itself.
	requestTimeout = 90 * time.Second
	// minBackoff and maxBackoff are between tries.
	minBackoff = 100 * time.Millisecond
	maxBackoff = 30 * time.Second
	// minRefreshInterval is the shortest time between two resets of what the cluster serves.
	minRefreshInterval = 10 * time.Second
	// maxTotalSize is how many bytes the objects of all results may have that are published.
	maxTotalSize = 64 << 20
	// maxTries is how often an action is tried, over some 30 seconds, that the API server
	// answers with an error of its own.
	maxTries = 9
)

// Door lets users of the hub in.
type Door interface {
	// Config reaches the cluster as the requester. The error refuses it.
	Config(r wire.Requester) (*rest.Config, error)
}

// Resources finds the resources of the cluster.
type Resources interface {
	// Resource wraps a mapping.NoMatchError or mapping.ErrAmbiguous, if the cluster was
	// read.
	Resource(t wire.Target) (*meta.RESTMapping, error)
	// Reset says that the cluster may serve something else.
	Reset()
}

// Releases has Helm do things with releases.
type Releases interface {
	// Run does what is asked as the requester; see helm.Runner.
	Run(ctx context.Context, by wire.Requester, request message.Request, on helm.Events) (message.Answer, error)
}

// Config is what an engine is made of.
type Config struct {
	// Door and Resources are required.
	Door      Door
	Resources Resources
	// Entries are the ConfigMaps of the agent's namespace, as the agent itself. Nothing
	// must be written through them by a process that has lost its lease. Required.
	Entries corev1client.ConfigMapInterface
	// Guard wraps what reaches the cluster as a requester, for the same reason; nil does
	// not.
	Guard func(http.RoundTripper) http.RoundTripper
	// Releases is required.
	Releases Releases
	Logger   logr.Logger
}

// Validate says what is missing.
func (c *Config) Validate() error {
	if c.Door == nil || c.Resources == nil || c.Entries == nil || c.Releases == nil {
		return errors.New("actions need a door, resources, entries and releases")
	}
	return nil
}
