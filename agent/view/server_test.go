// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"bytes"
	"context"
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

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
)

var errDown = errors.New("connection refused")

// server is an API server in memory: an http.RoundTripper that lists and watches as one
// does, so that it works in a bubble of testing/synctest.
type server struct {
	mu sync.Mutex
	// All below are guarded by mu.
	version   int
	resources map[string]*kind // by plural
	// may decides about "user verb resource namespace name"; nil allows all.
	may func(question string) bool
	// answer overrides the answer to a request for a plural; "" is for all. A code of -1
	// is a connection that cannot be made.
	answer map[string]metav1.Status
	// pages: lists are not streamed.
	pages bool
	// unselective is a server that does not know field selectors.
	unselective bool
	// slow is how long the answers to requesters take.
	slow time.Duration
	// noReviews is an API server that cannot be asked about rights.
	noReviews bool
	// columns of all Tables.
	columns []string
	// requests are "user verb resource namespace", in order.
	requests []string
}

// kind is one resource of a server.
type kind struct {
	name, group, kind string
	clusterScoped     bool
	objects           map[string]map[string]any // by namespace/name
	history           []event
	streams           map[*stream]struct{}
}

type event struct {
	kind    string
	version int
	object  map[string]any
}

// stream is one watch. Its events go through a queue, so that a client that does not read
// blocks nobody.
type stream struct {
	selects func(map[string]any) bool
	encode  func(event) []byte
	queue   chan []byte
	once    sync.Once
}

func (s *stream) end() { s.once.Do(func() { close(s.queue) }) }

func newServer() *server {
	s := &server{version: 100, resources: map[string]*kind{}, answer: map[string]metav1.Status{}, columns: []string{"Name", "Data"}}
	for _, k := range []*kind{
		{name: "configmaps", kind: "ConfigMap"},
		{name: "secrets", kind: "Secret"},
		{name: "nodes", kind: "Node", clusterScoped: true},
		{name: "roles", group: "rbac.authorization.k8s.io", kind: "Role"},
		{name: "rolebindings", group: "rbac.authorization.k8s.io", kind: "RoleBinding"},
		{name: "clusterroles", group: "rbac.authorization.k8s.io", kind: "ClusterRole", clusterScoped: true},
		{name: "clusterrolebindings", group: "rbac.authorization.k8s.io", kind: "ClusterRoleBinding", clusterScoped: true},
		{name: "customresourcedefinitions", group: "apiextensions.k8s.io", kind: "CustomResourceDefinition", clusterScoped: true},
	} {
		s.resources[k.name] = k.init()
	}
	return s
}

func (k *kind) init() *kind {
	k.objects, k.streams = map[string]map[string]any{}, map[*stream]struct{}{}
	return k
}

func (k *kind) apiVersion() string {
	if k.group == "" {
		return "v1"
	}
	return k.group + "/v1"
}

// define serves a resource, and says so.
func (s *server) define(name, kindName string) {
	s.mu.Lock()
	s.resources[name] = (&kind{name: name, group: "example.com", kind: kindName}).init()
	s.mu.Unlock()
	s.set("customresourcedefinitions", "", name+".example.com", nil)
}

// undefine ends the watches of a resource and serves it no more.
func (s *server) undefine(name string) {
	s.mu.Lock()
	k := s.resources[name]
	delete(s.resources, name)
	for w := range k.streams {
		w.end()
	}
	s.mu.Unlock()
	s.remove("customresourcedefinitions", "", name+".example.com")
}

// set creates or changes an object.
func (s *server) set(resource, namespace, name string, fields map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.resources[resource]
	s.version++
	meta := map[string]any{
		"name": name, "resourceVersion": strconv.Itoa(s.version),
		"managedFields": []any{map[string]any{"manager": "test"}},
	}
	if namespace != "" {
		meta["namespace"] = namespace
	}
	obj := map[string]any{"apiVersion": k.apiVersion(), "kind": k.kind}
	for field, value := range fields {
		if field == "metadata" {
			maps.Copy(meta, value.(map[string]any))
			continue
		}
		obj[field] = value
	}
	obj["metadata"] = meta
	key, verb := namespace+"/"+name, "ADDED"
	if _, ok := k.objects[key]; ok {
		verb = "MODIFIED"
	}
	k.objects[key] = obj
	k.send(event{kind: verb, version: s.version, object: obj})
}

// remove deletes an object.
func (s *server) remove(resource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.resources[resource]
	s.version++
	key := namespace + "/" + name
	obj := maps.Clone(k.objects[key])
	meta := maps.Clone(obj["metadata"].(map[string]any))
	meta["resourceVersion"] = strconv.Itoa(s.version)
	obj["metadata"] = meta
	delete(k.objects, key)
	k.send(event{kind: "DELETED", version: s.version, object: obj})
}

func (k *kind) send(e event) {
	k.history = append(k.history, e)
	for w := range k.streams {
		if w.selects(e.object) {
			w.queue <- w.encode(e)
		}
	}
}

// expire ends the watches of a resource, and drops the versions that they saw.
func (s *server) expire(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.resources[resource]
	s.version++
	k.history = nil
	for w := range k.streams {
		w.queue <- encode(map[string]any{"type": "ERROR", "object": status(http.StatusGone, metav1.StatusReasonExpired, "too old")})
		w.end()
	}
}

// cut ends the watches of a resource.
func (s *server) cut(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.resources[resource].streams {
		w.end()
	}
}

// configure changes fields that mu guards.
func (s *server) configure(f func(*server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

// seen are the requests since the last call, but for those about rights.
func (s *server) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.requests
	s.requests = nil
	return slices.DeleteFunc(all, func(r string) bool { return strings.Contains(r, "role") })
}

// watches is the number of open watches of a resource.
func (s *server) watches(resource string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.resources[resource].streams)
}

// wait takes the time that an answer takes.
func (s *server) wait(r *http.Request) error {
	s.mu.Lock()
	slow := s.slow
	s.mu.Unlock()
	if slow == 0 || r.Header.Get("Impersonate-User") == "" {
		return nil
	}
	select {
	case <-time.After(slow):
		return nil
	case <-r.Context().Done():
		return context.Cause(r.Context())
	}
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := s.wait(r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.HasSuffix(r.URL.Path, "/subjectaccessreviews") {
		if s.noReviews {
			return nil, errDown
		}
		return s.review(r)
	}
	resource, namespace := split(r.URL.Path)
	query := r.URL.Query()
	verb := "list"
	if query.Get("watch") == "true" {
		verb = "watch"
	}
	who := r.Header.Get("Impersonate-User")
	s.requests = append(s.requests, strings.Join([]string{who, verb, resource, namespace}, " "))
	name := strings.TrimPrefix(query.Get("fieldSelector"), "metadata.name=")
	for _, of := range []string{resource, ""} {
		if a, ok := s.answer[of]; ok && who != "" {
			return reply(r, a)
		}
	}
	k, ok := s.resources[resource]
	if !ok {
		return reply(r, status(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource"))
	}
	question := strings.Join([]string{who, verb, resource, namespace, name}, " ")
	if who != "" && s.may != nil && !s.may(question) {
		return reply(r, status(http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf("%s is forbidden: User %q cannot %s", resource, who, verb)))
	}
	if s.pages && query.Get("sendInitialEvents") == "true" {
		return reply(r, status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden"))
	}
	selects := selector(query, namespace, name)
	if s.unselective {
		selects = selector(query, namespace, "")
	}
	if verb == "list" {
		return s.list(r, k, selects)
	}
	return s.watch(r, k, selects)
}

// split finds the resource and the namespace in a path.
func split(path string) (resource, namespace string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if i := slices.Index(parts, "namespaces"); i > 0 && len(parts) > i+2 {
		namespace = parts[i+1]
	}
	return parts[len(parts)-1], namespace
}

func selector(query url.Values, namespace, name string) func(map[string]any) bool {
	labelled, err := labels.Parse(query.Get("labelSelector"))
	return func(obj map[string]any) bool {
		meta := obj["metadata"].(map[string]any)
		set := labels.Set{}
		if all, ok := meta["labels"].(map[string]any); ok {
			for k, v := range all {
				set[k] = fmt.Sprint(v)
			}
		}
		return err == nil && labelled.Matches(set) && (namespace == "" || meta["namespace"] == namespace) && (name == "" || meta["name"] == name)
	}
}

func (s *server) list(r *http.Request, k *kind, selects func(map[string]any) bool) (*http.Response, error) {
	var items []any
	for _, key := range slices.Sorted(maps.Keys(k.objects)) {
		if selects(k.objects[key]) {
			items = append(items, k.objects[key])
		}
	}
	meta := map[string]any{"resourceVersion": strconv.Itoa(s.version)}
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	items = items[min(from, len(items)):]
	if limit > 0 && len(items) > limit {
		items = items[:limit]
		meta["continue"] = strconv.Itoa(from + limit)
	}
	if isMetadata(r) {
		for i := range items {
			items[i] = partial(items[i].(map[string]any))
		}
		return reply(r, map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": meta, "items": items})
	}
	if isTable(r) {
		rows := make([]any, 0, len(items))
		for _, item := range items {
			rows = append(rows, row(item.(map[string]any)))
		}
		return reply(r, tableOf(s.columns, meta, rows...))
	}
	return reply(r, map[string]any{"apiVersion": k.apiVersion(), "kind": k.kind + "List", "metadata": meta, "items": items})
}

func (s *server) watch(r *http.Request, k *kind, selects func(map[string]any) bool) (*http.Response, error) {
	query := r.URL.Query()
	w := &stream{queue: make(chan []byte, 100_000), encode: encodeEvent, selects: selects}
	switch {
	case isTable(r):
		w.encode = s.tables()
	case isMetadata(r):
		w.encode = func(e event) []byte {
			e.object = partial(e.object)
			return encodeEvent(e)
		}
	}
	if version := query.Get("resourceVersion"); version == "" {
		for _, key := range slices.Sorted(maps.Keys(k.objects)) {
			if selects(k.objects[key]) {
				w.queue <- w.encode(event{kind: "ADDED", object: k.objects[key]})
			}
		}
		w.queue <- w.encode(event{kind: "BOOKMARK", object: map[string]any{
			"apiVersion": k.apiVersion(), "kind": k.kind, "metadata": map[string]any{
				"resourceVersion": strconv.Itoa(s.version), "annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"},
			},
		}})
	} else {
		from, _ := strconv.Atoi(version)
		if from < s.version && len(k.history) == 0 && len(k.objects) > 0 {
			return reply(r, status(http.StatusGone, metav1.StatusReasonExpired, "too old"))
		}
		for _, e := range k.history {
			if e.version > from && selects(e.object) {
				w.queue <- w.encode(e)
			}
		}
	}
	k.streams[w] = struct{}{}
	body, pipe := io.Pipe()
	context.AfterFunc(r.Context(), func() {
		_ = body.CloseWithError(r.Context().Err())
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(k.streams, w)
		w.end()
	})
	go func() {
		for frame := range w.queue {
			if _, err := pipe.Write(frame); err != nil {
				break
			}
		}
		s.mu.Lock()
		delete(k.streams, w)
		s.mu.Unlock()
		_ = pipe.Close()
	}()
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": []string{"application/json"}}, Body: body, Request: r,
	}, nil
}

// review answers a SubjectAccessReview.
func (s *server) review(r *http.Request) (*http.Response, error) {
	var sar authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&sar); err != nil {
		return nil, err
	}
	a := sar.Spec.ResourceAttributes
	question := strings.Join([]string{sar.Spec.User, a.Verb, a.Resource, a.Namespace, a.Name}, " ")
	s.requests = append(s.requests, "review "+question)
	sar.Status.Allowed = slices.Contains(sar.Spec.Groups, user.AllAuthenticated) && (s.may == nil || s.may(question))
	sar.APIVersion, sar.Kind = "authorization.k8s.io/v1", "SubjectAccessReview"
	return reply(r, sar)
}

func isTable(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "as=Table") }

func isMetadata(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
}

func partial(obj map[string]any) map[string]any {
	return map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": obj["metadata"]}
}

// tables encodes events as Tables, of which the first has columns.
func (s *server) tables() func(event) []byte {
	columns := s.columns
	return func(e event) []byte {
		meta := map[string]any{"resourceVersion": e.object["metadata"].(map[string]any)["resourceVersion"]}
		e.object = tableOf(columns, meta, row(e.object))
		columns = nil
		return encodeEvent(e)
	}
}

func tableOf(columns []string, meta map[string]any, rows ...any) map[string]any {
	var definitions []any
	for _, name := range columns {
		definitions = append(definitions, map[string]any{"name": name, "type": "string"})
	}
	return map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "Table", "metadata": meta, "columnDefinitions": definitions, "rows": rows}
}

func row(obj map[string]any) any {
	meta := obj["metadata"].(map[string]any)
	data, _ := obj["data"].(map[string]any)
	return map[string]any{
		"cells":  []any{meta["name"], len(data)},
		"object": partial(obj),
	}
}

func encodeEvent(e event) []byte { return encode(map[string]any{"type": e.kind, "object": e.object}) }

func encode(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return append(raw, '\n')
}

func status(code int32, reason metav1.StatusReason, message string) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}
}

// reply answers with an object, or with the code of a Status.
func reply(r *http.Request, v any) (*http.Response, error) {
	code := http.StatusOK
	if s, ok := v.(metav1.Status); ok {
		if s.Code < 0 {
			return nil, errDown
		}
		code = int(s.Code)
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": []string{"application/json"}},
		Body: io.NopCloser(bytes.NewReader(encode(v))), Request: r,
	}, nil
}
