// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/e2e/hostile/spoke"
)

const (
	// maxAttack bounds the time of one attack.
	maxAttack = time.Minute
	// maxSaid is how long the hostile spoke goes on with what it says over Sync. The hub
	// bears an inventory for a minute; its memory is at its most in a second.
	maxSaid = 20 * time.Second
	// viewsPerUser is how many views one user may ask for at once.
	viewsPerUser = 4
)

// Attack is one way to make the hub pay.
type Attack struct {
	Name string
	// run attacks once. That it is refused is no error: an error says that it did not
	// take place.
	run func(context.Context) (Outcome, error)
	// calm is what the same users do while nobody attacks; nil is nothing.
	calm func(context.Context) (string, error)
}

// Outcome is how an attack went.
type Outcome struct {
	Text string
	// Written is what the hub wrote because of it, where that is what it is about.
	Written Written
}

// outcome makes an attack of one whose outcome is a text.
func outcome(run func(context.Context) (string, error)) func(context.Context) (Outcome, error) {
	return func(ctx context.Context) (Outcome, error) {
		text, err := run(ctx)
		return Outcome{Text: text}, err
	}
}

// Attacks are all attacks, the mildest first.
func (s *Site) Attacks() []Attack {
	const (
		all = `{"clusterSelector":{},"scope":{"resource":"configmaps","namespace":"default"}}`
		one = `{"scope":{"resource":"configmaps","namespace":"default","name":"small"}}`
	)
	return []Attack{
		{Name: "role frames without end", run: outcome(s.ordered(spoke.Roles))},
		{Name: "inventories of long keys without end", run: outcome(s.ordered(spoke.Inventories))},
		s.asked("kinds of 60 KB before each of 30000 items", spoke.Kinds, s.views(all)),
		s.asked("an object of 2.8 million managed fields", spoke.ManagedFields, s.views(one)),
		{Name: "a status of 2.8 million manifests", run: outcome(s.ordered(spoke.Reports))},
		s.asked("32 MiB of figures for each of 65 nodes", spoke.Figures, s.scrapes),
		{Name: "informational answers to a caller that reads nothing", run: outcome(s.earlyHints)},
		{Name: "questions that are short of a byte", run: outcome(s.fromNeighbours("bodies"))},
		{Name: "reviews of 2.8 million manifests", run: outcome(s.fromNeighbours("reviews"))},
		{Name: "a large work whose feedback always changes", run: s.rewriting},
	}
}

// ordered is an attack that the hostile spoke carries out alone.
func (s *Site) ordered(do string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return s.spoke.Do(s.order(do, maxSaid)) }
}

// order names the work that the hostile cluster may report on.
func (s *Site) order(do string, within time.Duration) spoke.Order {
	return spoke.Order{Do: do, Within: within, Key: s.work.key, UID: s.work.uid}
}

// asked is an attack by the answers to what users ask, as they also do while nobody
// attacks. On a busy machine the hostile cluster may have no turn while they ask: then they
// ask again.
func (s *Site) asked(name, do string, users func(context.Context) (string, error)) Attack {
	run := func(ctx context.Context) (string, error) {
		for {
			text, served, err := s.askedOnce(ctx, do, users)
			if err != nil || served > 0 {
				return fmt.Sprintf("%s; the cluster answered %d requests", text, served), err
			}
			if ctx.Err() != nil {
				return "", fmt.Errorf("%s: %w", text, spoke.ErrIdle)
			}
			spoke.Pause(ctx, time.Second)
		}
	}
	return Attack{Name: name, run: outcome(run), calm: users}
}

// askedOnce returns how users fared, and how many requests the hostile cluster answered.
func (s *Site) askedOnce(ctx context.Context, do string, users func(context.Context) (string, error)) (text string, served int, err error) {
	if _, err := s.spoke.Do(s.order(do, 0)); err != nil {
		return "", 0, err
	}
	text, err = users(ctx)
	count, restoreErr := s.spoke.Do(s.order(spoke.Restore, 0))
	if restoreErr != nil {
		return text, 0, errors.Join(err, restoreErr)
	}
	served, countErr := strconv.Atoi(count)
	return text, served, errors.Join(err, countErr)
}

// views has a user ask for as many views at once as one user may.
func (s *Site) views(spec string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		failed := atOnce(viewsPerUser, func(int) error { return s.attacker.view(ctx, cluster, spec) })
		return fmt.Sprintf("%d views, %d failed", viewsPerUser, failed), nil
	}
}

// scrapes has all nodes of the hostile cluster scraped at once.
func (s *Site) scrapes(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	nodes := []string{wire.NodeName(cluster, "")}
	for i := range spoke.Groups {
		nodes = append(nodes, wire.NodeName(cluster, spoke.GroupName(i)))
	}
	errs := make([]error, len(nodes))
	failed := atOnce(len(nodes), func(i int) error {
		errs[i] = s.admin.drain(ctx, "/api/v1/nodes/"+nodes[i]+"/proxy/metrics/resource")
		return errs[i]
	})
	text := fmt.Sprintf("%d nodes asked, %d failed", len(nodes), failed)
	if first := cmp.Or(errs...); first != nil {
		text += ", the first with " + first.Error()
	}
	return text, nil
}

// atOnce does n things at a time and returns how many failed.
func atOnce(n int, do func(int) error) int {
	var failed atomic.Int64
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if do(i) != nil {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	return int(failed.Load())
}
