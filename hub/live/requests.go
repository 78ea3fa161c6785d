// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"math"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// requests counts those to clusters/proxy that are being carried, so that no
// caller takes all streams of a session, and all callers leave some to views
// and to the node.
type requests struct {
	clusters *shares
	users    *shares // by cluster and user
}

func newRequests(l Limits) *requests {
	return &requests{
		clusters: newShares(math.MaxInt64, int64(l.ProxyRequests)),
		users:    newShares(math.MaxInt64, int64(l.ProxyRequestsPerUser)),
	}
}

// enter counts a request until leave is called. The error is an APIStatus
// (429).
func (r *requests) enter(cluster, user string) (leave func(), err error) {
	// The names of clusters have no slash.
	pair := cluster + "/" + user
	if !r.users.take(pair, 1) {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("cluster %q: too many requests of one user are being carried: limit %d", cluster, r.users.each), 1)
	}
	if !r.clusters.take(cluster, 1) {
		r.users.give(pair, 1)
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("cluster %q: too many requests are being carried: limit %d", cluster, r.clusters.each), 1)
	}
	return func() {
		r.clusters.give(cluster, 1)
		r.users.give(pair, 1)
	}, nil
}
