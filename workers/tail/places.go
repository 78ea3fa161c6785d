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

// places are those of all tails of a process: the watch of a cluster's pods takes one, and each
// pod that is followed.
type places struct{ all, tails, accounts, clusters *quota.Slots }

func newPlaces(total int) *places {
	of := func(share int) *quota.Slots { return quota.NewSlots(int64(total), int64(max(total/share, 1))) }
	return &places{all: of(1), tails: of(tailShare), accounts: of(accountShare), clusters: of(clusterShare)}
}

// enter takes a place for something in a cluster. What it says when there is none is for who
// reads the tail.
func (p *places) enter(tail, account, cluster string) (leave func(), err error) {
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
		return nil, leftOutError(full.What)
	}
	return leave, nil
}

// leftOutError is why something is not followed.
type leftOutError string

// Error implements error.
func (l leftOutError) Error() string { return string(l) }

// A notice says once that something is left out, until nothing is.
type notice struct {
	say  func(words string)
	said bool
}

func (n *notice) update(why error) {
	if why != nil && !n.said {
		n.say(why.Error())
	}
	n.said = why != nil
}
