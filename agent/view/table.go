// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/watcher"
)

// rowField has the row from which an object was made.
const rowField = "row"

// acceptTable requests Tables, as kubectl does.
const acceptTable = "application/json;as=Table;v=v1;g=meta.k8s.io"

func requestTable(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		out := r.Clone(r.Context())
		out.Header.Set("Accept", acceptTable)
		return next.RoundTrip(out)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// tableConverter converts Tables to the objects of their rows. The API server sends a Table of
// one row with each event of a watch, bookmarks included; the row's object is the metadata of
// the object of the event. Only the first event has columns.
type tableConverter struct {
	mu      sync.Mutex
	columns json.RawMessage // guarded by mu; nil before the first event
}

// newTableFeed returns a feed of the objects in a feed of Tables.
func newTableFeed(of watcher.ListWatch) *feed {
	t := &tableConverter{}
	return &feed{columns: t.getColumns, ListWatch: watcher.ListWatch{
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.Continue == "" {
				t.reset()
			}
			page, err := of.List(ctx, o)
			if err != nil {
				return nil, err
			}
			return t.convertList(page)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.ResourceVersion == "" {
				t.reset()
			}
			w, err := of.Watch(ctx, o)
			if err != nil {
				return nil, err
			}
			return convertWatch(w, t.convertEvent), nil
		},
	}}
}

func (t *tableConverter) getColumns() json.RawMessage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.columns
}

// reset forgets the columns before a list is read again.
func (t *tableConverter) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.columns = nil
}

// convertEvent returns the event of the object in a Table of one row.
func (t *tableConverter) convertEvent(in watch.Event) watch.Event {
	if in.Type == watch.Error {
		return in
	}
	objects, err := t.rowObjects(in.Object)
	if err == nil && len(objects) != 1 {
		err = notATable(fmt.Sprintf("an event with %d rows", len(objects)))
	}
	if err != nil {
		status := err.Status()
		return watch.Event{Type: watch.Error, Object: &status}
	}
	return watch.Event{Type: in.Type, Object: &objects[0]}
}

// convertList returns a list of the objects in a page.
func (t *tableConverter) convertList(page runtime.Object) (runtime.Object, error) {
	objects, err := t.rowObjects(page)
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{}, Items: objects}
	if u, ok := page.(runtime.Unstructured); ok {
		list.Object["metadata"] = u.UnstructuredContent()["metadata"]
	}
	return list, nil
}

// rowObjects returns an object for each row: its metadata, and the row in rowField.
func (t *tableConverter) rowObjects(of runtime.Object) ([]unstructured.Unstructured, *apierrors.StatusError) {
	u, ok := of.(runtime.Unstructured)
	if !ok {
		return nil, notATable(fmt.Sprintf("a %T", of))
	}
	content := u.UnstructuredContent()
	if content["kind"] != "Table" {
		return nil, notATable(fmt.Sprintf("kind %v", content["kind"]))
	}
	if err := t.setColumns(content["columnDefinitions"]); err != nil {
		return nil, err
	}
	all, _ := content["rows"].([]any)
	objects := make([]unstructured.Unstructured, 0, len(all))
	for _, one := range all {
		row, _ := one.(map[string]any)
		object, _ := row["object"].(map[string]any)
		metadata, ok := object["metadata"].(map[string]any)
		if !ok {
			return nil, notATable("a row without the metadata of an object")
		}
		objects = append(objects, unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
			"metadata": metadata, rowField: row,
		}})
	}
	return objects, nil
}

// setColumns sets the columns of a list. Columns that differ, because the definition has changed,
// expire the list: earlier rows do not fit them.
func (t *tableConverter) setColumns(columns any) *apierrors.StatusError {
	list, ok := columns.([]any)
	if !ok || len(list) == 0 {
		return nil
	}
	raw, err := json.Marshal(list)
	if err != nil {
		return notATable("columns: " + err.Error())
	}
	if len(raw) > wire.MaxViewBytes {
		return notATable(fmt.Sprintf("columns of %d bytes", len(raw)))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.columns != nil && !bytes.Equal(t.columns, raw) {
		return apierrors.NewResourceExpired("the columns have changed")
	}
	t.columns = raw
	return nil
}

// notATable refuses the view: the server of the resource, which may be an aggregated one,
// supports no Tables.
func notATable(what string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: "a Table was asked for, the server sent " + what,
	}}
}

// convertWatch applies f to the events of a watch. Unlike watch.Filter it ends when the
// receiver stops it while an event is pending.
func convertWatch(w watch.Interface, f func(watch.Event) watch.Event) watch.Interface {
	c := &convertedWatch{in: w, out: make(chan watch.Event), done: make(chan struct{})}
	go c.run(f)
	return c
}

type convertedWatch struct {
	in   watch.Interface
	out  chan watch.Event
	once sync.Once
	done chan struct{} // closed by Stop
}

func (c *convertedWatch) run(f func(watch.Event) watch.Event) {
	defer close(c.out)
	for e := range c.in.ResultChan() {
		select {
		case c.out <- f(e):
		case <-c.done:
			return
		}
	}
}

func (c *convertedWatch) ResultChan() <-chan watch.Event { return c.out }

func (c *convertedWatch) Stop() {
	c.in.Stop()
	c.once.Do(func() { close(c.done) })
}
