// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fakeAPI is an API server of objects that have a history. It knows versions, conflicts,
// preconditions and JSON patches, and nothing of schemas.
type fakeAPI struct {
	dynamic.Interface

	mu       sync.Mutex
	version  int
	objects  map[string]*unstructured.Unstructured // by resource, namespace and name
	history  []happened
	watches  []*fakeWatch
	paused   bool
	requests []string
	// refuse is asked before each request, and lose after it was executed.
	refuse, lose func(request string) error
	// before is called before each write, without a lock.
	before func(request string)
}

type happened struct {
	resource string
	version  int
	event    watch.Event
}

type fakeWatch struct {
	resource string
	next     int // in the history
	events   chan watch.Event
	ended    bool
}

func newFakeAPI() *fakeAPI {
	return &fakeAPI{version: 100, objects: map[string]*unstructured.Unstructured{}}
}

func (a *fakeAPI) Resource(of schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return fakeResource{api: a, of: of.GroupResource().String()}
}

// set creates or replaces an object, as a user does.
func (a *fakeAPI) set(of string, obj *unstructured.Unstructured) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.store(of, obj.DeepCopy())
}

// edit changes an object, as a user does.
func (a *fakeAPI) edit(t *testing.T, of, namespace, name string, change func(*unstructured.Unstructured)) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	obj := a.objects[of+"/"+namespace+"/"+name]
	if obj == nil {
		t.Fatalf("there is no %s %s", of, name)
	}
	obj = obj.DeepCopy()
	change(obj)
	a.store(of, obj)
}

func (a *fakeAPI) get(of, namespace, name string) *unstructured.Unstructured {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.objects[of+"/"+namespace+"/"+name]
}

func (a *fakeAPI) remove(of, namespace, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(of, namespace, name)
}

// store writes an object; a.mu is held.
func (a *fakeAPI) store(of string, obj *unstructured.Unstructured) {
	key := of + "/" + obj.GetNamespace() + "/" + obj.GetName()
	kind := watch.Modified
	if a.objects[key] == nil {
		kind = watch.Added
		if obj.GetUID() == "" {
			obj.SetUID(types.UID(fmt.Sprintf("%s-%d", obj.GetName(), a.version)))
		}
	}
	a.version++
	obj.SetResourceVersion(strconv.Itoa(a.version))
	a.objects[key] = obj
	a.tell(of, watch.Event{Type: kind, Object: obj})
}

func (a *fakeAPI) drop(of, namespace, name string) {
	key := of + "/" + namespace + "/" + name
	obj := a.objects[key]
	if obj == nil {
		return
	}
	obj = obj.DeepCopy()
	delete(a.objects, key)
	a.version++
	obj.SetResourceVersion(strconv.Itoa(a.version))
	a.tell(of, watch.Event{Type: watch.Deleted, Object: obj})
}

func (a *fakeAPI) tell(of string, e watch.Event) {
	a.history = append(a.history, happened{resource: of, version: a.version, event: e})
	a.flush()
}

func (a *fakeAPI) flush() {
	if a.paused {
		return
	}
	for _, w := range a.watches {
		for ; w.next < len(a.history) && !w.ended; w.next++ {
			if h := a.history[w.next]; h.resource == w.resource {
				w.events <- h.event
			}
		}
	}
}

// pause holds events back, until resume.
func (a *fakeAPI) pause() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.paused = true
}

func (a *fakeAPI) resume() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.paused = false
	a.flush()
}

// expire ends the watches of a resource, of which nothing can be resumed.
func (a *fakeAPI) expire(of string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.watches {
		if w.resource == of && !w.ended {
			w.events <- watch.Event{Type: watch.Error, Object: &apierrors.NewResourceExpired("too old").ErrStatus}
			w.end()
		}
	}
}

func (w *fakeWatch) end() {
	if !w.ended {
		w.ended = true
		close(w.events)
	}
}

// ask notes a request, and returns why it is refused.
func (a *fakeAPI) ask(verb, of, namespace, name string, sub ...string) error {
	request := strings.Join(append([]string{verb, of, namespace, name}, sub...), " ")
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = append(a.requests, request)
	if a.refuse != nil {
		return a.refuse(request)
	}
	return nil
}

// answer is that to a write, unless it is lost.
func (a *fakeAPI) answer(obj *unstructured.Unstructured, verb, of, namespace, name string) (*unstructured.Unstructured, error) {
	if a.lose != nil {
		if err := a.lose(strings.Join([]string{verb, of, namespace, name}, " ")); err != nil {
			return nil, err
		}
	}
	return obj.DeepCopy(), nil
}

// writes are the requests that were not reads.
func (a *fakeAPI) writes() (out []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.requests {
		if verb, _, _ := strings.Cut(r, " "); verb == "create" || verb == "patch" || verb == "delete" {
			out = append(out, r)
		}
	}
	return out
}

// fakeResource is one resource of it, in a namespace or in all.
type fakeResource struct {
	dynamic.NamespaceableResourceInterface

	api           *fakeAPI
	of, namespace string
}

func (r fakeResource) Namespace(namespace string) dynamic.ResourceInterface {
	r.namespace = namespace
	return r
}

func (r fakeResource) notFound(name string) error {
	return apierrors.NewNotFound(schema.ParseGroupResource(r.of), name)
}

func (r fakeResource) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	if err := r.api.ask("get", r.of, r.namespace, name); err != nil {
		return nil, err
	}
	obj := r.api.get(r.of, r.namespace, name)
	if obj == nil {
		return nil, r.notFound(name)
	}
	return obj.DeepCopy(), nil
}

func (r fakeResource) selects(o metav1.ListOptions, obj *unstructured.Unstructured) bool {
	return (r.namespace == "" || obj.GetNamespace() == r.namespace) &&
		(o.FieldSelector == "" || o.FieldSelector == byName(obj.GetName()))
}

func (r fakeResource) List(_ context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	if err := r.api.ask("list", r.of, r.namespace, o.FieldSelector); err != nil {
		return nil, err
	}
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	out := &unstructured.UnstructuredList{}
	for _, obj := range r.all(o) {
		out.Items = append(out.Items, *obj.DeepCopy())
	}
	out.SetResourceVersion(strconv.Itoa(r.api.version))
	return out, nil
}

func (r fakeResource) all(o metav1.ListOptions) (out []*unstructured.Unstructured) {
	for key, obj := range r.api.objects {
		if strings.HasPrefix(key, r.of+"/") && r.selects(o, obj) {
			out = append(out, obj)
		}
	}
	slices.SortFunc(out, func(a, b *unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out
}

func (r fakeResource) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if err := r.api.ask("watch", r.of, r.namespace, o.ResourceVersion); err != nil {
		return nil, err
	}
	a := r.api
	a.mu.Lock()
	defer a.mu.Unlock()
	w := &fakeWatch{resource: r.of, events: make(chan watch.Event, 10_000)}
	if o.SendInitialEvents != nil {
		for _, obj := range r.all(o) {
			w.events <- watch.Event{Type: watch.Added, Object: obj}
		}
		mark := &unstructured.Unstructured{Object: map[string]any{}}
		mark.SetResourceVersion(strconv.Itoa(a.version))
		mark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		w.events <- watch.Event{Type: watch.Bookmark, Object: mark}
		w.next = len(a.history)
	} else {
		from, _ := strconv.Atoi(o.ResourceVersion)
		w.next = slices.IndexFunc(a.history, func(h happened) bool { return h.version > from })
		if w.next < 0 {
			w.next = len(a.history)
		}
	}
	a.watches = append(a.watches, w)
	a.flush()
	context.AfterFunc(ctx, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		w.end()
	})
	return watch.NewProxyWatcher(w.events), nil
}

func (r fakeResource) Create(_ context.Context, obj *unstructured.Unstructured, _ metav1.CreateOptions, _ ...string) (*unstructured.Unstructured, error) {
	if err := r.begin("create", obj.GetName()); err != nil {
		return nil, err
	}
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	if r.api.objects[r.of+"/"+r.namespace+"/"+obj.GetName()] != nil {
		return nil, apierrors.NewAlreadyExists(schema.ParseGroupResource(r.of), obj.GetName())
	}
	obj = obj.DeepCopy()
	r.api.store(r.of, obj)
	return r.api.answer(obj, "create", r.of, r.namespace, obj.GetName())
}

func (r fakeResource) begin(verb, name string, sub ...string) error {
	if err := r.api.ask(verb, r.of, r.namespace, name, sub...); err != nil {
		return err
	}
	if r.api.before != nil {
		r.api.before(strings.Join([]string{verb, r.of, r.namespace, name}, " "))
	}
	return nil
}

func (r fakeResource) Patch(_ context.Context, name string, _ types.PatchType, raw []byte, _ metav1.PatchOptions, sub ...string) (*unstructured.Unstructured, error) {
	if err := r.begin("patch", name, sub...); err != nil {
		return nil, err
	}
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	obj := r.api.objects[r.of+"/"+r.namespace+"/"+name]
	if obj == nil {
		return nil, r.notFound(name)
	}
	patched, err := applyPatch(obj, raw)
	if err != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: "example.com", Kind: "Widget"}, name, nil)
	}
	if patched.GetResourceVersion() != obj.GetResourceVersion() {
		return nil, apierrors.NewConflict(schema.ParseGroupResource(r.of), name, nil)
	}
	r.api.store(r.of, patched)
	return r.api.answer(patched, "patch", r.of, r.namespace, name)
}

func (r fakeResource) Delete(_ context.Context, name string, o metav1.DeleteOptions, _ ...string) error {
	if err := r.begin("delete", name); err != nil {
		return err
	}
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	obj := r.api.objects[r.of+"/"+r.namespace+"/"+name]
	if obj == nil {
		return r.notFound(name)
	}
	if *o.Preconditions.UID != obj.GetUID() || *o.Preconditions.ResourceVersion != obj.GetResourceVersion() {
		return apierrors.NewConflict(schema.ParseGroupResource(r.of), name, nil)
	}
	if len(obj.GetFinalizers()) > 0 {
		obj = obj.DeepCopy()
		obj.SetDeletionTimestamp(&metav1.Time{Time: metav1.Now().Rfc3339Copy().Time})
		r.api.store(r.of, obj)
	} else {
		r.api.drop(r.of, r.namespace, name)
	}
	_, err := r.api.answer(obj, "delete", r.of, r.namespace, name)
	return err
}

// applyPatch does what of RFC 6902 is used.
func applyPatch(obj *unstructured.Unstructured, raw []byte) (*unstructured.Unstructured, error) {
	var ops []struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	if err := json.Unmarshal(raw, &ops); err != nil {
		return nil, err
	}
	out := obj.DeepCopy()
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for _, op := range ops {
		in := out.Object
		path := strings.Split(op.Path, "/")[1:]
		for _, key := range path[:len(path)-1] {
			next, ok := in[unescape.Replace(key)].(map[string]any)
			if !ok {
				return nil, fmt.Errorf("there is no %s", op.Path)
			}
			in = next
		}
		last := unescape.Replace(path[len(path)-1])
		_, exists := in[last]
		switch {
		case op.Op != "add" && !exists:
			return nil, fmt.Errorf("there is no %s", op.Path)
		case op.Op == "remove":
			delete(in, last)
		default:
			in[last] = op.Value
		}
	}
	return out, nil
}

// fakeLive reads namespaces and the metadata of definitions from the API server.
type fakeLive struct {
	client.Reader

	definitions *fakeAPI
	// asked is called before each answer.
	asked func()
}

func (l *fakeLive) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if l.asked != nil {
		l.asked()
	}
	return l.Reader.Get(ctx, key, obj, opts...)
}

func (l *fakeLive) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if l.asked != nil {
		l.asked()
	}
	var o client.ListOptions
	o.ApplyOptions(opts)
	name, _ := o.FieldSelector.RequiresExactMatch(metav1.ObjectNameField)
	if obj := l.definitions.get(definitionResource, "", name); obj != nil {
		out := list.(*metav1.PartialObjectMetadataList)
		out.Items = append(out.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: obj.GetUID(), DeletionTimestamp: obj.GetDeletionTimestamp(),
		}})
	}
	return nil
}

// errOutage is of an API server that cannot be reached.
var errOutage = apierrors.NewServiceUnavailable("later")

// unavailable is a reader that cannot be reached.
type unavailable struct{ client.Reader }

func (unavailable) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errOutage
}
