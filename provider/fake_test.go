// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/provider/pod"
)

// fakeLinks is a Links that a test plugs and unplugs.
type fakeLinks struct {
	mu sync.Mutex
	f  func(Link)
}

func (l *fakeLinks) Subscribe(f func(Link)) (cancel func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.f = f
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.f = nil
	}
}

func (l *fakeLinks) set(link Link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil {
		l.f(link)
	}
}

// fakeEndpoints is an Endpoints without sockets.
type fakeEndpoints struct {
	mu   sync.Mutex
	open map[string]int32
	// busy are ports that somebody else has.
	busy map[int32]bool
}

func (e *fakeEndpoints) Open(_ context.Context, node string, port int32) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.busy[port] {
		return errBusyPort
	}
	e.open[node] = port
	return nil
}

// occupy has somebody else have all ports from first to last.
func (e *fakeEndpoints) occupy(first, last int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for port := first; port <= last; port++ {
		e.busy[port] = true
	}
}

// vacate gives all ports back.
func (e *fakeEndpoints) vacate() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.busy)
}

func (e *fakeEndpoints) Close(node string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.open, node)
}

type busyPort struct{}

func (busyPort) Error() string { return "port is busy" }

var errBusyPort = busyPort{}

// fakePods is a Pods that counts.
type fakePods struct {
	mu sync.Mutex
	// watched are the nodes whose pods are watched now, began how often that began.
	watched map[string]bool
	began   map[string]int
	// bound are nodes with pods, expected those that are not released, released those
	// that are.
	bound, expected, released map[string]bool
	// consents are what records allow.
	consents map[string]pod.Consent
	// asked counts the questions whether a node is idle.
	asked int
}

func newFakePods() *fakePods {
	return &fakePods{watched: map[string]bool{}, began: map[string]int{}, bound: map[string]bool{}, expected: map[string]bool{}, released: map[string]bool{}, consents: map[string]pod.Consent{}}
}

func (p *fakePods) SetConsent(cluster string, allowed pod.Consent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.consents[cluster] = allowed
}

func (p *fakePods) ExpectNode(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected[node] = true
	delete(p.released, node)
}

func (p *fakePods) RemoveNode(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.expected, node)
	p.released[node] = true
}

func (p *fakePods) IsIdle(node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	return !p.bound[node]
}

func (p *fakePods) expects(node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.expected[node]
}

func (p *fakePods) bind(node string, bound bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bound[node] = bound
}

func (p *fakePods) Watch(_ context.Context, node string) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watched[node] = true
	p.began[node]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watched, node)
	}
}

// hub is a Provider on a fake API server.
type hub struct {
	t         *testing.T
	client    *fake.Clientset
	links     *fakeLinks
	endpoints *fakeEndpoints
	pods      *fakePods
	provider  *Provider
	stop      func()
}

// startHub starts a Provider; the objects are there before it. The client is one of
// NewSimpleClientset: that of NewClientset knows how to apply, which nothing here does with it,
// and makes a mapper of all resources of Kubernetes at each write.
func startHub(t *testing.T, client *fake.Clientset, change ...func(*Config)) *hub {
	t.Helper()
	h := &hub{
		t: t, client: client, links: &fakeLinks{}, endpoints: &fakeEndpoints{open: map[string]int32{}, busy: map[int32]bool{}},
		pods: newFakePods(),
	}
	config := Config{
		Client: client, Links: h.links, Endpoints: h.endpoints, Pods: h.pods,
		Address: netip.MustParseAddr("192.0.2.10"),
		Logger:  testr.New(t), Registerer: prometheus.NewRegistry(),
	}
	for _, f := range change {
		f(&config)
	}
	provider, err := New(config)
	if err != nil {
		t.Fatalf("New(): %v", err)
	}
	h.provider = provider
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- provider.Start(ctx) }()
	h.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Start(): %v", err)
		}
	}
	synctest.Wait()
	return h
}

func (h *hub) ensure(c Cluster) {
	h.t.Helper()
	if err := h.provider.Ensure(h.t.Context(), c); err != nil {
		h.t.Fatalf("Ensure(%s): %v", c.Name, err)
	}
	synctest.Wait()
}

func (h *hub) connect(name string) {
	h.links.set(Link{Cluster: name, Up: true})
	synctest.Wait()
}

func (h *hub) disconnect(name, reason string) {
	h.links.set(Link{Cluster: name, Reason: reason})
	synctest.Wait()
}

func (h *hub) summary(name string, s wire.NodeSummary) {
	h.t.Helper()
	h.provider.SetSummary(name, s)
	synctest.Wait()
}

// join has spoke1 accepted, connected and healthy.
func (h *hub) join() {
	h.t.Helper()
	h.ensure(spoke1)
	h.connect("spoke1")
	h.summary("spoke1", healthy())
}

// node returns the Node, nil when there is none.
func (h *hub) node(name string) *corev1.Node {
	h.t.Helper()
	node, err := h.client.CoreV1().Nodes().Get(h.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return node
}

// ready returns status and reason of the Node's Ready condition, "True Reason".
func (h *hub) ready(name string) string {
	h.t.Helper()
	node := h.node(name)
	if node == nil {
		return "no node"
	}
	c := findCondition(node.Status.Conditions, corev1.NodeReady)
	if c == nil {
		return "no condition"
	}
	return string(c.Status) + " " + c.Reason
}

func (h *hub) wantReady(name, want, when string) {
	h.t.Helper()
	if got := h.ready(name); got != want {
		h.t.Fatalf("Ready of %s %s: got %q, want %q", name, when, got, want)
	}
}

// requests forgets the requests so far and returns what counts the ones since,
// as "verb resource".
func (h *hub) requests() func() map[string]int {
	h.client.ClearActions()
	return func() map[string]int {
		count := map[string]int{}
		for _, a := range h.client.Actions() {
			count[strings.TrimSpace(a.GetVerb()+" "+a.GetResource().Resource)]++
		}
		return count
	}
}

var spoke1 = Cluster{
	Name: "spoke1", ID: "id-1", Labels: map[string]string{"region": "eu"}, Consent: pod.Consent{SplitLabel: poolLabel},
}

func healthy() wire.NodeSummary {
	return wire.NodeSummary{
		KubernetesVersion: "v1.37.2",
		Nodes:             wire.NodeCounts{Total: 2, Ready: 2},
		Capacity:          wire.Quantities{"cpu": "8", "memory": "16Gi", "pods": "220"},
		Allocatable:       wire.Quantities{"cpu": "7", "memory": "14Gi", "pods": "220"},
		Conditions: []wire.NodeCondition{
			{Type: "MemoryPressure", Status: "False", Reason: "KubeletHasSufficientMemory"},
			{Type: "Ready", Status: "True", Reason: "NodesReady", Message: "2 of 2 nodes are ready"},
		},
		NodeInfo: wire.NodeInfo{Architecture: "amd64", OperatingSystem: "linux"},
		Zones:    []string{"a"},
	}
}
