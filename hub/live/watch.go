// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
)

// watchBuffer is how many events a watcher may lag behind before its watch is
// ended; the client then goes on from the last version it saw.
const watchBuffer = 256

// selection says which clusters a list or watch is about.
type selection struct {
	labels labels.Selector
	fields fields.Selector
}

func (s selection) matches(c *livev1alpha1.Cluster) bool {
	return c != nil && s.labels.Matches(labels.Set(c.Labels)) && s.fields.Matches(fields.Set{"metadata.name": c.Name})
}

// toWatchEvent is what a change means to someone who sees only the selection.
func (s selection) toWatchEvent(c change) (watch.Event, bool) {
	before, after := s.matches(c.before), s.matches(c.after)
	switch {
	case before && after:
		return watch.Event{Type: watch.Modified, Object: c.after.DeepCopy()}, true
	case after:
		return watch.Event{Type: watch.Added, Object: c.after.DeepCopy()}, true
	case before:
		gone := c.before.DeepCopy()
		// The version of the removal, so that a watch resumes behind it.
		gone.ResourceVersion = formatVersion(c.version)
		return watch.Event{Type: watch.Deleted, Object: gone}, true
	default:
		return watch.Event{}, false
	}
}

// initialEventsEnd is the bookmark that ends the initial events of a streamed
// list (KEP-3157).
func initialEventsEnd(version string) watch.Event {
	return watch.Event{Type: watch.Bookmark, Object: &livev1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: version,
		Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}}
}

// clusterWatch is one watch of the store.
type clusterWatch struct {
	store     *clusterStore
	selection selection
	events    chan watch.Event // closed by end
}

var _ watch.Interface = &clusterWatch{}

func newClusterWatch(b *clusterStore, match selection, first []watch.Event) *clusterWatch {
	w := &clusterWatch{store: b, selection: match, events: make(chan watch.Event, len(first)+watchBuffer)}
	for _, e := range first {
		w.events <- e
	}
	return w
}

// send hands over a change; false means that the watcher is too slow. The
// caller holds the store's mutex.
func (w *clusterWatch) send(c change) bool {
	e, ok := w.selection.toWatchEvent(c)
	if !ok {
		return true
	}
	select {
	case w.events <- e:
		return true
	default:
		return false
	}
}

// close closes the watch. The caller holds the store's mutex and has removed the
// watch from the store, so that it happens once.
func (w *clusterWatch) close() { close(w.events) }

func (w *clusterWatch) ResultChan() <-chan watch.Event { return w.events }

func (w *clusterWatch) Stop() { w.store.removeWatch(w) }
