// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"math"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/spokelet/spokelet/internal/impersonation"
	"github.com/spokelet/spokelet/internal/quota"
)

// requestLimiter counts those to clusters/proxy that are being carried, so that no
// caller takes all streams of a session, and all callers leave some to views
// and to the node.
type requestLimiter struct {
	users    *quota.Slots // by cluster and user
	clusters *quota.Slots
	streams  *quota.Slots // of the session, with those of pods; nil has no bounds
}

func newRequestLimiter(l Limits, streams *quota.Slots) *requestLimiter {
	return &requestLimiter{
		users:    quota.NewSlots(math.MaxInt64, int64(l.ProxyRequestsPerUser)),
		clusters: quota.NewSlots(math.MaxInt64, int64(l.ProxyRequests)),
		streams:  streams,
	}
}

// acquire counts a request until leave is called. Service accounts of one namespace are one
// user: who may make one may make many. The error is an APIStatus (429).
func (r *requestLimiter) acquire(cluster, user string) (leave func(), err error) {
	// The names of clusters have no slash.
	pair := cluster + "/" + impersonation.Holder(user)
	leave, full := quota.TakeAll(
		quota.Share{Slots: r.users, Holder: pair, What: "requests of one user"},
		quota.Share{Slots: r.clusters, Holder: cluster, What: "requests"},
		quota.Share{Slots: r.streams, Holder: cluster, What: "requests and streams of pods"},
	)
	if full != nil {
		return nil, apierrors.NewTooManyRequests(
			fmt.Sprintf("cluster %q: too many %s are being carried: limit %d", cluster, full.What, full.Slots.Each()), 1)
	}
	return leave, nil
}
