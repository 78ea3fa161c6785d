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

// followSlots limits what all tails of a process follow: the watch of a cluster's pods takes a slot, and each
// followed pod.
type followSlots struct{ all, tails, accounts, clusters *quota.Slots }

func newFollowSlots(total int) *followSlots {
	of := func(share int) *quota.Slots { return quota.NewSlots(int64(total), int64(max(total/share, 1))) }
	return &followSlots{all: of(1), tails: of(tailShare), accounts: of(accountShare), clusters: of(clusterShare)}
}

// acquire takes a slot for a cluster or one of its pods. Its error is sent to the client.
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

// limitError is the limit that keeps something from being followed.
type limitError string

func (l limitError) Error() string { return string(l) }

// A notice reports a limit once, until it is no longer reached.
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
