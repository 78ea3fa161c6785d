// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/tunnel/identity"
)

// Authority signs the certificates of clusters.
type Authority interface {
	HubID() string
	// IssueCluster returns the chain and the trust bundle, PEM.
	IssueCluster(cluster identity.Cluster, request *x509.CertificateRequest) (chain, bundle []byte, err error)
}

// Releaser lets go of the works of a cluster that is detached.
type Releaser interface {
	// Release removes our finalizers from the works in the cluster's namespace
	// and names those that were left applied in the spoke. A second call finds
	// nothing more to release.
	Release(ctx context.Context, cluster string) (left []string, err error)
}

// NodeRemover removes the virtual node of a cluster. A node that is already gone
// is no error.
type NodeRemover interface {
	Remove(ctx context.Context, cluster string) error
}

// Config configures registration.
type Config struct {
	// Client reads ManagedClusters and the metadata of Namespaces from the
	// manager's cache, and writes.
	Client client.Client
	// Live reads from the API server itself.
	Live client.Reader
	// Events are reported on ManagedClusters.
	Events events.EventRecorder

	Authority Authority
	Works     Releaser
	Nodes     NodeRemover
	// Disconnect cuts the live sessions of a cluster at once. It must not block.
	Disconnect func(cluster string, reason error)

	// MarkTokenHolder is called for each Enroll call whose caller holds a join token.
	MarkTokenHolder func(ctx context.Context)

	// HubNamespace is no cluster's to have.
	HubNamespace string
	// ReconnectGrace is how long after the start a cluster without a session
	// keeps its conditions; default 15 s.
	ReconnectGrace time.Duration
	// AcceptTimeout is how long an enrolment waits for hubAcceptsClient; default
	// 5 minutes.
	AcceptTimeout time.Duration
	// Writes bounds what is written because of what clusters report; nil has no bounds.
	Writes *quota.Writes
	// Limits of the one door that is open to strangers.
	Limits Limits

	Registerer prometheus.Registerer
	Logger     logr.Logger
	// Now defaults to time.Now.
	Now func() time.Time
}

// Default fills in what was left out.
func (c *Config) Default() {
	if c.ReconnectGrace == 0 {
		c.ReconnectGrace = 15 * time.Second
	}
	if c.AcceptTimeout == 0 {
		c.AcceptTimeout = 5 * time.Minute
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Limits.Default()
}

// Validate reports what is missing.
func (c *Config) Validate() error {
	for name, missing := range map[string]bool{
		"client": c.Client == nil, "live reader": c.Live == nil, "event recorder": c.Events == nil,
		"authority": c.Authority == nil, "works": c.Works == nil, "nodes": c.Nodes == nil,
		"disconnect": c.Disconnect == nil, "marker of token holders": c.MarkTokenHolder == nil,
		"registerer": c.Registerer == nil, "hub namespace": c.HubNamespace == "",
	} {
		if missing {
			return fmt.Errorf("registration: no %s", name)
		}
	}
	if c.ReconnectGrace < 0 || c.AcceptTimeout < 0 {
		return errors.New("registration: negative time")
	}
	return c.Limits.Validate()
}

// Registration is the four parts of this package, over one state.
type Registration struct {
	gate       *Gate
	enroller   *Enroller
	issuer     *Issuer
	reconciler *Reconciler
}

// New returns a registration that admits nobody until SetupWithManager has been
// called and the manager's cache has synced.
func New(config Config) (*Registration, error) {
	config.Default()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	counters, err := newCounters(config.Registerer)
	if err != nil {
		return nil, err
	}
	known := newObservedStore()
	reconciler := &Reconciler{config: config, store: known}
	gate := &Gate{config: config, store: known, counters: counters, enqueue: reconciler.enqueue, waiters: newWaiters()}
	return &Registration{
		gate:       gate,
		enroller:   newEnroller(config, gate, counters),
		issuer:     &Issuer{gate: gate, authority: config.Authority},
		reconciler: reconciler,
	}, nil
}

// Gate is the tunnel's admission.
func (r *Registration) Gate() *Gate { return r.gate }

// Enroller is the Enroll service of the public port.
func (r *Registration) Enroller() *Enroller { return r.enroller }

// Issuer renews the certificates of live sessions.
func (r *Registration) Issuer() *Issuer { return r.issuer }

// SessionChanged records that a cluster's session was opened (session is who it
// is) or that it has none any more (nil). It does not block.
func (r *Registration) SessionChanged(cluster string, session *identity.Cluster) {
	r.gate.store.update(cluster, func(o *observed) { o.session = session })
	r.reconciler.enqueuePaced(cluster)
}

// UpdateSummary records what the agent reports of its cluster. It does not block.
func (r *Registration) UpdateSummary(cluster string, summary Summary) {
	r.gate.store.update(cluster, func(o *observed) { o.summary = &summary })
	r.reconciler.enqueuePaced(cluster)
}
