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

type endedEntry struct {
	name string
	at   time.Time
}

// run removes what is not needed any more until ctx ends: once the hub has sent which
// actions it wants, and after the end of each action.
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

// close has an entry removed when its time comes.
func (l *ledger) close(e endedEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, e.name)
	// An earlier process may have started it, and the collection read it.
	l.ended = slices.DeleteFunc(l.ended, func(known endedEntry) bool { return known.name == e.name })
	l.ended = append(l.ended, e)
	l.wake()
}

func (l *ledger) collect(ctx context.Context) error {
	if err := l.readAll(ctx); err != nil {
		return err
	}
	wanted := l.wanted()
	for {
		e, ok := l.next(wanted)
		if !ok {
			return nil
		}
		err := l.client.Delete(ctx, e.name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			l.merge([]endedEntry{e})
			return fmt.Errorf("delete entry %s: %w", e.name, err)
		}
	}
}

// next takes out the oldest entry that is not needed any more.
func (l *ledger) next(wanted map[string]bool) (endedEntry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, e := range l.ended {
		if len(l.ended) <= keepMost && time.Since(e.at) <= keepFor {
			break
		}
		if !wanted[e.name] {
			l.ended = slices.Delete(l.ended, i, i+1)
			return e, true
		}
	}
	return endedEntry{}, false
}

// readAll reads, once, what earlier processes left.
func (l *ledger) readAll(ctx context.Context) error {
	if l.isRead() {
		return nil
	}
	var all []endedEntry
	o := metav1.ListOptions{LabelSelector: labelLedger + "=" + ledgerActions, Limit: pageSize}
	for more := true; more; more = o.Continue != "" {
		page, err := l.client.List(ctx, o)
		if err != nil {
			return fmt.Errorf("list entries of actions: %w", err)
		}
		for i := range page.Items {
			all = append(all, endOf(&page.Items[i]))
		}
		o.Continue = page.Continue
	}
	l.merge(all)
	return nil
}

// endOf returns when an entry ended. An action that was started and is not wanted any more
// never ends.
func endOf(stored *corev1.ConfigMap) endedEntry {
	e, err := readEntry(stored)
	switch {
	case err != nil:
		return endedEntry{name: stored.Name, at: stored.CreationTimestamp.Time}
	case e.Ended == nil:
		return endedEntry{name: stored.Name, at: e.Started.Time}
	default:
		return endedEntry{name: stored.Name, at: e.Ended.Time}
	}
}

func (l *ledger) isRead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.read
}

// merge adds entries that were read. Those that have ended here since are known better.
func (l *ledger) merge(all []endedEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := make(map[string]bool, len(l.ended))
	for _, e := range l.ended {
		known[e.name] = true
	}
	for _, e := range all {
		if !known[e.name] {
			l.ended = append(l.ended, e)
		}
	}
	slices.SortFunc(l.ended, func(a, b endedEntry) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.name, b.name)) })
	l.read = true
}
