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

// sink is a follow.Sink that makes lists for a view. It ends its follower at the first
// refusal.
type sink struct {
	view    *view
	mapping *meta.RESTMapping
	feed    *feed
	cancel  context.CancelFunc
	// next is being read; shown is the list that the view has.
	next, shown *list
	refusal     error
	// revisions are those of a view of releases; stale is set when the list that is being
	// read shows one that is there no more.
	revisions revisions
	stale     bool
}

// Begin implements follow.Sink.
func (s *sink) Begin() {
	s.drop()
	s.view.uncount()
	s.revisions.release()
	s.revisions, s.stale = revisions{memory: &s.view.engine.memory, numbers: map[string][]int32{}}, false
	s.next = newList(s.view.spec, s.mapping, &s.view.engine.memory)
}

// close gives back what the sink holds.
func (s *sink) close() {
	s.drop()
	s.revisions.release()
}

// renew has the list read anew, once there is one.
func (s *sink) renew() {
	if s.stale = s.next != nil; !s.stale {
		s.cancel()
	}
}

// drop gives up a list that is not complete.
func (s *sink) drop() {
	if s.next != nil {
		s.next.release()
		s.next = nil
	}
}

// Event implements follow.Sink.
func (s *sink) Event(obj metav1.Object, deleted bool) {
	if s.refusal != nil || !s.asked(obj) {
		return
	}
	i, err := s.item(obj, deleted)
	switch {
	case err != nil:
	case i.key == "": // nothing is shown of it
	case s.next != nil:
		s.setColumns()
		_, err = s.next.change(s.view.shared(i))
	default:
		err = s.view.change(s.shown, i)
	}
	if err != nil {
		s.Refused(err)
	}
}

// asked reports whether an object is the one that is asked for. An aggregated API server
// may not know field selectors: then it sends all, of which one is an answer.
func (s *sink) asked(obj metav1.Object) bool {
	t := s.view.spec.Target
	return t.Name == "" || obj.GetName() == t.Name && (!isNamespaced(s.mapping) || obj.GetNamespace() == t.Namespace)
}

// End implements follow.Sink.
func (s *sink) End(string) {
	if s.refusal != nil {
		return
	}
	s.setColumns()
	s.shown, s.next = s.next, nil
	s.view.show(s.shown)
	if s.stale {
		s.cancel()
	}
}

// setColumns gives the list that is being read its columns. The list that is shown keeps
// those that its rows were made for.
func (s *sink) setColumns() {
	if columns := s.feed.columns(); columns != nil {
		s.next.setColumns(columns)
	}
}

// Refused implements follow.Sink.
func (s *sink) Refused(err error) {
	s.refusal = err
	s.cancel()
}

// item encodes what is shown of an object, if anything is. It may change the object.
func (s *sink) item(obj metav1.Object, deleted bool) (item, error) {
	if s.view.spec.Releases {
		return s.releaseItem(obj, deleted)
	}
	i := item{key: obj.GetNamespace() + "/" + obj.GetName(), deleted: deleted}
	if deleted {
		return i, nil
	}
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return item{}, fmt.Errorf("%w: an event with a %T", errUnreadable, obj)
	}
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	raw, err := json.Marshal(s.shownOf(u)) // sorts the members of maps
	if err != nil {
		return item{}, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	i.raw = raw
	return i, nil
}

// shownOf is the row of a Table, or the object; in both the values of Secrets are masked.
func (s *sink) shownOf(u *unstructured.Unstructured) any {
	masked := s.view.spec.Secrets != wire.SecretsShown
	if !s.view.spec.Table {
		if masked {
			secret.Mask(u)
		}
		return u.Object
	}
	if masked && secret.Is(s.mapping.Resource) {
		secret.MaskMetadata(u.Object)
	}
	return u.Object[rowField] // whose object has the same metadata
}
