// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/api/wire"
)

// apiServer answers what a discovery client asks, without a network.
type apiServer struct {
	mu sync.Mutex
	// All below are guarded by mu.
	lists    []*metav1.APIResourceList
	failing  map[string]int // codes, by path
	requests int
}

func (s *apiServer) client() discovery.DiscoveryInterface {
	return discovery.NewDiscoveryClientForConfigOrDie(&rest.Config{Host: "http://api", Transport: s, QPS: -1})
}

// fail has a path answer with a code.
func (s *apiServer) fail(path string, code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = map[string]int{path: code}
}

func (s *apiServer) recover() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = nil
}

func (s *apiServer) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

func (s *apiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	code, answer := http.StatusOK, s.answer(r.URL.Path)
	if failing := s.failing[r.URL.Path]; failing != 0 {
		code = failing
		answer = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Message: http.StatusText(code)}
	}
	raw, err := json.Marshal(answer)
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(raw)), Request: r}, err
}

// answer returns what is served at a path; s.mu is held.
func (s *apiServer) answer(path string) any {
	groups, core := metav1.APIGroupList{}, metav1.APIVersions{}
	for _, list := range s.lists {
		group, version, isGroup := strings.Cut(list.GroupVersion, "/")
		switch v := (metav1.GroupVersionForDiscovery{GroupVersion: list.GroupVersion, Version: version}); {
		case path == "/apis/"+list.GroupVersion || path == "/api/"+list.GroupVersion:
			return list
		case isGroup:
			groups.Groups = append(groups.Groups, metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
		default:
			core.Versions = append(core.Versions, list.GroupVersion)
		}
	}
	if path == "/api" {
		return core
	}
	return groups
}

const metricsPath = "/apis/metrics.k8s.io/v1beta1"

// withMetrics is a cluster whose metrics another API server serves.
func withMetrics() *apiServer {
	return &apiServer{lists: append(served().Resources, &metav1.APIResourceList{
		GroupVersion: "metrics.k8s.io/v1beta1", APIResources: []metav1.APIResource{{Name: "nodes", SingularName: "node", Kind: "NodeMetrics"}},
	})}
}

func TestResourceWhileGroupIsUnavailable(t *testing.T) {
	cases := map[string]struct {
		reason string
		target wire.Target
		err    error
	}{
		"resource of another":               {"it is there", wire.Target{Resource: "pods"}, nil},
		"short name of another":             {"it is there", wire.Target{Resource: "deploy"}, nil},
		"kind of another":                   {"it is there", wire.Target{Kind: "Deployment", Group: "apps", Version: "v1"}, nil},
		"the same name in another":          {"the core goes before all", wire.Target{Resource: "nodes"}, nil},
		"its kind":                          {"it may be there", wire.Target{Kind: "NodeMetrics", Group: "metrics.k8s.io", Version: "v1beta1"}, ErrUnavailable},
		"its kind in any version":           {"it may be there", wire.Target{Kind: "NodeMetrics", Group: "metrics.k8s.io"}, ErrUnavailable},
		"its kind in any group":             {"it may be there", wire.Target{Kind: "NodeMetrics"}, ErrUnavailable},
		"its resource":                      {"it may be there", wire.Target{Resource: "nodes", Group: "metrics.k8s.io"}, ErrUnavailable},
		"its resource in one word":          {"it may be there", wire.Target{Resource: "nodes.metrics.k8s.io"}, ErrUnavailable},
		"its resource in one whole word":    {"it may be there", wire.Target{Resource: "nodes.v1beta1.metrics.k8s.io"}, ErrUnavailable},
		"its resource, of its short group":  {"the beginning of a group's name is enough for kubectl", wire.Target{Resource: "nodes.metrics"}, ErrUnavailable},
		"a resource of any group":           {"it may have that", wire.Target{Resource: "foos"}, ErrUnavailable},
		"another version of it":             {"that is not served", wire.Target{Kind: "NodeMetrics", Group: "metrics.k8s.io", Version: "v1"}, ErrNoMatch},
		"a resource of another version":     {"that is not served", wire.Target{Resource: "foos.metrics.k8s.io", Version: "v1"}, ErrNoMatch},
		"a resource of another":             {"that group was read", wire.Target{Resource: "foos.apps"}, ErrNoMatch},
		"a kind of another":                 {"that group was read", wire.Target{Kind: "Foo", Group: "apps", Version: "v1"}, ErrNoMatch},
		"a kind of the core":                {"no group, and a version, is the core's", wire.Target{Kind: "Foo", Version: "v1beta1"}, ErrNoMatch},
		"a group that there is not":         {"no group of this name failed", wire.Target{Kind: "Foo", Group: "a.b", Version: "v1"}, ErrNoMatch},
		"a word that contradicts the group": {"it means nothing", wire.Target{Resource: "nodes.metrics.k8s.io", Group: "apps"}, ErrNoMatch},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server := withMetrics()
			server.fail(metricsPath, http.StatusServiceUnavailable)
			if _, err := New(server.client()).Resource(tc.target); !errors.Is(err, tc.err) {
				t.Errorf("%s: %v, want %v", tc.reason, err, tc.err)
			}
		})
	}
}

func TestUnavailableGroupIsNotReadForEachTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := withMetrics()
		server.fail(metricsPath, http.StatusServiceUnavailable)
		m := New(server.client())
		ask := func(target wire.Target, want error) {
			t.Helper()
			if _, err := m.Resource(target); !errors.Is(err, want) {
				t.Errorf("%v: %v, want %v", target, err, want)
			}
		}
		metrics := wire.Target{Resource: "nodes", Group: "metrics.k8s.io"}
		ask(wire.Target{Resource: "pods"}, nil)
		n := server.asked()
		for range 10 {
			ask(wire.Target{Resource: "pods"}, nil)
			ask(wire.Target{Resource: "po"}, nil)
			ask(metrics, ErrUnavailable)
		}
		if now := server.asked(); now != n {
			t.Errorf("%d requests for what is known, or was read a moment ago", now-n)
		}
		server.recover()
		time.Sleep(minRefreshInterval)
		ask(metrics, nil)
	})
}

func TestErrorNamesUnavailableGroup(t *testing.T) {
	server := withMetrics()
	server.fail(metricsPath, http.StatusServiceUnavailable)
	_, err := New(server.client()).Resource(wire.Target{Resource: "foos"})
	const want = `resource "foos": cannot read what the cluster serves: unable to retrieve the complete list of server APIs: metrics.k8s.io/v1beta1: `
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s...", err, want)
	}
}

func TestFailedDiscoveryIsNotNoMatch(t *testing.T) {
	cases := map[string]struct {
		reason string
		server *apiServer
	}{
		"it is down":       {"nothing is known", &apiServer{failing: map[string]int{"/api": 503, "/apis": 503}}},
		"it refuses":       {"a status of this request is none of the caller's", &apiServer{failing: map[string]int{"/api": 403, "/apis": 403}}},
		"it names nothing": {"every API server has resources", &apiServer{}},
		"it has no paths":  {"every API server has groups", &apiServer{failing: map[string]int{"/api": 404}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := New(tc.server.client()).Resource(wire.Target{Resource: "pods"})
			if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrNoMatch) {
				t.Errorf("%s: %v, want %v", tc.reason, err, ErrUnavailable)
			}
			if status := apierrors.APIStatus(nil); errors.As(err, &status) {
				t.Errorf("%s: %v has a status of the API server", tc.reason, err)
			}
		})
	}
}

func TestFailureIsSharedByWaitingCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := withMetrics()
		server.fail("/apis", http.StatusInternalServerError)
		m := New(server.client())
		for range 10 {
			if _, err := m.Resource(wire.Target{Resource: "pods"}); !errors.Is(err, ErrUnavailable) {
				t.Error(err)
			}
		}
		if n := server.asked(); n > 4 {
			t.Errorf("%d requests, want those of one reading", n)
		}
		server.recover()
		time.Sleep(failureTTL)
		if _, err := m.Resource(wire.Target{Resource: "pods"}); err != nil {
			t.Errorf("after the pause: %v", err)
		}
	})
}

func TestKnownResourcesSurviveFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := withMetrics()
		m := New(server.client())
		if _, err := m.Resource(wire.Target{Resource: "pods"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(minRefreshInterval)
		server.fail("/apis", http.StatusInternalServerError)
		if _, err := m.Resource(wire.Target{Resource: "foos"}); !errors.Is(err, ErrUnavailable) {
			t.Errorf("what is not known: %v, want %v", err, ErrUnavailable)
		}
		if _, err := m.Resource(wire.Target{Resource: "pods"}); err != nil {
			t.Errorf("what is known: %v", err)
		}
		m.Reset()
		if _, err := m.Resource(wire.Target{Resource: "pods"}); !errors.Is(err, ErrUnavailable) {
			t.Errorf("what may be known no more: %v, want %v", err, ErrUnavailable)
		}
	})
}

// shuffled has aggregated discovery, which returns resources in any order.
type shuffled struct{ discovery.DiscoveryInterface }

func (s shuffled) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	groups, lists, err := s.DiscoveryInterface.ServerGroupsAndResources()
	reversed := make([]*metav1.APIResourceList, 0, len(lists))
	for i := range lists {
		reversed = append(reversed, lists[len(lists)-1-i])
	}
	return groups, reversed, err
}

func TestShortNameIsOfFirstGroup(t *testing.T) {
	server := withMetrics()
	server.lists = append(server.lists, &metav1.APIResourceList{
		GroupVersion: "z.example.com/v1", APIResources: []metav1.APIResource{{Name: "departures", SingularName: "departure", Kind: "Departure", ShortNames: []string{"deploy"}}},
	})
	mapping, err := New(shuffled{server.client()}).Resource(wire.Target{Resource: "deploy"})
	if err != nil || mapping.Resource.Resource != "deployments" {
		t.Errorf("%v, %v; want deployments", mapping, err)
	}
}
