// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"cmp"
	"slices"
	"time"
)

// Claim is what one account wants to be reached by.
type Claim struct {
	Namespace string
	Account   string
	// Host that the account names. Empty: all hosts that nobody names.
	Host string
	// Created is when the account asked.
	Created time.Time
	// Workers are the scripts, each of which is a path of the host.
	Workers []string
}

// Routing is what one account is reached by.
type Routing struct {
	// Routed are the scripts that have their path.
	Routed map[string]bool
	// Taken are the scripts whose path another account has, sorted. Whose it is the
	// account does not learn.
	Taken []string
}

// Routes divides hosts and paths among accounts; the keys of the result are namespaces. A
// path of a host belongs to the oldest claim. Accounts may share a host, but no path of it,
// and a path of no host is another one than that of a host: the host that is named wins.
func Routes(claims []Claim) map[string]Routing {
	type path struct{ host, worker string }
	owners := map[path]string{}
	out := make(map[string]Routing, len(claims))
	for _, c := range slices.SortedFunc(slices.Values(claims), before) {
		r, known := out[c.Namespace]
		if !known {
			r.Routed = map[string]bool{}
		}
		for _, worker := range c.Workers {
			p := path{host: c.Host, worker: worker}
			if _, owned := owners[p]; !owned {
				owners[p] = c.Namespace
			}
			if owners[p] == c.Namespace {
				r.Routed[worker] = true
			} else {
				r.Taken = append(r.Taken, worker)
			}
		}
		slices.Sort(r.Taken)
		r.Taken = slices.Compact(r.Taken)
		out[c.Namespace] = r
	}
	return out
}

// before orders claims by their age. All that a claim says decides between two of the same
// second, so that the order in which they come does not.
func before(a, b Claim) int {
	return cmp.Or(
		a.Created.Compare(b.Created),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Account, b.Account),
		cmp.Compare(a.Host, b.Host),
		slices.Compare(a.Workers, b.Workers),
	)
}
