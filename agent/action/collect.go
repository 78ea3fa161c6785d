// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// keepFor and keepMost are how long entries stay after their end, and how many.
	keepFor  = 7 * 24 * time.Hour
	keepMost = 10_000
	// pageSize is how many entries are read at once.
	pageSize = 500
)

// keptEntry is an entry that is removed when its time comes.
type keptEntry struct {
	name string
	// at is when it ended, or was started if it has no end: an action that the hub has
	// withdrawn on the way is not brought to one.
	at time.Time
}

// run removes what is not needed any more until ctx ends: once the hub has sent which
// actions it wants, and with the start and the end of each action.
func (l *ledger) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.due:
		}
		if err := l.collect(ctx); err != nil && ctx.Err() == nil {
			l.log.Error(err, "Entries of the ledger stay until the next action")
		}
	}
}

// sync begins the collection: the hub has sent which actions it wants. Before that, an
// entry that is old may be of an action that is about to be sent again.
func (l *ledger) sync() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.synced = true
	l.wake()
}

// wake has run look; l.mu is held.
func (l *ledger) wake() {
	if !l.synced {
		return
	}
	select {
	case l.due <- struct{}{}:
	default:
	}
}

// begin opens an entry that is about to be made. It is removed when its time comes, even
// if it never ends.
func (l *ledger) begin(name string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[name] = progress{}
	l.keep(name, at)
}

// close has an entry removed when its time comes, from its end on.
func (l *ledger) close(name string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, name)
	l.keep(name, at)
}

// keep takes an entry for the youngest; l.mu is held.
func (l *ledger) keep(name string, at time.Time) {
	l.kept = slices.DeleteFunc(l.kept, func(known keptEntry) bool { return known.name == name })
	l.kept = append(l.kept, keptEntry{name: name, at: at})
	l.wake()
}

func (l *ledger) collect(ctx context.Context) error {
	if err := l.readAll(ctx); err != nil {
		return err
	}
	for {
		e, ok := l.next()
		if !ok {
			return nil
		}
		err := l.client.Delete(ctx, e.name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			l.merge([]keptEntry{e})
			return fmt.Errorf("delete entry %s: %w", e.name, err)
		}
	}
}

// next takes out the oldest entry that is not needed any more.
func (l *ledger) next() (keptEntry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, e := range l.kept {
		if len(l.kept) <= keepMost && time.Since(e.at) <= keepFor {
			break
		}
		if !l.wanted(e.name) {
			l.kept = slices.Delete(l.kept, i, i+1)
			delete(l.open, e.name)
			return e, true
		}
	}
	return keptEntry{}, false
}

// readAll reads, once, what earlier processes left.
func (l *ledger) readAll(ctx context.Context) error {
	if l.isRead() {
		return nil
	}
	var all []keptEntry
	o := metav1.ListOptions{LabelSelector: labelLedger + "=" + ledgerActions, Limit: pageSize}
	for more := true; more; more = o.Continue != "" {
		page, err := l.client.List(ctx, o)
		if err != nil {
			return fmt.Errorf("list entries of actions: %w", err)
		}
		for i := range page.Items {
			all = append(all, keptOf(&page.Items[i]))
		}
		o.Continue = page.Continue
	}
	l.merge(all)
	return nil
}

func keptOf(stored *corev1.ConfigMap) keptEntry {
	e, err := readEntry(stored)
	switch {
	case err != nil:
		return keptEntry{name: stored.Name, at: stored.CreationTimestamp.Time}
	case e.Ended == nil:
		return keptEntry{name: stored.Name, at: e.Started.Time}
	default:
		return keptEntry{name: stored.Name, at: e.Ended.Time}
	}
}

func (l *ledger) isRead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.read
}

// merge adds entries that were read. What happened to one here since is known better.
func (l *ledger) merge(all []keptEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := make(map[string]bool, len(l.kept))
	for _, e := range l.kept {
		known[e.name] = true
	}
	for _, e := range all {
		if !known[e.name] {
			l.kept = append(l.kept, e)
		}
	}
	slices.SortFunc(l.kept, func(a, b keptEntry) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.name, b.name)) })
	l.read = true
}
