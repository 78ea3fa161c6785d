// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// gate stops requests, or what was answered to them, until a test opens it.
type gate struct {
	// answers: the requests are done, and what is stopped is their answers.
	answers bool
	stops   func(*http.Request) bool
	armed   atomic.Bool
	reached chan struct{}
	open    chan struct{}
}

func newGate(answers bool, stops func(*http.Request) bool) *gate {
	return &gate{answers: answers, stops: stops, reached: make(chan struct{}, 64), open: make(chan struct{})}
}

// through makes an engine's requests pass the gate.
func (g *gate) through(cfg *Config) {
	before := cfg.REST.WrapTransport
	cfg.REST.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		if before != nil {
			next = before(next)
		}
		return roundTripper{next, func(req *http.Request) (*http.Response, error) {
			stops := g.armed.Load() && g.stops(req)
			if stops && !g.answers {
				g.stop(req)
			}
			resp, err := next.RoundTrip(req)
			if stops && g.answers {
				g.stop(req)
			}
			return resp, err
		}}
	}
}

func (g *gate) stop(req *http.Request) {
	select {
	case g.reached <- struct{}{}:
	default:
	}
	select {
	case <-g.open:
	case <-req.Context().Done():
	}
}

// meets waits until something is stopped.
func (g *gate) meets(t *testing.T) {
	t.Helper()
	select {
	case <-g.reached:
	case <-time.After(livetest.Patience):
		t.Fatal("nothing was stopped")
	}
}

const jsonPatch = "application/json-patch+json"

// removesReference is a request that removes a reference, writes one that applies the object.
func removesReference(req *http.Request) bool {
	return req.Method == http.MethodPatch && strings.HasSuffix(req.URL.Path, "/configmaps/shared") && req.Header.Get("Content-Type") == jsonPatch
}

func writes(req *http.Request) bool {
	return req.Method != http.MethodGet && strings.HasSuffix(req.URL.Path, "/configmaps/shared") && req.Header.Get("Content-Type") != jsonPatch
}

// owners are the UIDs of who owns a ConfigMap.
func (c *testCluster) owners(name string) []types.UID {
	c.t.Helper()
	live := c.get(name)
	if live == nil {
		c.t.Fatalf("%s is gone", name)
	}
	var uids []types.UID
	for _, o := range live.OwnerReferences {
		uids = append(uids, o.UID)
	}
	slices.Sort(uids)
	return uids
}

// ownedBy waits until a ConfigMap is owned by these anchors and nobody else.
func (c *testCluster) ownedBy(name string, anchors ...types.UID) {
	c.t.Helper()
	slices.Sort(anchors)
	c.eventually(fmt.Sprintf("%s is owned by %v alone", name, anchors), func() bool { return slices.Equal(c.owners(name), anchors) })
}

// returns watches a ConfigMap from now on. What it returns ends that, and
// tells which owners went and came back; a garbage collector may have removed them
// again, so that looking once shows nothing.
func (c *testCluster) returns(name string) (stop func() []types.UID) {
	c.t.Helper()
	w, err := c.kube.CoreV1().ConfigMaps(c.namespace).Watch(contextOf(c.t), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		c.t.Fatal(err)
	}
	var gone, back, before []types.UID
	var stopped atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range w.ResultChan() {
			cm, ok := event.Object.(*corev1.ConfigMap)
			if !ok {
				continue
			}
			var now []types.UID
			for _, o := range cm.OwnerReferences {
				now = append(now, o.UID)
				if slices.Contains(gone, o.UID) {
					back = append(back, o.UID)
				}
			}
			gone = append(gone, slices.DeleteFunc(before, func(uid types.UID) bool { return slices.Contains(now, uid) })...)
			before = now
		}
		if !stopped.Load() {
			c.t.Errorf("the watch of %s ended before its time, and may have missed something", name)
		}
	}()
	stop = func() []types.UID {
		stopped.Store(true)
		w.Stop()
		<-done
		return back
	}
	c.t.Cleanup(func() { stop() })
	return stop
}

// sharedRelease is one way in which the first of two works gives up what they share.
type sharedRelease struct {
	reason string
	begin  func(c *testCluster, h *testHub, work string)
	over   func(c *testCluster, h *testHub, work string) bool
	// stays is the hash of another anchor, under which it owns the object anew.
	stays string
}

func releases() map[string]sharedRelease {
	listsOther := func(c *testCluster, _ *testHub, work string) bool {
		a := c.applied(hubHashOne + "-" + work)
		return a != nil && len(a.Status.AppliedResources) == 1 && a.Status.AppliedResources[0].Name == "other"
	}
	orphan := wire.Work{Spec: workv1.ManifestWorkSpec{DeleteOption: &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}}}
	return map[string]sharedRelease{
		"the work is deleted": {
			reason: "its anchor goes, and a reference to it would be one to nothing",
			begin:  func(_ *testCluster, h *testHub, work string) { h.ask(work, 1, wire.Work{Deleting: true}) },
			over:   func(_ *testCluster, h *testHub, work string) bool { return h.said(work).Finalized },
		},
		"the manifest leaves the work": {
			reason: "the anchor stays, and does not list the object",
			begin:  func(c *testCluster, h *testHub, work string) { h.ask(work, 2, wire.Work{}, c.configMap("other")) },
			over:   listsOther,
		},
		"the work orphans it": {
			reason: "facts 4.13",
			begin:  func(c *testCluster, h *testHub, work string) { h.ask(work, 2, orphan, c.configMap("shared", "k", "1")) },
			over: func(_ *testCluster, h *testHub, work string) bool {
				return slices.ContainsFunc(h.said(work).Conditions, func(c metav1.Condition) bool {
					return c.Type == conditionApplied && c.Status == metav1.ConditionTrue && c.ObservedGeneration == 2
				})
			},
		},
		"the hub's hash changes, and the manifest leaves": {
			reason: "the anchor of the old hash is evicted; the work has another",
			begin: func(c *testCluster, h *testHub, work string) {
				h.ask(work, 2, wire.Work{HubHash: hubHashTwo}, c.configMap("other"))
			},
			over: func(c *testCluster, _ *testHub, work string) bool { return c.applied(hubHashOne+"-"+work) == nil },
		},
		"the hub's hash changes": {
			reason: "the new anchor owns the object, the old one does not",
			begin: func(c *testCluster, h *testHub, work string) {
				h.ask(work, 2, wire.Work{HubHash: hubHashTwo}, c.configMap("shared", "k", "1"))
			},
			over:  func(c *testCluster, _ *testHub, work string) bool { return c.applied(hubHashOne+"-"+work) == nil },
			stays: hubHashTwo,
		},
		"somebody deletes the anchor": {
			reason: "the work makes another one, which owns the object",
			begin: func(c *testCluster, _ *testHub, work string) {
				anchors := c.dynamic.Resource(ManifestWork().Anchor.Resource)
				if err := anchors.Delete(contextOf(c.t), hubHashOne+"-"+work, metav1.DeleteOptions{}); err != nil {
					c.t.Fatal(err)
				}
			},
			over: func(c *testCluster, _ *testHub, work string) bool {
				a := c.applied(hubHashOne + "-" + work)
				return a != nil && a.DeletionTimestamp == nil && len(a.Status.AppliedResources) == 1
			},
			stays: hubHashOne,
		},
	}
}

// shareThenRelease has two works share an object, and one of them give it up at the gate:
// meanwhile brings a request there, before or after.
func shareThenRelease(t *testing.T, f sharedRelease, strategy workv1.UpdateStrategyType, g *gate, meanwhile func(p *sharing, leave func())) {
	t.Helper()
	p := &sharing{testCluster: newCluster(t), hub: newHub(t)}
	p.startForOCM(p.hub, g.through, func(cfg *Config) { cfg.EvictionGrace = time.Second })
	p.one, p.two = p.name("one"), p.name("two")
	p.spec.Spec.ManifestConfigs = []workv1.ManifestConfigOption{p.option(workv1.ManifestConfigOption{UpdateStrategy: strategyOf(strategy)})}
	p.hub.ask(p.one, 1, wire.Work{}, p.configMap("shared", "k", "1"))
	p.hub.says(p.testCluster, p.one, 1, conditionApplied, metav1.ConditionTrue)
	p.hub.ask(p.two, 1, p.spec, p.configMap("shared", "k", "1"))
	p.hub.says(p.testCluster, p.two, 1, conditionApplied, metav1.ConditionTrue)
	first, second := p.applied(hubHashOne+"-"+p.one).UID, p.applied(hubHashOne+"-"+p.two).UID
	p.ownedBy("shared", first, second)
	returned := p.returns("shared")
	g.armed.Store(true)
	meanwhile(p, func() { f.begin(p.testCluster, p.hub, p.one) })
	p.eventually("the first has given it up", func() bool { return f.over(p.testCluster, p.hub, p.one) })
	want := []types.UID{second}
	if f.stays != "" {
		want = append(want, p.applied(f.stays+"-"+p.one).UID)
	}
	p.ownedBy("shared", want...)
	p.canary("after")
	if got, back := p.owners("shared"), returned(); !slices.Equal(got, want) || len(back) > 0 {
		t.Errorf("it is owned by %v, want %v; %v came back: %s", got, want, back, f.reason)
	}
}

// sharing is a cluster with two works that share an object.
type sharing struct {
	*testCluster
	hub      *testHub
	one, two string
	spec     wire.Work // of the second
}

// canary returns when another work was applied: what was about to happen has.
func (p *sharing) canary(name string) {
	p.t.Helper()
	for _, w := range []string{name + "-1", name + "-2"} {
		p.hub.ask(p.name(w), 1, wire.Work{}, p.configMap(w))
		p.hub.says(p.testCluster, p.name(w), 1, conditionAvailable, metav1.ConditionTrue)
	}
}

func eachStrategy(t *testing.T, play func(*testing.T, sharedRelease, workv1.UpdateStrategyType)) {
	t.Helper()
	for name, f := range releases() {
		for _, strategy := range []workv1.UpdateStrategyType{workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeServerSideApply} {
			t.Run(name+", beside "+string(strategy), func(t *testing.T) {
				t.Parallel()
				play(t, f, strategy)
			})
		}
	}
}

// The removal of a reference is an event, which has the other work repair the object:
// here it comes before the answer to the removal.
func TestReleasedOwnerIsNotRestored(t *testing.T) {
	t.Parallel()
	eachStrategy(t, func(t *testing.T, f sharedRelease, strategy workv1.UpdateStrategyType) {
		t.Helper()
		g := newGate(true, removesReference)
		shareThenRelease(t, f, strategy, g, func(p *sharing, leave func()) {
			leave()
			g.meets(t)
			p.canary("between")
			close(g.open)
		})
	})
}

// An apply that began while both owned the object repeats both references, and ends
// after one of the works has gone.
func TestApplyFromBeforeReleaseRestoresNothing(t *testing.T) {
	t.Parallel()
	eachStrategy(t, func(t *testing.T, f sharedRelease, strategy workv1.UpdateStrategyType) {
		t.Helper()
		g := newGate(false, writes)
		shareThenRelease(t, f, strategy, g, func(p *sharing, leave func()) {
			p.hub.ask(p.two, 2, p.spec, p.configMap("shared", "k", "1", "more", "2"))
			g.meets(t)
			leave()
			p.canary("between")
			close(g.open)
			p.hub.says(p.testCluster, p.two, 2, conditionApplied, metav1.ConditionTrue)
		})
	})
}
