// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/lease"
	"github.com/spokelet/spokelet/api/wire"
)

// Config of a work agent without a tunnel.
type Config struct {
	// Spoke and Hub reach the two API servers, which may be one. Required. The
	// hub's Host names it in AppliedManifestWorks.
	Spoke, Hub *rest.Config
	// Cluster is the namespace of the ManifestWorks on the hub. Required.
	Cluster string
	// WorkNamespace is that of the multicluster Works; empty serves none.
	WorkNamespace string
	// AgentID in AppliedManifestWorks; empty is the hub's hash.
	AgentID string
	// Namespace of the agent in the spoke. Required.
	Namespace string
	// EvictionGrace is how long objects stay whose work the hub does not know.
	EvictionGrace time.Duration
	// RawFeedback reports structures of up to MaxJSONRawLength characters.
	RawFeedback      bool
	MaxJSONRawLength int32
	// SpokeLimit and HubLimit bound the rates of the works' requests.
	SpokeLimit, HubLimit Limit
	// ExecutorCaches remembers what executors may do.
	ExecutorCaches bool
	// TerminateOnFiles are the files whose change ends Run.
	TerminateOnFiles []string
	// Listen is the address of /healthz and /metrics; empty is none.
	Listen string
	// TLS is served there, besides plain HTTP.
	TLS TLS
	// LeaderElection has works executed while the Lease is held, and no longer.
	LeaderElection bool
	// Lease is the timing of the election; the zero value is the default.
	Lease lease.Timing
	// Workers bounds how many works are executed at once; 0 is the engine's default.
	Workers int
	// Process names this process among those of its Lease. Required.
	Process string
	Logger  logr.Logger
}

// Limit is a rate of requests; no queries per second are no limit.
type Limit struct {
	QPS   float32
	Burst int
}

// TLS bounds what is negotiated. The zero value is Go's choice from TLS 1.2 on.
type TLS struct {
	// MinVersion is a version of package crypto/tls.
	MinVersion uint16
	// CipherSuites, by their ids, are those below TLS 1.3.
	CipherSuites []uint16
}

// dialects are those that are served.
func (c *Config) dialects() []string {
	if c.WorkNamespace == "" {
		return []string{wire.DialectManifestWork}
	}
	return []string{wire.DialectManifestWork, wire.DialectMulticluster}
}

// Validate reports everything that is wrong, joined.
func (c *Config) Validate() error {
	var errs []error
	if c.Spoke == nil || c.Hub == nil {
		errs = append(errs, errors.New("fields Spoke and Hub are required"))
	}
	if c.Cluster == "" {
		errs = append(errs, errors.New("flag --spoke-cluster-name is required"))
	}
	if c.Namespace == "" || c.Process == "" {
		errs = append(errs, errors.New("fields Namespace and Process are required"))
	}
	if c.EvictionGrace < 0 {
		errs = append(errs, fmt.Errorf("flag --appliedmanifestwork-eviction-grace-period: %s is negative", c.EvictionGrace))
	}
	if c.MaxJSONRawLength < 0 {
		errs = append(errs, fmt.Errorf("flag --max-json-raw-length: %d is negative", c.MaxJSONRawLength))
	}
	if err := c.Lease.Validate(); err != nil && c.Lease != (lease.Timing{}) {
		errs = append(errs, fmt.Errorf("flags --leader-election-lease-duration, --leader-election-renew-deadline and --leader-election-retry-period: %w", err))
	}
	if c.Workers < 0 {
		errs = append(errs, fmt.Errorf("flag --workload-agent-workers: %d is negative", c.Workers))
	}
	return errors.Join(errs...)
}
