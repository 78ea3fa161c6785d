// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package statuswriter writes reports on works to a hub's API server: a queue with the
// latest report on each work, what is left of a report that the API server refuses, the
// versions of the own writes, and metrics. The hub and the agent's process mode use it; how
// they read and patch a work is theirs.
package statuswriter

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/api/wire"
)

// MaxObjectBytes is the size in bytes up to which a work with its status is written; etcd
// refuses a request of 1.5 MiB. The rest is for what caches leave out: managed fields,
// and what kubectl remembers, of at most 256 KiB.
const MaxObjectBytes = 1240 << 10

// Report is what is to be written to one work.
type Report struct {
	UID    types.UID
	Status wire.WorkStatus
	// FromHub: the work was not sent, so nothing is known of it but the one
	// condition in Status.
	FromHub bool
	// OmitReason is why the API server takes no manifests of it; empty where it does.
	OmitReason string
	// valuesOmitted: the values that the API server named are left out.
	valuesOmitted bool
	// Received is when the report came; Enqueue sets it.
	Received time.Time
	// OnDone gives back what the report holds, once it is of no more use; nil where
	// nothing counts it.
	OnDone func()
	// Since is when the event came in the spoke that the report tells of; zero when
	// it tells of none.
	Since time.Time
}

// inheritSince takes over that another report of the work was not written.
func (r *Report) inheritSince(other Report) {
	if other.UID == r.UID && !other.Since.IsZero() && (r.Since.IsZero() || other.Since.Before(r.Since)) {
		r.Since = other.Since
	}
}

// Done says that a report is of no more use.
func (r *Report) Done() {
	if r.OnDone != nil {
		r.OnDone()
	}
}
