// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/tunnel/resource"
)

// namespaceServer is an API server without a network that has namespaces, and in them what its
// metadata says. What is changed in a namespace its collector is told of.
type namespaceServer struct {
	*prompt
	engine   *Engine
	metadata *metadatafake.FakeMetadataClient

	lock       sync.Mutex
	namespaces map[string]*corev1.Namespace
	versions   int
	done       []string
	// away: it answers no request about a namespace.
	away bool
	// slow: a deletion takes as long as the client waits, and does not take place.
	slow bool
	// sealed: it refuses annotations.
	sealed bool
	// unserved is a kind that it does not serve.
	unserved string
}

// listing is what such an API server serves.
type listing struct {
	discovery.DiscoveryInterfaceWithContext

	server *namespaceServer
}

func (l listing) ServerPreferredNamespacedResourcesWithContext(context.Context) ([]*metav1.APIResourceList, error) {
	verbs := metav1.Verbs{"list", "delete"}
	var core []metav1.APIResource
	for _, name := range []string{"configmaps", "persistentvolumeclaims", "secrets", "serviceaccounts"} {
		core = append(core, metav1.APIResource{Name: name, Verbs: verbs})
	}
	l.server.lock.Lock()
	defer l.server.lock.Unlock()
	return []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: slices.DeleteFunc(core, func(r metav1.APIResource) bool { return r.Name == l.server.unserved })},
		{GroupVersion: "rbac.authorization.k8s.io/v1", APIResources: []metav1.APIResource{{Name: "rolebindings", Verbs: verbs}}},
	}, nil
}

// RoundTrip implements http.RoundTripper.
func (s *namespaceServer) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	name := parts[len(parts)-1]
	if s.slow && r.Method == http.MethodDelete && len(parts) == 4 {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	switch ns := s.namespaces[name]; {
	case strings.Contains(r.URL.Path, "/rolebindings"):
		s.done = append(s.done, strings.ToLower(r.Method)+" right")
		s.answer(w, &rbacv1.RoleBinding{TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding"}})
	case len(parts) != 4 || parts[2] != "namespaces":
		return s.prompt.RoundTrip(r)
	case s.away:
		s.fail(w, name, http.StatusServiceUnavailable)
	case ns == nil:
		s.fail(w, name, http.StatusNotFound)
	case r.Method == http.MethodGet:
		s.answer(w, ns)
	default:
		s.change(w, r, ns)
	}
	return w.Result(), nil
}

// change patches a namespace, or removes it; s.lock is held.
func (s *namespaceServer) change(w http.ResponseWriter, r *http.Request, ns *corev1.Namespace) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err) // there is no network
	}
	next := ns.DeepCopy()
	if r.Method == http.MethodDelete {
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			panic(err) // the client is client-go
		}
		if p := o.(*metav1.DeleteOptions).Preconditions; p == nil || *p.UID != ns.UID || *p.ResourceVersion != ns.ResourceVersion {
			s.fail(w, ns.Name, http.StatusConflict)
			return
		}
		s.done = append(s.done, "delete "+ns.Name)
		delete(s.namespaces, ns.Name)
		go s.tell(next, true)
		s.answer(w, next)
		return
	}
	if s.sealed {
		s.done = append(s.done, "refuse to annotate "+ns.Name)
		s.fail(w, ns.Name, http.StatusForbidden)
		return
	}
	var patch struct {
		Metadata struct {
			UID         types.UID          `json:"uid"`
			Annotations map[string]*string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(body, &patch); err != nil || patch.Metadata.UID != ns.UID {
		panic(fmt.Sprintf("%v, %s", err, body))
	}
	for key, value := range patch.Metadata.Annotations {
		if value == nil {
			delete(next.Annotations, key)
			continue
		}
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, key, *value)
	}
	s.done = append(s.done, "annotate "+ns.Name)
	s.put(next)
	s.answer(w, next)
}

// put stores a new version of a namespace; s.lock is held.
func (s *namespaceServer) put(ns *corev1.Namespace) {
	s.versions++
	ns.ResourceVersion = strconv.Itoa(100 + s.versions)
	s.namespaces[ns.Name] = ns
	go s.tell(ns, false)
}

// edit changes a namespace as its owner does.
func (s *namespaceServer) edit(name string, change func(*corev1.Namespace)) {
	s.lock.Lock()
	defer s.lock.Unlock()
	next := s.namespaces[name].DeepCopy()
	change(next)
	s.put(next)
}

func (s *namespaceServer) setAway(away bool) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.away = away
}

func (s *namespaceServer) tell(ns *corev1.Namespace, deleted bool) {
	(&namespaceSink{collector: s.engine.collector}).HandleEvent(ns.DeepCopy(), deleted)
}

// happened returns what was done since it was asked last.
func (s *namespaceServer) happened() []string {
	synctest.Wait()
	s.lock.Lock()
	defer s.lock.Unlock()
	done := s.done
	s.done = nil
	return done
}

// annotation of a namespace now.
func (s *namespaceServer) annotation(name, key string) string {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.namespaces[name] == nil {
		return "no namespace"
	}
	return s.namespaces[name].Annotations[key]
}

// madeFor is a namespace that was made for the hub's, and bears its origin.
func madeFor(name, from string) *corev1.Namespace {
	ns := &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("spoke-" + name), ResourceVersion: "7", Labels: map[string]string{LabelCreatedBy: Creator}},
	}
	if from != "" {
		ns.Annotations = map[string]string{AnnotationHubNamespace: from}
	}
	return ns
}

// inside is an object of namespace shop.
func inside(kind, name string, change ...func(*metav1.PartialObjectMetadata)) runtime.Object {
	o := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	for _, f := range change {
		f(o)
	}
	return o
}

// withCollector runs a test with an engine that knows all pods, there are none, and whose
// collector works, in a bubble.
func withCollector(t *testing.T, objects []runtime.Object, test func(*testing.T, *Engine, *namespaceServer), namespaces ...*corev1.Namespace) {
	t.Helper()
	s := &namespaceServer{prompt: &prompt{}, namespaces: map[string]*corev1.Namespace{}}
	atOnce(t, s.prompt, func(t *testing.T, e *Engine) {
		kinds := runtime.NewScheme()
		if err := metav1.AddMetaToScheme(kinds); err != nil {
			t.Fatal(err)
		}
		spoke, err := newSpokeClient(&rest.Config{Host: "http://spoke", Transport: s}, "")
		if err != nil {
			t.Fatal(err)
		}
		s.engine, s.metadata = e, metadatafake.NewSimpleMetadataClient(kinds, objects...)
		e.spoke, e.namespaces = spoke, newNamespaceEnsurer(spoke.core, e.cfg, e.invalidateCopies)
		c := e.collector
		c.spoke, c.cfg.Account = spoke, "system:serviceaccount:spokelet-agent:spokelet-node"
		c.reader.Discovery, c.reader.Metadata = listing{server: s}, s.metadata
		e.handlePodsSynced()
		for _, ns := range namespaces {
			s.namespaces[ns.Name] = ns
			s.tell(ns, false)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var serving sync.WaitGroup
		serving.Go(func() { c.run(ctx) })
		synctest.Wait() // else what the test does may be handled together with the first events
		test(t, e, s)
		cancel()
		c.queue.ShutDown()
		serving.Wait()
	})
}

// goes is the hub's word that it has a namespace no more.
func goes(e *Engine, name, uid string) {
	e.collector.handleGone(resource.Resource{Key: name, UID: uid})
}

func check(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
