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
	// retention and maxEntries bound how long entries are kept after their end, and how many.
	retention  = 7 * 24 * time.Hour
	maxEntries = 10_000
	// pageSize is the number of entries in a page of the list.
	pageSize = 500
)

// expiringEntry is an entry that will be deleted.
type expiringEntry struct {
	name string
	// at is its end, or its start if it has no end: an action that the hub has deleted
	// meanwhile never ends.
	at time.Time
}

// run deletes expired entries until ctx ends: once the hub has sent all actions, and with the
// start and the end of each action.
func (l *actionLog) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wakeups:
		}
		if err := l.collect(ctx); err != nil && ctx.Err() == nil {
			l.log.Error(err, "Expired entries of the action log cannot be deleted before the next action")
		}
	}
}

// setSynced allows expired entries to be deleted, once the hub has sent all actions. Before that
// an old entry may be of an action that is about to be sent again.
func (l *actionLog) setSynced() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.synced = true
	l.wake()
}

// wake wakes run up. The caller holds l.mu.
func (l *actionLog) wake() {
	if !l.synced {
		return
	}
	select {
	case l.wakeups <- struct{}{}:
	default:
	}
}

// openEntry records that an entry is being created. It expires even if it never ends.
func (l *actionLog) openEntry(name string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[name] = progress{}
	l.schedule(name, at)
}

// closeEntry records the end of an entry, from which it expires.
func (l *actionLog) closeEntry(name string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, name)
	l.schedule(name, at)
}

// schedule appends an entry as the youngest. The caller holds l.mu.
func (l *actionLog) schedule(name string, at time.Time) {
	l.expiring = slices.DeleteFunc(l.expiring, func(known expiringEntry) bool { return known.name == name })
	l.expiring = append(l.expiring, expiringEntry{name: name, at: at})
	l.wake()
}

func (l *actionLog) collect(ctx context.Context) error {
	if err := l.load(ctx); err != nil {
		return err
	}
	for {
		e, ok := l.takeExpired()
		if !ok {
			return nil
		}
		err := l.client.Delete(ctx, e.name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			l.merge([]expiringEntry{e})
			return fmt.Errorf("delete entry %s: %w", e.name, err)
		}
	}
}

// takeExpired removes and returns the oldest expired entry.
func (l *actionLog) takeExpired() (expiringEntry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, e := range l.expiring {
		if len(l.expiring) <= maxEntries && time.Since(e.at) <= retention {
			break
		}
		if !l.isWanted(e.name) {
			l.expiring = slices.Delete(l.expiring, i, i+1)
			delete(l.open, e.name)
			return e, true
		}
	}
	return expiringEntry{}, false
}

// load lists, once, the entries of earlier processes.
func (l *actionLog) load(ctx context.Context) error {
	if l.isLoaded() {
		return nil
	}
	var all []expiringEntry
	o := metav1.ListOptions{LabelSelector: labelLog + "=" + logActions, Limit: pageSize}
	for more := true; more; more = o.Continue != "" {
		page, err := l.client.List(ctx, o)
		if err != nil {
			return fmt.Errorf("list entries of actions: %w", err)
		}
		for i := range page.Items {
			all = append(all, expiringEntryOf(&page.Items[i]))
		}
		o.Continue = page.Continue
	}
	l.merge(all)
	return nil
}

func expiringEntryOf(stored *corev1.ConfigMap) expiringEntry {
	e, err := decodeEntry(stored)
	switch {
	case err != nil:
		return expiringEntry{name: stored.Name, at: stored.CreationTimestamp.Time}
	case e.Ended == nil:
		return expiringEntry{name: stored.Name, at: e.Started.Time}
	default:
		return expiringEntry{name: stored.Name, at: e.Ended.Time}
	}
}

func (l *actionLog) isLoaded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.loaded
}

// merge adds entries that were listed, unless this process has a later state of them.
func (l *actionLog) merge(all []expiringEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := make(map[string]bool, len(l.expiring))
	for _, e := range l.expiring {
		known[e.name] = true
	}
	for _, e := range all {
		if !known[e.name] {
			l.expiring = append(l.expiring, e)
		}
	}
	slices.SortFunc(l.expiring, func(a, b expiringEntry) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.name, b.name)) })
	l.loaded = true
}
