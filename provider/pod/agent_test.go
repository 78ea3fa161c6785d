// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// agent is the other end of Sync, behind a real HTTP/2 connection.
type agent struct {
	t                *testing.T
	statuses, events *resource.Source
	// namespaces are those that the agent made for pods.
	namespaces *resource.Source
	// echoes is of kindEcho.
	echoes  *resource.Source
	mirrors map[string]*resource.Mirror
	session http.RoundTripper

	mu      sync.Mutex
	pods    map[string]wire.Pod
	objects map[string]wire.PodObject
	tokens  map[string]wire.PodToken
	deleted []string
	// complete counts, by kind, how often all there is was heard.
	complete map[string]int
	// news is closed and replaced at each change.
	news chan struct{}
}

// kindProbe is published by the tests: what is heard of it was sent after the
// inventories of all kinds had been read.
const kindProbe = "probe"

// kindEcho is published by the agent, in turn with all else that it has to say.
const kindEcho = "echo"

// newAgent returns an agent that mirrors the kinds that all do, and also others.
func newAgent(t *testing.T, also ...string) *agent {
	t.Helper()
	a := &agent{
		t: t, statuses: resource.NewSource(wire.KindPodStatus), events: resource.NewSource(wire.KindPodEvent),
		namespaces: resource.NewSource(wire.KindPodNamespace), echoes: resource.NewSource(kindEcho),
		pods: map[string]wire.Pod{}, objects: map[string]wire.PodObject{}, complete: map[string]int{}, news: make(chan struct{}),
		mirrors: map[string]*resource.Mirror{}, tokens: map[string]wire.PodToken{},
	}
	a.statuses.Complete()
	a.events.Complete()
	a.namespaces.Complete()
	mirrors := []*resource.Mirror{
		a.mirror(wire.KindPod, func(r resource.Resource) error {
			p, err := wire.DecodePod(r.Key, r.Body)
			a.pods[r.Key] = p
			return err
		}),
		a.mirror(wire.KindPodObject, func(r resource.Resource) error {
			o, err := wire.DecodePodObject(r.Body)
			a.objects[r.Key] = o
			return err
		}),
		a.mirror(wire.KindPodNamespaceGone, func(resource.Resource) error { return nil }),
		a.mirror(kindProbe, func(resource.Resource) error { return nil }),
	}
	if slices.Contains(also, wire.KindPodToken) {
		mirrors = append(mirrors, a.mirror(wire.KindPodToken, func(r resource.Resource) error {
			token, err := wire.DecodePodToken(r.Body)
			a.tokens[r.Key] = token
			return err
		}))
	}
	door, err := resource.NewAgent([]*resource.Source{a.statuses, a.events, a.namespaces, a.echoes}, mirrors)
	if err != nil {
		t.Fatal(err)
	}
	a.session = sessionTo(t, door)
	return a
}

func (a *agent) mirror(kind string, put func(resource.Resource) error) *resource.Mirror {
	change := func(f func()) {
		a.mu.Lock()
		defer a.mu.Unlock()
		f()
		close(a.news)
		a.news = make(chan struct{})
	}
	m := resource.NewMirror(kind, resource.Receiver{
		Put: func(r resource.Resource) {
			change(func() {
				if err := put(r); err != nil {
					a.t.Errorf("%s %s: %v", kind, r.Key, err)
				}
			})
		},
		Delete: func(key string) {
			change(func() {
				a.deleted = append(a.deleted, kind+" "+key)
				delete(a.pods, key)
				delete(a.objects, key)
				delete(a.tokens, key)
			})
		},
		Synced: func() { change(func() { a.complete[kind]++ }) },
	})
	a.mirrors[kind] = m
	return m
}

// await waits until f is true of what the agent has.
func (a *agent) await(what string, f func() bool) {
	a.t.Helper()
	timeout := time.After(time.Minute)
	for {
		a.mu.Lock()
		ok, news := f(), a.news
		a.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-news:
		case <-timeout:
			a.t.Fatalf("not so: %s: %s", what, a)
		}
	}
}

// String is what the agent has.
func (a *agent) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Sprintf("pods %v, objects %v, complete %v, deleted %v",
		slices.Sorted(maps.Keys(a.pods)), slices.Sorted(maps.Keys(a.objects)), a.complete, a.deleted)
}

// says puts a report.
func (a *agent) says(pod *corev1.Pod, said wire.PodStatus) {
	a.t.Helper()
	err := a.statuses.Put(resource.Resource{Key: keyOf(pod).String(), UID: string(pod.UID), Body: encoded(a.t, said)})
	if err != nil {
		a.t.Fatal(err)
	}
}

// connect runs a stream from a hub until cut is called.
func (a *agent) connect(k *Controller, hub *resource.Hub, cluster string) (cut func()) {
	ctx, cancel := context.WithCancel(a.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		defer k.Open(cluster)()
		_ = hub.Run(ctx, cluster, a.session)
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// sessionTo serves an agent over HTTP/2, as a tunnel does.
func sessionTo(t *testing.T, agent http.Handler) http.RoundTripper {
	t.Helper()
	server := httptest.NewUnstartedServer(agent)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	transport := &http.Transport{Protocols: server.Config.Protocols}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	return redirect{transport, strings.TrimPrefix(server.URL, "http://")}
}

type redirect struct {
	http.RoundTripper
	host string
}

func (r redirect) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Host = r.host
	return r.RoundTripper.RoundTrip(req)
}

// gate holds up requests until it is opened.
type gate struct{ opened chan struct{} }

func (g gate) hold(k8stesting.Action) (bool, runtime.Object, error) {
	<-g.opened
	return false, nil, nil
}

func TestAgentIsAskedOnceItsPodsAreListed(t *testing.T) {
	// More than anybody would keep until then.
	const pods = 80
	padding := bytes.Repeat([]byte(" "), 240<<10)
	var objects []runtime.Object
	for i := range pods {
		objects = append(objects, podNamed(fmt.Sprint("p", i)))
	}
	client := fake.NewSimpleClientset(objects...)
	held := gate{make(chan struct{})}
	client.PrependReactor("list", "pods", held.hold)
	written := make(chan string, 10*pods)
	client.PrependReactor("patch", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
		written <- action.(k8stesting.PatchAction).GetName()
		return false, nil, nil
	})
	r := newRig(t, Config{}, client)
	defer r.stop()
	heard := make(chan string)
	r.hub.Mirror(kindEcho, resource.HubReceiver{Put: func(_ string, e resource.Resource) { heard <- e.Key }})
	a := newAgent(t)
	for i := range pods {
		pod := podNamed(fmt.Sprint("p", i))
		said := append(encoded(t, wire.PodStatus{Generation: 1, Status: running()}), padding...)
		if err := a.statuses.Put(resource.Resource{Key: keyOf(pod).String(), UID: string(pod.UID), Body: said}); err != nil {
			t.Fatal(err)
		}
	}
	defer a.connect(r.Controller, r.hub, spoke)()
	defer r.Watch(t.Context(), spoke)()
	// By then the agent would have said it all.
	for i := range 2 * pods {
		if err := a.echoes.Put(resource.Resource{Key: strconv.Itoa(i)}); err != nil {
			t.Fatal(err)
		}
		<-heard
	}
	close(held.opened)
	timeout := time.After(time.Minute)
	for names := map[string]bool{}; len(names) < pods; {
		select {
		case <-timeout:
			t.Fatalf("the statuses of %d pods are written, want %d", len(names), pods)
		case name := <-written:
			names[name] = true
		}
	}
}

func TestSourceIsCompleteOnlyAfterTheWholeList(t *testing.T) {
	cases := map[string]struct {
		reason, resource string
		kind, old        string
	}{
		"of pods":    {"an empty list would end every pod", "pods", wire.KindPod, "default/old"},
		"of objects": {"an empty list would take what pods have mounted", "configmaps", wire.KindPodObject, "configmap/default/old"},
		"of namespaces that are gone": {
			"the agent would take back what it says of its own", "namespaces", wire.KindPodNamespaceGone, "old",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			client := fake.NewSimpleClientset(podNamed("a", withObjects), settings(), keys())
			held := gate{make(chan struct{})}
			client.PrependReactor("list", tc.resource, held.hold)
			r := newRig(t, Config{}, client)
			defer r.stop()
			r.hub.Publish(kindProbe, nil)
			a := newAgent(t)
			r.hub.Source(spoke, kindProbe).Complete()
			stop := r.Watch(t.Context(), spoke)
			defer stop()
			// The agent has something from a hub that was before.
			a.mirrors[tc.kind].Hold(resource.RefOf(resource.Resource{Key: tc.old}))
			cut := a.connect(r.Controller, r.hub, spoke)
			defer cut()
			a.await("the inventories are read", func() bool { return a.complete[kindProbe] == 1 })
			a.mu.Lock()
			if a.complete[tc.kind] != 0 || len(a.deleted) != 0 {
				t.Errorf("%s: the agent has deleted %v", tc.reason, a.deleted)
			}
			a.mu.Unlock()
			close(held.opened)
			a.await("the list is there", func() bool { return a.complete[tc.kind] == 1 })
			a.mu.Lock()
			defer a.mu.Unlock()
			if diff := cmp.Diff([]string{tc.kind + " " + tc.old}, a.deleted); diff != "" {
				t.Errorf("deleted (-want +got):\n%s", diff)
			}
		})
	}
}
