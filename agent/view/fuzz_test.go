// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"net/http"
	"net/url"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// always finds the same resource.
type always struct{ mapping *meta.RESTMapping }

func (a always) Resource(wire.Target) (*meta.RESTMapping, error) { return a.mapping, nil }

func (always) Reset() {}

// FuzzView looks for a view that is neither refused nor followed, or that reaches other
// objects than those of its target.
func FuzzView(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte) {
		e := newEngine(t, newServer())
		e.putView(resource.Resource{Key: "k", Generation: 1, Body: body})
		_, refused := e.source.Ref("k")
		v, followed := e.views["k"]
		if refused == followed {
			t.Fatalf("refused is %t, followed is %t", refused, followed)
		}
		if refused {
			return
		}
		checkRequest(t, v.spec, mappingOf("configmaps", "ConfigMap"), "/api/v1/namespaces/"+v.spec.Target.Namespace+"/configmaps")
		nodes := mappingOf("nodes", "Node")
		nodes.Scope = meta.RESTScopeRoot
		checkRequest(t, v.spec, nodes, "/api/v1/nodes")
	})
}

func checkRequest(t *testing.T, spec wire.View, m *meta.RESTMapping, path string) {
	t.Helper()
	m, err := resolveTarget(spec, always{m})
	if err != nil {
		return
	}
	if spec.Target.Namespace == "" && isNamespaced(m) {
		path = "/api/v1/configmaps"
	}
	var asked *url.URL
	feed, err := newFeed(spec, m, door{roundTripper(func(r *http.Request) (*http.Response, error) {
		asked = r.URL
		return nil, errDown
	})})
	if err != nil {
		return
	}
	_, _ = feed.Watch(t.Context(), metav1.ListOptions{})
	if asked == nil {
		t.Fatalf("no request is made for %+v", spec.Target)
	}
	if asked.Path != path {
		t.Fatalf("%+v is a request for %q, want %q", spec.Target, asked.Path, path)
	}
	query := asked.Query()
	if spec.Target.Name == "" {
		if query.Get("labelSelector") != spec.LabelSelector || query.Get("fieldSelector") != spec.FieldSelector {
			t.Fatalf("%+v is a request for %q", spec, asked.RawQuery)
		}
		return
	}
	selector, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		t.Fatalf("%+v is a request for %q: %v", spec.Target, asked.RawQuery, err)
	}
	if name, exact := selector.RequiresExactMatch("metadata.name"); !exact || name != spec.Target.Name || len(selector.Requirements()) != 1 {
		t.Fatalf("%+v is a request for %q", spec.Target, asked.RawQuery)
	}
}
