// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"fmt"

	"github.com/spokelet/spokelet/internal/quota"
)

// A tail and a cluster have at most an eighth of all places, an account has a quarter: a hostile
// account leaves some to others, a hostile cluster some to the other clusters of an account.
const (
	tailShare    = 8
	clusterShare = 8
	accountShare = 4
)

// followSlots are those of all tails of a process: the watch of a cluster's pods takes one, and each
// pod that is followed.
type followSlots struct{ all, tails, accounts, clusters *quota.Slots }

func newFollowSlots(total int) *followSlots {
	of := func(share int) *quota.Slots { return quota.NewSlots(int64(total), int64(max(total/share, 1))) }
	return &followSlots{all: of(1), tails: of(tailShare), accounts: of(accountShare), clusters: of(clusterShare)}
}

// acquire takes a place for something in a cluster. What it says when there is none is for who
// reads the tail.
func (p *followSlots) acquire(tail, account, cluster string) (leave func(), err error) {
	share := func(of *quota.Slots, holder, most string) quota.Share {
		return quota.Share{Slots: of, Holder: holder, What: fmt.Sprintf(most, of.Each())}
	}
	leave, full := quota.TakeAll(
		share(p.all, "", "all tails follow at most %d clusters and pods"),
		share(p.tails, tail, "a tail follows at most %d clusters and pods"),
		share(p.accounts, account, "all tails of an account follow at most %d clusters and pods"),
		share(p.clusters, cluster, "all tails follow at most %d pods of a cluster"),
	)
	if full != nil {
		return nil, limitError(full.What)
	}
	return leave, nil
}

// limitError is why something is not followed.
type limitError string

// Error implements error.
func (l limitError) Error() string { return string(l) }

// A notice says once that something is left out, until nothing is.
type limitNotice struct {
	report   func(words string)
	reported bool
}

func (n *limitNotice) update(why error) {
	if why != nil && !n.reported {
		n.report(why.Error())
	}
	n.reported = why != nil
}
