// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/spokelet/spokelet/api/wire"
)

func served() *fake.FakeDiscovery {
	return &fake.FakeDiscovery{Fake: &clienttesting.Fake{Resources: []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true, ShortNames: []string{"po"}},
			{Name: "nodes", SingularName: "node", Kind: "Node"},
		}},
		{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{
			{Name: "deployments", SingularName: "deployment", Kind: "Deployment", Namespaced: true, ShortNames: []string{"deploy"}},
			{Name: "endpointses", SingularName: "endpointsone", Kind: "Endpoint", Namespaced: true},
		}},
		{GroupVersion: "mcm.ibm.com/v1alpha1", APIResources: []metav1.APIResource{
			{Name: "works", SingularName: "work", Kind: "Work", Namespaced: true},
		}},
		{GroupVersion: "multicluster.x-k8s.io/v1alpha1", APIResources: []metav1.APIResource{
			{Name: "works", SingularName: "work", Kind: "Work", Namespaced: true},
		}},
	}}}
}

func TestResourceFindsWhatKubectlFinds(t *testing.T) {
	cases := map[string]struct {
		reason string
		target wire.Target
		want   string
		err    error
	}{
		"plural":                       {"the usual form", wire.Target{Resource: "pods"}, "pods./v1", nil},
		"singular":                     {"as kubectl get pod", wire.Target{Resource: "pod"}, "pods./v1", nil},
		"short":                        {"as kubectl get po", wire.Target{Resource: "po"}, "pods./v1", nil},
		"kind":                         {"as kubectl get Pod", wire.Target{Resource: "Pod"}, "pods./v1", nil},
		"with group":                   {"as kubectl get deployments.apps", wire.Target{Resource: "deployments.apps"}, "deployments.apps/v1", nil},
		"short with group":             {"as kubectl get deploy.apps", wire.Target{Resource: "deploy.apps"}, "deployments.apps/v1", nil},
		"kind with group":              {"as kubectl get Deployment.apps", wire.Target{Resource: "Deployment.apps"}, "deployments.apps/v1", nil},
		"with version and group":       {"as kubectl get deployments.v1.apps", wire.Target{Resource: "deployments.v1.apps"}, "deployments.apps/v1", nil},
		"kind with version and group":  {"as kubectl get Deployment.v1.apps", wire.Target{Resource: "Deployment.v1.apps"}, "deployments.apps/v1", nil},
		"kind unlike its resource":     {"as kubectl get Endpoints, whose singular differs", wire.Target{Resource: "Endpoint.v1.apps"}, "endpointses.apps/v1", nil},
		"group apart":                  {"the field apiGroup", wire.Target{Resource: "deployments", Group: "apps"}, "deployments.apps/v1", nil},
		"version apart":                {"the field version narrows what is written with a group", wire.Target{Resource: "deployments.apps", Version: "v1"}, "deployments.apps/v1", nil},
		"group twice":                  {"both say the same", wire.Target{Resource: "deployments.v1.apps", Group: "apps", Version: "v1"}, "deployments.apps/v1", nil},
		"two groups":                   {"they contradict each other", wire.Target{Resource: "deployments.apps", Group: "mcm.ibm.com"}, "", ErrNoMatch},
		"two versions":                 {"they contradict each other", wire.Target{Resource: "deployments.v1.apps", Version: "v2"}, "", ErrNoMatch},
		"kind apart":                   {"the field kind", wire.Target{Kind: "Deployment", Group: "apps", Version: "v1"}, "deployments.apps/v1", nil},
		"kind and group":               {"any version of it", wire.Target{Kind: "Deployment", Group: "apps"}, "deployments.apps/v1", nil},
		"kind alone":                   {"no group is any", wire.Target{Kind: "Deployment"}, "deployments.apps/v1", nil},
		"kind of the core":             {"no group, and a version, is the core's", wire.Target{Kind: "Pod", Version: "v1"}, "pods./v1", nil},
		"kind that is not of the core": {"no group, and a version, is the core's", wire.Target{Kind: "Deployment", Version: "v1"}, "", ErrNoMatch},
		"one of two groups":            {"a group decides", wire.Target{Resource: "works.mcm.ibm.com"}, "works.mcm.ibm.com/v1alpha1", nil},
		"no such resource":             {"said by name", wire.Target{Resource: "foos"}, "", ErrNoMatch},
		"another group":                {"a group is never dropped", wire.Target{Resource: "pods", Group: "apps"}, "", ErrNoMatch},
		"no such kind":                 {"said by name", wire.Target{Kind: "Foo", Group: "apps", Version: "v1"}, "", ErrNoMatch},
		"a version that is not there":  {"a version is never dropped", wire.Target{Kind: "Deployment", Group: "apps", Version: "v1beta1"}, "", ErrNoMatch},
		"short with version":           {"a short name has the version that is asked for", wire.Target{Resource: "deploy.v1.apps"}, "deployments.apps/v1", nil},
		"a group alone":                {"a word that names nothing is no failure of the cluster, and not worth another try", wire.Target{Resource: ".apps"}, "", ErrNoMatch},
		"nothing":                      {"likewise", wire.Target{}, "", ErrNoMatch},
		"short with another version":   {"a version is never dropped, nor with a short name", wire.Target{Resource: "deploy", Group: "apps", Version: "v1beta1"}, "", ErrNoMatch},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			mapping, err := New(served()).Resource(tc.target)
			if !errors.Is(err, tc.err) {
				t.Fatalf("%s: %v, want %v", tc.reason, err, tc.err)
			}
			if err != nil {
				return
			}
			if got := mapping.Resource.Resource + "." + mapping.Resource.Group + "/" + mapping.Resource.Version; got != tc.want {
				t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestUnknownNameRefreshesDiscovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := served()
		m := New(client)
		reads := func() (n int) {
			for _, a := range client.Actions() {
				if a.GetResource().Resource == "group" {
					n++
				}
			}
			return n
		}
		if n := reads(); n != 0 {
			t.Fatalf("read %d times before the first question", n)
		}
		for range 100 {
			if _, err := m.Resource(wire.Target{Resource: "foos"}); !errors.Is(err, ErrNoMatch) {
				t.Fatal(err)
			}
		}
		if n := reads(); n != 1 {
			t.Errorf("read %d times for 100 questions, want once in ten seconds", n)
		}
		client.Resources = append(client.Resources, &metav1.APIResourceList{GroupVersion: "a.b/v1", APIResources: []metav1.APIResource{{Name: "foos", SingularName: "foo", Kind: "Foo"}}})
		m.Reset()
		if _, err := m.Resource(wire.Target{Resource: "foos"}); err != nil {
			t.Errorf("after a reset: %v", err)
		}
		client.Resources = append(client.Resources, &metav1.APIResourceList{GroupVersion: "b.c/v1", APIResources: []metav1.APIResource{{Name: "bars", SingularName: "bar", Kind: "Bar"}}})
		client.Resources = client.Resources[1:]
		if _, err := m.Resource(wire.Target{Resource: "pods"}); err != nil {
			t.Errorf("what was read is not kept: %v", err)
		}
		m.Reset()
		if _, err := m.Resource(wire.Target{Resource: "pods"}); !errors.Is(err, ErrNoMatch) {
			t.Errorf("what is gone is found after a reset: %v", err)
		}
		time.Sleep(minRefreshInterval)
		if _, err := m.Resource(wire.Target{Resource: "bars"}); err != nil {
			t.Errorf("ten seconds later: %v", err)
		}
	})
}

func TestErrorNamesTarget(t *testing.T) {
	cases := map[string]struct {
		reason string
		target wire.Target
		want   string
	}{
		"resource":            {"as written", wire.Target{Resource: "foos.a.b"}, `resource "foos.a.b": the cluster has no such resource`},
		"kind of a version":   {"as a template has it", wire.Target{Kind: "Foo", Group: "a.b", Version: "v1"}, `kind "Foo" of "a.b/v1": the cluster has no such resource`},
		"resource of a group": {"without the version that nobody has named", wire.Target{Resource: "foos", Group: "a.b"}, `resource "foos" of "a.b": the cluster has no such resource`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := New(served()).Resource(tc.target); err == nil || err.Error() != tc.want {
				t.Errorf("%s: %v, want %s", tc.reason, err, tc.want)
			}
		})
	}
}

func TestNoMatchErrorHasTimeOfDiscovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(served())
		first := time.Now()
		for _, age := range []time.Duration{0, time.Second, minRefreshInterval - time.Nanosecond} {
			time.Sleep(time.Until(first.Add(age)))
			_, err := m.Resource(wire.Target{Resource: "foos"})
			var none *NoMatchError
			if !errors.As(err, &none) || !none.ReadAt.Equal(first) || none.RetryAfter != minRefreshInterval-age {
				t.Errorf("after %s: %#v, want one that was read at the start, and may be again after the pause", age, none)
			}
		}
	})
}

func TestConcurrentCallsReadOnce(t *testing.T) {
	m := New(served())
	var asking sync.WaitGroup
	for i := range 16 {
		asking.Go(func() {
			for range 20 {
				if i == 0 {
					m.Reset()
				}
				if _, err := m.Resource(wire.Target{Resource: "pods"}); err != nil {
					t.Error(err)
				}
				if _, err := m.Resource(wire.Target{Resource: "foos"}); !errors.Is(err, ErrNoMatch) {
					t.Error(err)
				}
			}
		})
	}
	asking.Wait()
}
