// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/spokelet/spokelet/internal/sharedobject"
)

// place is where an object is stored.
type place struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

// change is one that a watch tells.
type change struct {
	version int64
	at      place
	kind    watch.EventType
	object  *unstructured.Unstructured
}

// fakeStore is the API server of a cluster, in memory: as much of one as is used here. Its
// resourceVersions are one sequence, and objects that are stored do not change.
type fakeStore struct {
	mu sync.Mutex
	// All below are guarded by mu.
	version int64
	uids    int64
	objects map[place]*unstructured.Unstructured
	// changes are those after the version compacted, what watches can tell; news is closed
	// with the next one. Watches of another epoch end.
	changes   []change
	compacted int64
	news      chan struct{}
	epoch     int
	// paged: initial events are not streamed.
	paged bool
	// admit, if not nil, changes what is written, as defaults and pruning do; refuse has a
	// request fail.
	admit  func(obj map[string]any)
	refuse func(verb string, at place) error
	// told is called with each change of an object, with mu held.
	told func(change)
}

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

const (
	widgetsName = "widgets.example.com"
	namespace   = "app"
)

func newFakeStore() *fakeStore {
	return &fakeStore{version: 100, objects: map[place]*unstructured.Unstructured{}, news: make(chan struct{})}
}

// newFakeCluster has the namespace and the definition of widgets.
func newFakeCluster(status bool) *fakeStore {
	s := newFakeStore()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commit(place{resource: namespaces, name: namespace}, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace},
	}})
	s.commit(place{resource: definitions(), name: widgetsName}, widgetDefinition(status))
	return s
}

// widgetDefinition is an established definition.
func widgetDefinition(status bool) *unstructured.Unstructured {
	text := map[string]any{"type": "string"}
	version := map[string]any{
		"name": "v1", "served": true, "storage": true,
		"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
			"spec": map[string]any{"type": "object", "properties": map[string]any{
				"a": text, "b": text, "c": map[string]any{"type": "object", "properties": map[string]any{"d": text}},
				"list": map[string]any{
					"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []any{"k"},
					"items": map[string]any{"type": "object", "required": []any{"k"}, "properties": map[string]any{"k": text, "v": text}},
				},
				"unknown": text, "default": text,
			}},
			"status": map[string]any{"type": "object", "properties": map[string]any{"x": text}},
		}}},
	}
	if status {
		version["subresources"] = map[string]any{"status": map[string]any{}}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": widgetsName},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced",
			"names":    map[string]any{"kind": "Widget", "plural": "widgets"},
			"versions": []any{version},
		},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}},
	}}
}

// commit stores an object as its next version; s.mu is held.
func (s *fakeStore) commit(at place, obj *unstructured.Unstructured) *unstructured.Unstructured {
	kind := watch.Modified
	if old := s.objects[at]; old == nil {
		kind = watch.Added
		s.uids++
		obj.SetUID(types.UID(fmt.Sprintf("uid-%d", s.uids)))
	}
	s.version++
	obj.SetResourceVersion(strconv.FormatInt(s.version, 10))
	s.objects[at] = obj
	s.notifyWatches(change{version: s.version, at: at, kind: kind, object: obj})
	return obj
}

// removeObject removes an object; s.mu is held.
func (s *fakeStore) removeObject(at place) {
	obj := s.objects[at].DeepCopy()
	delete(s.objects, at)
	s.version++
	obj.SetResourceVersion(strconv.FormatInt(s.version, 10))
	s.notifyWatches(change{version: s.version, at: at, kind: watch.Deleted, object: obj})
}

func (s *fakeStore) notifyWatches(c change) {
	s.changes = append(s.changes, c)
	close(s.news)
	s.news = make(chan struct{})
	if s.told != nil {
		s.told(c)
	}
}

// served reports whether there is a resource, and whether it has a status subresource; s.mu
// is held.
func (s *fakeStore) served(of schema.GroupVersionResource) (status bool, err error) {
	if of == namespaces || of == definitions() {
		return false, nil
	}
	crd := s.objects[place{resource: definitions(), name: of.Resource + "." + of.Group}]
	if crd == nil {
		return false, apierrors.NewGenericServerResponse(http.StatusNotFound, "get", of.GroupResource(), "", "", 0, true)
	}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	version, _ := versions[0].(map[string]any)
	_, status, _ = unstructured.NestedMap(version, "subresources", "status")
	return status, nil
}

func (s *fakeStore) create(at place, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	status, err := s.check("create", at)
	if err != nil {
		return nil, err
	}
	if s.objects[at] != nil {
		return nil, apierrors.NewAlreadyExists(at.resource.GroupResource(), at.name)
	}
	obj = obj.DeepCopy()
	if status {
		delete(obj.Object, "status")
	}
	s.runAdmission(obj)
	return s.commit(at, obj), nil
}

// check is what every request meets; s.mu is held.
func (s *fakeStore) check(verb string, at place) (status bool, err error) {
	if s.refuse != nil {
		if err := s.refuse(verb, at); err != nil {
			return false, err
		}
	}
	return s.served(at.resource)
}

func (s *fakeStore) runAdmission(obj *unstructured.Unstructured) {
	if s.admit != nil {
		s.admit(obj.Object)
	}
}

func (s *fakeStore) get(at place) (*unstructured.Unstructured, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.check("get", at); err != nil {
		return nil, err
	}
	obj := s.objects[at]
	if obj == nil {
		return nil, apierrors.NewNotFound(at.resource.GroupResource(), at.name)
	}
	return obj.DeepCopy(), nil
}

// change makes an object from the one that is there. Of what it makes the part is stored
// that the subresource is for.
func (s *fakeStore) change(verb string, at place, subresource string, edit func(obj map[string]any) error) (*unstructured.Unstructured, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	status, err := s.check(verb, at)
	if err != nil {
		return nil, err
	}
	old := s.objects[at]
	if old == nil || subresource == "status" && !status {
		return nil, apierrors.NewNotFound(at.resource.GroupResource(), at.name)
	}
	next := old.DeepCopy()
	if err := edit(next.Object); err != nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, verb, at.resource.GroupResource(), at.name, err.Error(), 0, false)
	}
	if next.GetResourceVersion() != old.GetResourceVersion() {
		return nil, apierrors.NewConflict(at.resource.GroupResource(), at.name, fmt.Errorf("version %s, not %s", old.GetResourceVersion(), next.GetResourceVersion()))
	}
	made := next
	switch {
	case subresource == "status":
		made = withStatus(old.DeepCopy(), next)
	case status:
		made = withStatus(next, old)
	}
	s.runAdmission(made)
	if equality.Semantic.DeepEqual(old.Object, made.Object) {
		return old.DeepCopy(), nil
	}
	if made.GetDeletionTimestamp() != nil && len(made.GetFinalizers()) == 0 {
		s.removeObject(at)
		return made, nil
	}
	return s.commit(at, made).DeepCopy(), nil
}

func withStatus(obj, of *unstructured.Unstructured) *unstructured.Unstructured {
	delete(obj.Object, "status")
	if status, ok := of.Object["status"]; ok {
		obj.Object["status"] = status
	}
	return obj
}

func (s *fakeStore) remove(at place, if_ *metav1.Preconditions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.check("delete", at); err != nil {
		return err
	}
	old := s.objects[at]
	switch {
	case old == nil:
		return apierrors.NewNotFound(at.resource.GroupResource(), at.name)
	case if_ != nil && if_.UID != nil && *if_.UID != old.GetUID():
		return apierrors.NewConflict(at.resource.GroupResource(), at.name, fmt.Errorf("uid %s", old.GetUID()))
	case if_ != nil && if_.ResourceVersion != nil && *if_.ResourceVersion != old.GetResourceVersion():
		return apierrors.NewConflict(at.resource.GroupResource(), at.name, fmt.Errorf("version %s", old.GetResourceVersion()))
	case len(old.GetFinalizers()) == 0:
		s.removeObject(at)
	case old.GetDeletionTimestamp() == nil:
		next := old.DeepCopy()
		next.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
		s.commit(at, next)
	}
	return nil
}

// list returns what there is of a resource, sorted, at a version; s.mu is held.
func (s *fakeStore) list(of schema.GroupVersionResource, in, name string) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for at, obj := range s.objects {
		if at.resource == of && (in == "" || at.namespace == in) && (name == "" || at.name == name) {
			out = append(out, obj)
		}
	}
	slices.SortFunc(out, func(a, b *unstructured.Unstructured) int {
		if a.GetName() < b.GetName() {
			return -1
		}
		return 1
	})
	return out
}

// cutWatches ends all watches. With forget they cannot be resumed.
func (s *fakeStore) cutWatches(forget bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if forget {
		s.compacted, s.changes = s.version, nil
	}
	s.endWatches()
}

func (s *fakeStore) endWatches() {
	s.epoch++
	close(s.news)
	s.news = make(chan struct{})
}

// What users do. The objects are widgets.

func widget(name string) place { return place{resource: widgets, namespace: namespace, name: name} }

// edit changes a widget; it returns false if there is none.
func (s *fakeStore) edit(name string, edit func(obj map[string]any)) bool {
	s.mu.Lock()
	status, _ := s.served(widgets)
	s.mu.Unlock()
	each := func(obj map[string]any) error { edit(obj); return nil }
	_, err := s.change("user", widget(name), "", each)
	if err == nil && status {
		_, err = s.change("user", widget(name), "status", each)
	}
	return err == nil
}

// make creates a widget with a content; one that is there is an error.
func (s *fakeStore) make(name string, c sharedobject.Content) error {
	_, err := s.create(widget(name), c.Object("example.com/v1", "Widget", namespace, name))
	if err == nil && c["status"] != nil {
		s.edit(name, func(obj map[string]any) { obj["status"] = c["status"] })
	}
	return err
}

// delete deletes a widget; it returns false if there is none.
func (s *fakeStore) delete(name string) bool { return s.remove(widget(name), nil) == nil }

// content is that of a widget; nil if there is none.
func (s *fakeStore) content(name string) sharedobject.Content {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj := s.objects[widget(name)]
	if obj == nil {
		return nil
	}
	return sharedobject.Of(obj.DeepCopy())
}

// names are those of all widgets.
func (s *fakeStore) names() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, obj := range s.list(widgets, namespace, "") {
		names = append(names, obj.GetName())
	}
	return names
}
