// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
)

// nameOf is the name that a field selector selects; empty for all.
func nameOf(o metav1.ListOptions) string {
	selector, err := fields.ParseSelector(o.FieldSelector)
	if err != nil {
		return "?"
	}
	name, _ := selector.RequiresExactMatch(metav1.ObjectNameField)
	return name
}

// List implements dynamic.ResourceInterface.
func (r fakeResource) List(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	out := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	err := r.call(ctx, "list", "", false, func() error {
		s := r.client.store
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, err := s.check("list", r.at("")); err != nil {
			return err
		}
		for _, obj := range s.list(r.of, r.in, nameOf(o)) {
			out.Items = append(out.Items, *obj.DeepCopy())
		}
		out.SetResourceVersion(strconv.FormatInt(s.version, 10))
		return nil
	})
	return out, err
}

// fakeWatch is a watch of a fakeStore.
type fakeWatch struct {
	of     fakeResource
	name   string
	out    chan watch.Event
	ended  chan struct{}
	end    sync.Once
	epoch  int
	cursor int64
}

// Watch implements dynamic.ResourceInterface.
func (r fakeResource) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w := &fakeWatch{of: r, name: nameOf(o), out: make(chan watch.Event), ended: make(chan struct{})}
	var initial []watch.Event
	err := r.call(ctx, "watch", "", false, func() (err error) {
		initial, err = w.begin(o)
		return err
	})
	if err != nil {
		return nil, err
	}
	life := time.Duration(*o.TimeoutSeconds) * time.Second
	go w.run(ctx, life, initial)
	return w, nil
}

// begin returns the initial events.
func (w *fakeWatch) begin(o metav1.ListOptions) (initial []watch.Event, err error) {
	s := w.of.client.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.check("watch", w.of.at("")); err != nil {
		return nil, err
	}
	w.epoch, w.cursor = s.epoch, s.version
	if o.SendInitialEvents == nil {
		w.cursor, err = strconv.ParseInt(o.ResourceVersion, 10, 64)
		if err != nil || w.cursor < s.compacted || w.cursor > s.version {
			return nil, apierrors.NewResourceExpired("too old")
		}
		return nil, nil
	}
	if s.paged {
		return nil, apierrors.NewBadRequest("sendInitialEvents is forbidden")
	}
	for _, obj := range s.list(w.of.of, w.of.in, w.name) {
		initial = append(initial, watch.Event{Type: watch.Added, Object: obj.DeepCopy()})
	}
	end := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Bookmark"}}
	end.SetResourceVersion(strconv.FormatInt(s.version, 10))
	end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return append(initial, watch.Event{Type: watch.Bookmark, Object: end}), nil
}

func (w *fakeWatch) run(ctx context.Context, life time.Duration, events []watch.Event) {
	defer close(w.out)
	timeout := time.NewTimer(life)
	defer timeout.Stop()
	for {
		for _, e := range events {
			select {
			case w.out <- e:
			case <-w.ended:
				return
			case <-ctx.Done():
				return
			}
		}
		next, news, over := w.next()
		if over {
			return
		}
		if events = next; len(events) > 0 {
			if sleep(ctx, w.of.client.network.watchLag()) != nil {
				return
			}
			continue
		}
		select {
		case <-news:
		case <-w.ended:
			return
		case <-ctx.Done():
			return
		case <-timeout.C:
			return
		}
	}
}

// next returns what has happened since, and what is closed when more has.
func (w *fakeWatch) next() (events []watch.Event, news <-chan struct{}, over bool) {
	s := w.of.client.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.epoch != s.epoch {
		return nil, nil, true
	}
	for _, c := range s.changes {
		if c.version <= w.cursor {
			continue
		}
		w.cursor = c.version
		if c.at.resource == w.of.of && (w.of.in == "" || c.at.namespace == w.of.in) && (w.name == "" || c.at.name == w.name) {
			events = append(events, watch.Event{Type: c.kind, Object: c.object.DeepCopy()})
		}
	}
	return events, s.news, false
}

// ResultChan implements watch.Interface.
func (w *fakeWatch) ResultChan() <-chan watch.Event { return w.out }

// Stop implements watch.Interface.
func (w *fakeWatch) Stop() { w.end.Do(func() { close(w.ended) }) }
