// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// fakeServer is a fake of an API server for ConfigMaps and anchors: a real one cannot be
// stepped, request by request, in the time of a test. Server-side apply and the managers
// of fields are Kubernetes' own code. It does what each request says at the moment that
// it is done; there is no garbage collector.
type fakeServer struct {
	fields *managedfields.FieldManager
	// gone is told of each object that goes.
	gone func(at string, live *unstructured.Unstructured)

	mu      sync.Mutex
	version int
	objects map[string]*unstructured.Unstructured // by path
	streams map[*stream]struct{}
}

func newFakeServer() *fakeServer {
	return &fakeServer{
		fields:  managedfieldstest.NewFakeFieldManager(configMapFields, corev1.SchemeGroupVersion.WithKind("ConfigMap")),
		objects: map[string]*unstructured.Unstructured{}, streams: map[*stream]struct{}{},
	}
}

// configMapFields is the part of a ConfigMap's schema that says how lists and maps merge.
var configMapFields = func() managedfields.TypeConverter {
	const text = `{
	 "type": "object", "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "ConfigMap"}],
	 "properties": {
	  "apiVersion": {"type": "string"}, "kind": {"type": "string"},
	  "data": {"type": "object", "additionalProperties": {"type": "string"}},
	  "metadata": {"type": "object", "properties": {
	   "name": {"type": "string"}, "namespace": {"type": "string"}, "uid": {"type": "string"}, "resourceVersion": {"type": "string"},
	   "creationTimestamp": {"type": "string"}, "deletionTimestamp": {"type": "string"},
	   "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
	   "managedFields": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
	   "ownerReferences": {
	    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
	    "items": {"type": "object", "properties": {
	     "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "name": {"type": "string"}, "uid": {"type": "string"}}}}}}}}`
	var s spec.Schema
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		panic(err)
	}
	c, err := managedfields.NewTypeConverter(map[string]*spec.Schema{"io.k8s.api.core.v1.ConfigMap": &s}, false)
	if err != nil {
		panic(err)
	}
	return c
}()

// request is one request to the fake.
type request struct {
	method, path, media string
	body                []byte
	query               map[string][]string
	metadata            bool // the answer is to be metadata alone
}

func callOf(req *http.Request) (request, error) {
	c := request{method: req.Method, path: req.URL.Path, media: req.Header.Get("Content-Type"), query: req.URL.Query()}
	c.metadata = strings.Contains(req.Header.Get("Accept"), "as=PartialObjectMetadata")
	if req.Body == nil {
		return c, nil
	}
	var err error
	c.body, err = io.ReadAll(req.Body)
	_ = req.Body.Close()
	return c, err
}

func (c request) manager() string {
	if m := c.query["fieldManager"]; len(m) > 0 {
		return m[0]
	}
	return "unknown"
}

func (c request) watches() bool { return len(c.query["watch"]) > 0 }

// do does what a request asks for.
func (s *fakeServer) do(c request) (code int, answer any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	code, answer, err := s.handle(c)
	var status apierrors.APIStatus
	if err != nil && !errors.As(err, &status) {
		err = apierrors.NewInternalError(err)
		errors.As(err, &status)
	}
	if err != nil {
		st := status.Status()
		st.APIVersion, st.Kind = "v1", "Status"
		return int(st.Code), st
	}
	if obj, ok := answer.(*unstructured.Unstructured); ok && c.metadata {
		answer = metadataOf(obj)
	}
	return code, answer
}

func metadataOf(obj *unstructured.Unstructured) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": obj.Object["metadata"]}}
}

func (s *fakeServer) handle(c request) (int, any, error) {
	switch base := path.Base(c.path); {
	case c.path == "/api/v1":
		return http.StatusOK, metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "configmaps", Kind: "ConfigMap", Namespaced: true}}}, nil
	case strings.HasSuffix(base, "s") && c.method == http.MethodGet && base != "status":
		return http.StatusOK, s.list(c), nil
	case c.method == http.MethodPost:
		obj := &unstructured.Unstructured{}
		if err := obj.UnmarshalJSON(c.body); err != nil {
			return 0, nil, apierrors.NewBadRequest(err.Error())
		}
		return s.create(path.Join(c.path, obj.GetName()), obj, c.manager())
	}
	at := strings.TrimSuffix(c.path, "/status")
	live := s.objects[at]
	if live == nil && c.media != string(types.ApplyPatchType) {
		return 0, nil, apierrors.NewNotFound(schema.GroupResource{Resource: path.Base(path.Dir(at))}, path.Base(at))
	}
	switch c.method {
	case http.MethodGet:
		return http.StatusOK, live.DeepCopy(), nil
	case http.MethodDelete:
		return http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}, s.remove(at, live, c.body)
	case http.MethodPut:
		next := &unstructured.Unstructured{}
		if err := next.UnmarshalJSON(c.body); err != nil {
			return 0, nil, apierrors.NewBadRequest(err.Error())
		}
		return s.update(at, live, next, c.manager())
	default:
		return s.patch(at, live, c)
	}
}

func (s *fakeServer) list(c request) any {
	kind := metav1.PartialObjectMetadata{}.Kind
	list := map[string]any{"apiVersion": "v1", "kind": kind + "List", "metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version)}}
	var items []any
	for _, at := range slices.Sorted(maps.Keys(s.objects)) {
		if path.Dir(at) == c.path {
			items = append(items, s.objects[at].DeepCopy().Object)
		}
	}
	list["items"] = items
	return list
}

func (s *fakeServer) create(at string, obj *unstructured.Unstructured, manager string) (int, any, error) {
	if s.objects[at] != nil {
		return 0, nil, apierrors.NewAlreadyExists(schema.GroupResource{}, path.Base(at))
	}
	delete(obj.Object, "status")
	if isConfigMap(at) {
		obj = s.managed(emptyConfigMap(), obj, manager)
	}
	s.version++
	obj.SetUID(types.UID(fmt.Sprintf("%s-%d", path.Base(at), s.version)))
	obj.SetCreationTimestamp(metav1.Now())
	s.store(at, nil, obj)
	return http.StatusCreated, obj.DeepCopy(), nil
}

func isConfigMap(at string) bool { return strings.Contains(at, "/configmaps/") }

func emptyConfigMap() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
}

// managed says whose the fields of next are.
func (s *fakeServer) managed(live, next *unstructured.Unstructured, manager string) *unstructured.Unstructured {
	return s.fields.UpdateNoErrors(live.DeepCopy(), next, manager).(*unstructured.Unstructured)
}

func (s *fakeServer) update(at string, live, next *unstructured.Unstructured, manager string) (int, any, error) {
	if v := next.GetResourceVersion(); v != "" && v != live.GetResourceVersion() {
		return 0, nil, apierrors.NewConflict(schema.GroupResource{}, path.Base(at), fmt.Errorf("version is %s", live.GetResourceVersion()))
	}
	if uid := next.GetUID(); uid != "" && uid != live.GetUID() {
		return 0, nil, apierrors.NewConflict(schema.GroupResource{}, path.Base(at), fmt.Errorf("uid is %s", live.GetUID()))
	}
	next = next.DeepCopy()
	next.SetUID(live.GetUID())
	next.SetCreationTimestamp(live.GetCreationTimestamp())
	next.SetResourceVersion(live.GetResourceVersion())
	if isConfigMap(at) {
		next.SetManagedFields(live.GetManagedFields())
		next = s.managed(live, next, manager)
	}
	if unchanged(live, next) {
		return http.StatusOK, live.DeepCopy(), nil
	}
	if next.GetDeletionTimestamp() != nil && len(next.GetFinalizers()) == 0 {
		s.drop(at, live)
		return http.StatusOK, next, nil
	}
	s.store(at, live, next)
	return http.StatusOK, next.DeepCopy(), nil
}

// unchanged: an API server writes nothing where nothing differs but the times.
func unchanged(a, b *unstructured.Unstructured) bool {
	plain := func(u *unstructured.Unstructured) map[string]any {
		u = u.DeepCopy()
		fields := u.GetManagedFields()
		for i := range fields {
			fields[i].Time = nil
		}
		u.SetManagedFields(fields)
		if len(u.GetOwnerReferences()) == 0 {
			u.SetOwnerReferences(nil)
		}
		return u.Object
	}
	return reflect.DeepEqual(plain(a), plain(b))
}

func (s *fakeServer) patch(at string, live *unstructured.Unstructured, c request) (int, any, error) {
	if c.media == string(types.ApplyPatchType) {
		return s.apply(at, live, c)
	}
	before, err := live.MarshalJSON()
	if err != nil {
		return 0, nil, err
	}
	var after []byte
	switch c.media {
	case string(types.JSONPatchType):
		p, err := jsonpatch.DecodePatch(c.body)
		if err != nil {
			return 0, nil, apierrors.NewBadRequest(err.Error())
		}
		if after, err = p.Apply(before); err != nil {
			return 0, nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
		}
	default:
		if after, err = jsonpatch.MergePatch(before, c.body); err != nil {
			return 0, nil, apierrors.NewBadRequest(err.Error())
		}
	}
	next := &unstructured.Unstructured{}
	if err := next.UnmarshalJSON(after); err != nil {
		return 0, nil, err
	}
	return s.update(at, live, next, c.manager())
}

func (s *fakeServer) apply(at string, live *unstructured.Unstructured, c request) (int, any, error) {
	applied := &unstructured.Unstructured{}
	if err := applied.UnmarshalJSON(c.body); err != nil {
		return 0, nil, apierrors.NewBadRequest(err.Error())
	}
	from := live
	if from == nil {
		from = emptyConfigMap()
	}
	got, err := s.fields.Apply(from.DeepCopy(), applied, c.manager(), slices.Contains(c.query["force"], "true"))
	if err != nil {
		return 0, nil, err
	}
	next := got.(*unstructured.Unstructured)
	if live == nil {
		s.version++
		next.SetUID(types.UID(fmt.Sprintf("%s-%d", path.Base(at), s.version)))
		next.SetCreationTimestamp(metav1.Now())
		s.store(at, nil, next)
		return http.StatusCreated, next.DeepCopy(), nil
	}
	if unchanged(live, next) {
		return http.StatusOK, live.DeepCopy(), nil
	}
	s.store(at, live, next)
	return http.StatusOK, next.DeepCopy(), nil
}

func (s *fakeServer) remove(at string, live *unstructured.Unstructured, body []byte) error {
	var o metav1.DeleteOptions
	if err := json.Unmarshal(body, &o); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if p := o.Preconditions; p != nil && (p.UID != nil && *p.UID != live.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != live.GetResourceVersion()) {
		return apierrors.NewConflict(schema.GroupResource{}, path.Base(at), fmt.Errorf("it is another one"))
	}
	if len(live.GetFinalizers()) == 0 {
		s.drop(at, live)
		return nil
	}
	if live.GetDeletionTimestamp() == nil {
		next := live.DeepCopy()
		next.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
		s.store(at, live, next)
	}
	return nil
}

func (s *fakeServer) store(at string, before, obj *unstructured.Unstructured) {
	s.version++
	obj.SetResourceVersion(strconv.Itoa(s.version))
	s.objects[at] = obj.DeepCopy()
	event := "MODIFIED"
	if before == nil {
		event = "ADDED"
	}
	s.notify(at, event, obj)
}

func (s *fakeServer) drop(at string, live *unstructured.Unstructured) {
	s.version++
	gone := live.DeepCopy()
	gone.SetResourceVersion(strconv.Itoa(s.version))
	delete(s.objects, at)
	if s.gone != nil {
		s.gone(at, gone)
	}
	s.notify(at, "DELETED", gone)
}

func (s *fakeServer) notify(at, event string, obj *unstructured.Unstructured) {
	for w := range s.streams {
		if w.path == path.Dir(at) {
			w.put(event, obj)
		}
	}
}

// get reads an object, nil for none.
func (s *fakeServer) get(at string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	if live := s.objects[at]; live != nil {
		return live.DeepCopy()
	}
	return nil
}

// watch answers with what is there, and with every event from then on.
func (s *fakeServer) watch(req *http.Request) *http.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &stream{path: req.URL.Path, metadata: strings.Contains(req.Header.Get("Accept"), "as=PartialObjectMetadata"), frames: make(chan []byte, 10_000), done: make(chan struct{})}
	for _, at := range slices.Sorted(maps.Keys(s.objects)) {
		if path.Dir(at) == w.path {
			w.put("ADDED", s.objects[at])
		}
	}
	mark := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version), "annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"}}}}
	w.put("BOOKMARK", mark)
	s.streams[w] = struct{}{}
	w.closed = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.streams, w)
	}
	context.AfterFunc(req.Context(), func() { _ = w.Close() })
	return newResponse(req, http.StatusOK, w)
}

func newResponse(req *http.Request, code int, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: code, Status: strconv.Itoa(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: req}
}

// stream is the body of a watch.
type stream struct {
	path     string
	metadata bool
	frames   chan []byte
	done     chan struct{}
	once     sync.Once
	closed   func()
	rest     bytes.Buffer
}

func (w *stream) put(event string, obj *unstructured.Unstructured) {
	if w.metadata {
		obj = metadataOf(obj)
	}
	text, err := json.Marshal(map[string]any{"type": event, "object": obj.Object})
	if err != nil {
		panic(err)
	}
	w.frames <- append(text, '\n')
}

// Read waits for the next event.
func (w *stream) Read(p []byte) (int, error) {
	if w.rest.Len() == 0 {
		select {
		case frame := <-w.frames:
			w.rest.Write(frame)
		case <-w.done:
			return 0, io.EOF
		}
	}
	return w.rest.Read(p)
}

// Close ends the watch.
func (w *stream) Close() error {
	w.once.Do(func() {
		close(w.done)
		w.closed()
	})
	return nil
}
