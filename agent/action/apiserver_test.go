// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
)

var errCut = errors.New("connection was cut")

// apiServer is an API server without a network. It has objects of any kind, by the path
// of each.
type apiServer struct {
	mu sync.Mutex
	// All below are guarded by mu.
	objects  map[string]*unstructured.Unstructured
	versions int
	// done are the requests that changed something, and who made them.
	done []string
	// seen are all requests.
	seen []string
	// refuse answers requests in place of the server, if it returns a Status.
	refuse func(method, path string) *metav1.Status
	// warn is sent with each answer.
	warn string
}

func newAPIServer() *apiServer { return &apiServer{objects: map[string]*unstructured.Unstructured{}} }

// client is a way to the server: of one user, and of one process.
type client struct {
	server *apiServer
	user   string
	// fault may break requests; nil does not.
	fault *fault
}

// fault breaks connections.
type fault struct {
	method, path string
	// after: the request has its effect, and the answer is lost.
	after bool
	// stays: nothing goes through any more.
	stays bool
	// err is errCut if it is nil.
	err error
	// skip is how many requests that match go through before.
	skip int

	mu     sync.Mutex
	broken bool // guarded by mu
}

// breaks reports whether a request is broken, and whether it has its effect before.
func (f *fault) breaks(method, path string) (broken, effect bool) {
	if f == nil {
		return false, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken {
		return f.stays, false
	}
	if method != f.method || !strings.Contains(path, f.path) {
		return false, false
	}
	if f.skip > 0 {
		f.skip--
		return false, false
	}
	f.broken = true
	return true, f.after
}

func (c *client) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	broken, effect := c.fault.breaks(r.Method, r.URL.Path)
	if broken && !effect {
		return nil, cmpOr(c.fault.err, errCut)
	}
	code, answer := c.server.serve(r, c.user, body)
	if broken {
		return nil, cmpOr(c.fault.err, errCut)
	}
	return c.server.response(r, code, answer), nil
}

func cmpOr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

func (s *apiServer) response(r *http.Request, code int, answer any) *http.Response {
	raw, _ := json.Marshal(answer)
	s.mu.Lock()
	defer s.mu.Unlock()
	header := http.Header{"Content-Type": {"application/json"}}
	if s.warn != "" {
		header.Set("Warning", fmt.Sprintf("299 - %q", s.warn))
	}
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(bytes.NewReader(raw)), Request: r}
}

func (s *apiServer) serve(r *http.Request, user string, body []byte) (int, any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, r.Method+" "+r.URL.Path)
	if s.refuse != nil {
		if status := s.refuse(r.Method, r.URL.Path); status != nil {
			return int(status.Code), typed(*status)
		}
	}
	obj, err := s.handle(r, body)
	if err != nil {
		return int(err.Status().Code), typed(err.Status())
	}
	if r.Method != http.MethodGet {
		s.done = append(s.done, r.Method+" "+r.URL.Path+" as "+user)
	}
	return http.StatusOK, obj
}

func typed(s metav1.Status) *metav1.Status {
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return &s
}

// handle does what is asked for; s.mu is held.
func (s *apiServer) handle(r *http.Request, body []byte) (any, *apierrors.StatusError) {
	resource := resourceOf(r.URL.Path)
	obj, ok := s.objects[r.URL.Path]
	switch {
	case r.Method == http.MethodPost:
		return s.create(r.URL.Path, body)
	case r.Method == http.MethodGet && !ok && r.URL.Query().Has("labelSelector"):
		return s.list(r.URL.Path, r.URL.Query()), nil
	case !ok:
		return nil, apierrors.NewNotFound(resource, r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
	case r.Method == http.MethodGet:
		return obj.DeepCopy(), nil
	case r.Method == http.MethodDelete:
		return s.remove(r.URL.Path, obj, body)
	default:
		return s.change(r, obj, body)
	}
}

// resourceOf returns the resource that a path of an object names.
func resourceOf(path string) schema.GroupResource {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	group := ""
	if parts[0] == "apis" {
		group, parts = parts[1], parts[1:]
	}
	parts = parts[2:]
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	return schema.GroupResource{Group: group, Resource: parts[0]}
}

func (s *apiServer) create(path string, body []byte) (any, *apierrors.StatusError) {
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(body); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	path += "/" + obj.GetName()
	if s.objects[path] != nil {
		return nil, apierrors.NewAlreadyExists(resourceOf(path), obj.GetName())
	}
	obj.SetUID(types.UID(fmt.Sprintf("uid-%d", s.versions+1)))
	obj.SetCreationTimestamp(metav1.NewTime(time.Now()))
	obj.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "somebody"}})
	s.store(path, obj)
	return obj.DeepCopy(), nil
}

func (s *apiServer) store(path string, obj *unstructured.Unstructured) {
	s.versions++
	obj.SetResourceVersion(strconv.Itoa(s.versions))
	s.objects[path] = obj
}

func (s *apiServer) remove(path string, obj *unstructured.Unstructured, body []byte) (any, *apierrors.StatusError) {
	var o metav1.DeleteOptions
	if err := json.Unmarshal(body, &o); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if !strings.HasPrefix(path, entriesPath) && o.PropagationPolicy == nil {
		return nil, apierrors.NewBadRequest("jobs would leave their pods")
	}
	if o.Preconditions != nil && o.Preconditions.UID != nil && *o.Preconditions.UID != obj.GetUID() {
		return nil, apierrors.NewConflict(resourceOf(path), obj.GetName(), errors.New("uid"))
	}
	if len(obj.GetFinalizers()) == 0 {
		delete(s.objects, path)
		return typed(metav1.Status{Status: metav1.StatusSuccess}), nil
	}
	going := metav1.NewTime(time.Now())
	obj.SetDeletionTimestamp(&going)
	s.store(path, obj)
	return obj.DeepCopy(), nil
}

// change replaces or patches an object.
func (s *apiServer) change(r *http.Request, old *unstructured.Unstructured, body []byte) (any, *apierrors.StatusError) {
	next, err := patched(r.Header.Get("Content-Type"), old, body)
	if err != nil {
		return nil, err
	}
	if v := next.GetResourceVersion(); v != "" && v != old.GetResourceVersion() {
		return nil, apierrors.NewConflict(resourceOf(r.URL.Path), old.GetName(), errors.New("modified"))
	}
	s.store(r.URL.Path, next)
	return next.DeepCopy(), nil
}

func patched(contentType string, old *unstructured.Unstructured, body []byte) (*unstructured.Unstructured, *apierrors.StatusError) {
	next := &unstructured.Unstructured{}
	var patch map[string]any
	if err := json.Unmarshal(body, &patch); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	kind, unknown := scheme.Scheme.New(old.GroupVersionKind())
	switch types.PatchType(contentType) {
	case types.MergePatchType:
		next.Object = mergePatch(old.DeepCopy().Object, patch)
	case types.StrategicMergePatchType:
		if unknown != nil {
			return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType, Message: "no such patch"}}
		}
		merged, err := strategicpatch.StrategicMergeMapPatch(old.DeepCopy().Object, patch, kind)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		next.Object = merged
	default:
		next.Object = patch
	}
	return next, nil
}

// mergePatch is that of RFC 7396.
func mergePatch(into, patch map[string]any) map[string]any {
	if into == nil {
		into = map[string]any{}
	}
	for key, value := range patch {
		fields, ok := value.(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case ok:
			below, _ := into[key].(map[string]any)
			into[key] = mergePatch(below, fields)
		default:
			into[key] = value
		}
	}
	return into
}

// list returns a page of what has a label.
func (s *apiServer) list(path string, query url.Values) any {
	limit, _ := strconv.Atoi(query.Get("limit"))
	key, value, _ := strings.Cut(query.Get("labelSelector"), "=")
	page := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMapList"}}
	for _, at := range slices.Sorted(maps.Keys(s.objects)) {
		obj := s.objects[at]
		if !strings.HasPrefix(at, path+"/") || obj.GetLabels()[key] != value || at <= query.Get("continue") {
			continue
		}
		if len(page.Items) == limit {
			page.SetContinue(path + "/" + page.Items[limit-1].GetName())
			break
		}
		page.Items = append(page.Items, *obj.DeepCopy())
	}
	return page
}

// with changes the server.
func (s *apiServer) with(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// put stores an object as somebody else does.
func (s *apiServer) put(path string, fields map[string]any) {
	s.with(func() {
		obj := &unstructured.Unstructured{Object: fields}
		if old := s.objects[path]; old != nil {
			obj.SetUID(old.GetUID())
		} else {
			obj.SetUID(types.UID(fmt.Sprintf("uid-%d", s.versions+1)))
		}
		s.store(path, obj)
	})
}

// drop deletes an object as somebody else does.
func (s *apiServer) drop(path string) { s.with(func() { delete(s.objects, path) }) }

// object returns a copy, nil if there is none.
func (s *apiServer) object(path string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	if obj, ok := s.objects[path]; ok {
		return obj.DeepCopy()
	}
	return nil
}

// writes returns the requests that changed what a path begins with.
func (s *apiServer) writes(path string) (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, request := range s.done {
		if strings.Contains(request, " "+path) {
			all = append(all, request)
		}
	}
	return all
}

func (s *apiServer) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}
