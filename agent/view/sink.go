// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/agent/secret"
	"github.com/spokelet/spokelet/api/wire"
)

// viewSink is a watcher.Handler that builds the lists of a view. It stops its watcher at the
// first refusal.
type viewSink struct {
	view    *view
	mapping *meta.RESTMapping
	feed    *feed
	cancel  context.CancelFunc
	// next is the list that is being read, shown the one that the view publishes.
	next, shown *list
	refusal     error
	// revisions are those of a view of releases; stale is set when the list that is being
	// read shows a removed one.
	revisions revisions
	stale     bool
}

func (s *viewSink) StartSync() {
	s.dropNext()
	s.view.uncountList()
	s.revisions.release()
	s.revisions, s.stale = revisions{memory: &s.view.engine.memory, numbers: map[string][]int32{}}, false
	s.next = newList(s.view.spec, s.mapping, &s.view.engine.memory)
}

// close releases the memory of the sink.
func (s *viewSink) close() {
	s.dropNext()
	s.revisions.release()
}

// reload reads the list again, once it is complete.
func (s *viewSink) reload() {
	if s.stale = s.next != nil; !s.stale {
		s.cancel()
	}
}

// dropNext releases an incomplete list.
func (s *viewSink) dropNext() {
	if s.next != nil {
		s.next.release()
		s.next = nil
	}
}

func (s *viewSink) HandleEvent(obj metav1.Object, deleted bool) {
	if s.refusal != nil || !s.isRequested(obj) {
		return
	}
	i, err := s.newItem(obj, deleted)
	switch {
	case err != nil:
	case i.key == "": // it is not shown
	case s.next != nil:
		s.setColumns()
		_, err = s.next.update(s.view.reuseBytes(i))
	default:
		err = s.view.applyEvent(s.shown, i)
	}
	if err != nil {
		s.HandleDenied(err)
	}
}

// isRequested reports whether an object is the requested one. An aggregated API server may
// ignore field selectors and send all objects.
func (s *viewSink) isRequested(obj metav1.Object) bool {
	t := s.view.spec.Target
	return t.Name == "" || obj.GetName() == t.Name && (!isNamespaced(s.mapping) || obj.GetNamespace() == t.Namespace)
}

func (s *viewSink) FinishSync(string) {
	if s.refusal != nil {
		return
	}
	s.setColumns()
	s.shown, s.next = s.next, nil
	s.view.setShownList(s.shown)
	if s.stale {
		s.cancel()
	}
}

// setColumns sets the columns of the list that is being read. The shown list keeps those of
// its rows.
func (s *viewSink) setColumns() {
	if columns := s.feed.columns(); columns != nil {
		s.next.setColumns(columns)
	}
}

func (s *viewSink) HandleDenied(err error) {
	s.refusal = err
	s.cancel()
}

// newItem encodes an object, if it is shown. It may change the object.
func (s *viewSink) newItem(obj metav1.Object, deleted bool) (item, error) {
	if s.view.spec.Releases {
		return s.newReleaseItem(obj, deleted)
	}
	i := item{key: obj.GetNamespace() + "/" + obj.GetName(), deleted: deleted}
	if deleted {
		return i, nil
	}
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return item{}, fmt.Errorf("%w: an event with a %T", errUnexpectedObject, obj)
	}
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	raw, err := json.Marshal(s.redact(u)) // sorts the members of maps
	if err != nil {
		return item{}, fmt.Errorf("%w: %w", errUnexpectedObject, err)
	}
	i.raw = raw
	return i, nil
}

// redact returns the row of a Table, or the object, with the values of Secrets masked.
func (s *viewSink) redact(u *unstructured.Unstructured) any {
	masked := s.view.spec.Secrets != wire.SecretsShown
	if !s.view.spec.Table {
		if masked {
			secret.Mask(u)
		}
		return u.Object
	}
	if masked && secret.IsSecret(s.mapping.Resource) {
		secret.MaskMetadata(u.Object)
	}
	return u.Object[rowField] // whose object has the same metadata
}
