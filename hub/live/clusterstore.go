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

// clusterStore holds the present Clusters and sends every change to its watches. Stored
// objects are replaced, never changed. apimachinery's watch.Broadcaster would drop the events
// of a slow watch without ending it.
type clusterStore struct {
	now func() time.Time

	mu       sync.Mutex
	version  uint64                           // of the latest change; guarded by mu
	records  map[string]Record                // guarded by mu
	sessions map[string]sessionState          // guarded by mu
	clusters map[string]*livev1alpha1.Cluster // guarded by mu
	history  []change                         // guarded by mu
	watchers map[*clusterWatch]struct{}       // guarded by mu
}

// sessionState is the state of a cluster's session.
type sessionState struct {
	session Session // nil when disconnected
	status  livev1alpha1.ClusterStatus
}

// change is one change of the store. Before is nil for an addition, after for a
// removal.
type change struct {
	version       uint64
	before, after *livev1alpha1.Cluster
}

func newClusterStore(now func() time.Time) *clusterStore {
	return &clusterStore{
		now: now,
		// Versions of an earlier process are smaller than those of this one, so
		// that a watch from before a restart gets Expired and lists again.
		version:  uint64(now().UnixMicro()),
		records:  map[string]Record{},
		sessions: map[string]sessionState{},
		clusters: map[string]*livev1alpha1.Cluster{},
		watchers: map[*clusterWatch]struct{}{},
	}
}

// handleRecord stores a changed record and updates its cluster.
func (b *clusterStore) handleRecord(e RecordEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.Deleted {
		delete(b.records, e.Record.Name)
	} else {
		b.records[e.Record.Name] = e.Record
	}
	b.update(e.Record.Name)
}

// handleSession stores the start or end of a session and updates its cluster.
func (b *clusterStore) handleSession(e SessionEvent) {
	l := newSessionState(e, b.now())
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sessions[e.Cluster] = l
	b.update(e.Cluster)
	// A link outlives its record only while it is connected.
	if _, known := b.records[e.Cluster]; !known && e.Session == nil {
		delete(b.sessions, e.Cluster)
	}
}

func newSessionState(e SessionEvent, now time.Time) sessionState {
	if e.Session == nil {
		l := sessionState{status: livev1alpha1.ClusterStatus{DisconnectedSince: &metav1.Time{Time: now}}}
		if e.Reason != nil {
			l.status.Reason = e.Reason.Error()
		}
		return l
	}
	info := e.Session.Info()
	return sessionState{session: e.Session, status: livev1alpha1.ClusterStatus{
		Connected:      true,
		ConnectedSince: &metav1.Time{Time: info.ConnectedAt},
		AgentVersion:   info.AgentVersion,
		Protocol:       info.Protocol,
		ProcessID:      info.ProcessID,
		KubeSystemUID:  types.UID(info.KubeSystemUID),
	}}
}

// update builds the cluster from its record and session, and publishes a change of it. The
// caller holds mu.
func (b *clusterStore) update(name string) {
	before, after := b.clusters[name], b.buildCluster(name)
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
	b.publish(change{version: b.version, before: before, after: after})
}

func (b *clusterStore) buildCluster(name string) *livev1alpha1.Cluster {
	record, known := b.records[name]
	if !known {
		return nil
	}
	status := b.sessions[name].status
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

// publish keeps c for late watchers and gives it to the present ones. The
// caller holds mu.
func (b *clusterStore) publish(c change) {
	if len(b.history) == historySize {
		b.history = slices.Delete(b.history, 0, historySize/4)
	}
	b.history = append(b.history, c)
	for w := range b.watchers {
		if !w.send(c) {
			delete(b.watchers, w)
			w.close()
		}
	}
}

// exists reports whether the hub manages a cluster of this name.
func (b *clusterStore) exists(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.records[name]
	return ok
}

// get returns a copy of a cluster with its present round trip.
func (b *clusterStore) get(name string) (*livev1alpha1.Cluster, bool) {
	b.mu.Lock()
	c, ok := b.clusters[name]
	session := b.sessions[name].session
	b.mu.Unlock()
	if !ok {
		return nil, false
	}
	c = c.DeepCopy()
	setRTT(c, session)
	return c, true
}

// list returns copies of the clusters that match, sorted by name, with their
// present round trips.
func (b *clusterStore) list(match selection) *livev1alpha1.ClusterList {
	b.mu.Lock()
	l, sessions := b.snapshot(match)
	b.mu.Unlock()
	for i := range l.Items {
		setRTT(&l.Items[i], sessions[i])
	}
	return l
}

// snapshot copies the clusters that match, because encoders write to what they
// are given. The caller holds mu.
func (b *clusterStore) snapshot(match selection) (*livev1alpha1.ClusterList, []Session) {
	l := &livev1alpha1.ClusterList{Items: []livev1alpha1.Cluster{}}
	l.ResourceVersion = formatVersion(b.version)
	var sessions []Session
	for _, name := range slices.Sorted(maps.Keys(b.clusters)) {
		if c := b.clusters[name]; match.matches(c) {
			l.Items = append(l.Items, *c.DeepCopy())
			sessions = append(sessions, b.sessions[name].session)
		}
	}
	return l, sessions
}

// setRTT adds the round trip, which changes too often to be an event. It asks
// the session, and so is called without mu.
func setRTT(c *livev1alpha1.Cluster, s Session) {
	if s == nil {
		return
	}
	if rtt := s.Info().RTT; rtt > 0 {
		c.Status.RTT = &metav1.Duration{Duration: rtt}
	}
}

// listNames returns the names of the clusters whose labels match, sorted.
func (b *clusterStore) listNames(selector labels.Selector) []string {
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

// watch sends every change after version, or, when version is 0, the
// present clusters and then of every change.
func (b *clusterStore) watch(match selection, version uint64, initial bool) (watch.Interface, error) {
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
		missed, err := b.changesSince(version)
		if err != nil {
			return nil, err
		}
		for _, c := range missed {
			if e, ok := match.toWatchEvent(c); ok {
				first = append(first, e)
			}
		}
	}
	w := newClusterWatch(b, match, first)
	b.watchers[w] = struct{}{}
	return w, nil
}

// changesSince returns the changes after version. The caller holds mu.
func (b *clusterStore) changesSince(version uint64) ([]change, error) {
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

// removeWatch forgets a watcher.
func (b *clusterStore) removeWatch(w *clusterWatch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.watchers[w]; ok {
		delete(b.watchers, w)
		w.close()
	}
}

// stopWatches ends every watch.
func (b *clusterStore) stopWatches() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := range b.watchers {
		delete(b.watchers, w)
		w.close()
	}
}

func formatVersion(v uint64) string { return strconv.FormatUint(v, 10) }
