// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
)

// historySize is how many events a watch may have missed and still go on
// without a new list.
const historySize = 1024

// board holds the Clusters as they are now and tells its watchers of every
// change. Objects on the board are never changed, only replaced.
type board struct {
	now func() time.Time

	mu       sync.Mutex
	version  uint64                           // of the latest change; guarded by mu
	records  map[string]Record                // guarded by mu
	links    map[string]link                  // guarded by mu
	clusters map[string]*livev1alpha1.Cluster // guarded by mu
	history  []change                         // guarded by mu
	watchers map[*watcher]struct{}            // guarded by mu
}

// link is the state of a cluster's session.
type link struct {
	session Session // nil when disconnected
	status  livev1alpha1.ClusterStatus
}

// change is one step of the board. Before is nil for an addition, after for a
// removal.
type change struct {
	version       uint64
	before, after *livev1alpha1.Cluster
}

func newBoard(now func() time.Time) *board {
	return &board{
		now: now,
		// Versions of an earlier process are smaller than those of this one, so
		// that a watch from before a restart is told to list anew.
		version:  uint64(now().UnixMicro()),
		records:  map[string]Record{},
		links:    map[string]link{},
		clusters: map[string]*livev1alpha1.Cluster{},
		watchers: map[*watcher]struct{}{},
	}
}

// onRecord takes in the change of a record.
func (b *board) onRecord(e RecordEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.Deleted {
		delete(b.records, e.Record.Name)
	} else {
		b.records[e.Record.Name] = e.Record
	}
	b.update(e.Record.Name)
}

// onSession takes in the begin or end of a session.
func (b *board) onSession(e SessionEvent) {
	l := linkOf(e, b.now())
	b.mu.Lock()
	defer b.mu.Unlock()
	b.links[e.Cluster] = l
	b.update(e.Cluster)
	// A link outlives its record only while it is connected.
	if _, known := b.records[e.Cluster]; !known && e.Session == nil {
		delete(b.links, e.Cluster)
	}
}

func linkOf(e SessionEvent, now time.Time) link {
	if e.Session == nil {
		l := link{status: livev1alpha1.ClusterStatus{DisconnectedSince: &metav1.Time{Time: now}}}
		if e.Reason != nil {
			l.status.Reason = e.Reason.Error()
		}
		return l
	}
	info := e.Session.Info()
	return link{session: e.Session, status: livev1alpha1.ClusterStatus{
		Connected:      true,
		ConnectedSince: &metav1.Time{Time: info.ConnectedAt},
		AgentVersion:   info.AgentVersion,
		Protocol:       info.Protocol,
		ProcessID:      info.ProcessID,
		KubeSystemUID:  types.UID(info.KubeSystemUID),
	}}
}

// update puts up the cluster anew and tells the watchers. The caller holds mu.
func (b *board) update(name string) {
	before, after := b.clusters[name], b.compose(name)
	switch {
	case before == nil && after == nil:
		return
	case after == nil:
		delete(b.clusters, name)
	default:
		if before != nil {
			after.ResourceVersion = before.ResourceVersion
			if equality.Semantic.DeepEqual(before, after) {
				return
			}
		}
		b.clusters[name] = after
	}
	b.version++
	if after != nil {
		after.ResourceVersion = formatVersion(b.version)
	}
	b.record(change{version: b.version, before: before, after: after})
}

func (b *board) compose(name string) *livev1alpha1.Cluster {
	record, known := b.records[name]
	if !known {
		return nil
	}
	status := b.links[name].status
	status.KubernetesVersion = record.KubernetesVersion
	return &livev1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{
			Name:              name,
			UID:               record.UID,
			Labels:            record.Labels,
			CreationTimestamp: record.Created,
		},
		Status: status,
	}
}

// record keeps c for late watchers and gives it to the present ones. The
// caller holds mu.
func (b *board) record(c change) {
	if len(b.history) == historySize {
		b.history = slices.Delete(b.history, 0, historySize/4)
	}
	b.history = append(b.history, c)
	for w := range b.watchers {
		if !w.offer(c) {
			delete(b.watchers, w)
			w.end()
		}
	}
}

// known says whether the hub manages a cluster of this name.
func (b *board) known(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.records[name]
	return ok
}

// get returns a copy of a cluster with its present round trip.
func (b *board) get(name string) (*livev1alpha1.Cluster, bool) {
	b.mu.Lock()
	c, ok := b.clusters[name]
	session := b.links[name].session
	b.mu.Unlock()
	if !ok {
		return nil, false
	}
	c = c.DeepCopy()
	measure(c, session)
	return c, true
}

// list returns copies of the clusters that match, sorted by name, with their
// present round trips.
func (b *board) list(match selection) *livev1alpha1.ClusterList {
	b.mu.Lock()
	l, sessions := b.snapshot(match)
	b.mu.Unlock()
	for i := range l.Items {
		measure(&l.Items[i], sessions[i])
	}
	return l
}

// snapshot copies the clusters that match, because encoders write to what they
// are given. The caller holds mu.
func (b *board) snapshot(match selection) (*livev1alpha1.ClusterList, []Session) {
	l := &livev1alpha1.ClusterList{Items: []livev1alpha1.Cluster{}}
	l.ResourceVersion = formatVersion(b.version)
	var sessions []Session
	for _, name := range slices.Sorted(maps.Keys(b.clusters)) {
		if c := b.clusters[name]; match.matches(c) {
			l.Items = append(l.Items, *c.DeepCopy())
			sessions = append(sessions, b.links[name].session)
		}
	}
	return l, sessions
}

// measure adds the round trip, which changes too often to be an event. It asks
// the session, and so is called without mu.
func measure(c *livev1alpha1.Cluster, s Session) {
	if s == nil {
		return
	}
	if rtt := s.Info().RTT; rtt > 0 {
		c.Status.RTT = &metav1.Duration{Duration: rtt}
	}
}

// names returns the names of the clusters whose labels match, sorted.
func (b *board) names(selector labels.Selector) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []string
	for name, c := range b.clusters {
		if selector.Matches(labels.Set(c.Labels)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// watch tells of every change after version, or, when version is 0, of the
// present clusters and then of every change.
func (b *board) watch(match selection, version uint64, initial bool) (watch.Interface, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var first []watch.Event
	if version == 0 || initial {
		list, _ := b.snapshot(match)
		for i := range list.Items {
			first = append(first, watch.Event{Type: watch.Added, Object: &list.Items[i]})
		}
		if initial {
			first = append(first, initialEventsEnd(list.ResourceVersion))
		}
	} else {
		missed, err := b.since(version)
		if err != nil {
			return nil, err
		}
		for _, c := range missed {
			if e, ok := match.event(c); ok {
				first = append(first, e)
			}
		}
	}
	w := newWatcher(b, match, first)
	b.watchers[w] = struct{}{}
	return w, nil
}

// since returns the changes after version. The caller holds mu.
func (b *board) since(version uint64) ([]change, error) {
	oldest := b.version
	if len(b.history) > 0 {
		oldest = b.history[0].version - 1
	}
	if version < oldest || version > b.version {
		return nil, apierrors.NewResourceExpired(fmt.Sprintf("resource version %d is not within %d and %d", version, oldest, b.version))
	}
	i, _ := slices.BinarySearchFunc(b.history, version+1, func(c change, v uint64) int { return cmp.Compare(c.version, v) })
	return b.history[i:], nil
}

// remove forgets a watcher.
func (b *board) remove(w *watcher) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.watchers[w]; ok {
		delete(b.watchers, w)
		w.end()
	}
}

// end ends every watch.
func (b *board) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := range b.watchers {
		delete(b.watchers, w)
		w.end()
	}
}

func formatVersion(v uint64) string { return strconv.FormatUint(v, 10) }
