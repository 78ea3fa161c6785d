// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/pod/translate"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const poolLabel = "example.com/pool"

type groupList []string

func (g groupList) GroupNames() ([]string, error) { return g, nil }

var errTooEarly = errors.New("nodes are not listed yet")

// lateGroups are not known until the nodes are listed.
type lateGroups struct {
	groupList
	listed atomic.Bool
}

func (g *lateGroups) GroupNames() ([]string, error) {
	if !g.listed.Load() {
		return nil, errTooEarly
	}
	return g.groupList.GroupNames()
}

// inGroups has an engine of a cluster that is split by the pool.
func inGroups(names ...string) func(*Config) {
	return func(c *Config) { c.SplitLabel, c.Groups = poolLabel, groupList(names) }
}

// ofGroup is a pod that is bound to the node of a group.
func ofGroup(name string) func(*wire.Pod) {
	return func(p *wire.Pod) { p.Group, p.Pod.Spec.NodeName = name, wire.NodeName(spokeName, name) }
}

func TestPodRunsOnItsNodeGroup(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	h.start(inGroups("gpu", "std"))
	h.want(h.pod("g", ofGroup("gpu")))
	h.want(h.pod("r"))

	got := c.appears("g", "uid-g")
	if diff := cmp.Diff(map[string]string{poolLabel: "gpu"}, got.Spec.NodeSelector); diff != "" || got.Spec.Affinity != nil {
		t.Errorf("of the group (-want +got):\n%s", diff)
	}
	want := []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: poolLabel, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"gpu", "std"}},
	}}}
	got = c.appears("r", "uid-r")
	terms := got.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if diff := cmp.Diff(want, terms); diff != "" || got.Spec.NodeSelector != nil {
		t.Errorf("of the rest (-want +got):\n%s", diff)
	}
}

func TestPodOfUnsplitClusterRunsOnAnyNode(t *testing.T) {
	cases := map[string]struct {
		reason   string
		consents string
		rest     bool
	}{
		"no consent":     {reason: "the hub's node is the whole cluster"},
		"another label":  {reason: "the hub's node is the whole cluster", consents: "example.com/other"},
		"the same label": {reason: "the hub's node is the rest", consents: poolLabel, rest: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := &Engine{cfg: Config{SplitLabel: poolLabel, Groups: groupList{"gpu"}}}
			pod := &corev1.Pod{}
			if err := e.assignToGroup(namespacedName{}, pod, &desiredPod{splitLabel: tc.consents}); err != nil {
				t.Fatal(err)
			}
			if got := pod.Spec.Affinity != nil; got != tc.rest || pod.Spec.NodeSelector != nil {
				t.Errorf("%s: kept off groups: %t, want %t", tc.reason, got, tc.rest)
			}
		})
	}
}

// writeCounter counts what is written through it.
type writeCounter struct {
	next  http.RoundTripper
	count atomic.Int32
}

func (c *writeCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		c.count.Add(1)
	}
	return c.next.RoundTrip(r)
}

func TestUngroupedPodWaitsForTheNodeGroups(t *testing.T) {
	const many = 40
	cases := map[string]struct {
		reason string
		listed time.Duration
	}{
		"shortly":            {reason: "as at a start", listed: 3 * minRetry},
		"after the patience": {reason: "the API server was away", listed: 5 * time.Minute},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := &prompt{}
			atOnce(t, p, func(t *testing.T, e *Engine) {
				groups := &lateGroups{groupList: groupList{"gpu"}}
				e.cfg.SplitLabel, e.cfg.Groups = poolLabel, groups
				for i := range many {
					tellNamed(t, e, fmt.Sprint("p", i))
				}
				synctest.Wait()
				if s := said(e, "p0"); s.Reason != ReasonCreateFailed || !s.Retried {
					t.Errorf("%s: told %+v, want a pod that is tried again", tc.reason, s)
				}
				<-time.After(tc.listed)
				groups.listed.Store(true)
				<-time.After(unlistedRetry)
				synctest.Wait()
				if n := p.count(); n != many {
					t.Errorf("%s: %d of %d pods are made a second after the list", tc.reason, n, many)
				}
			})
		})
	}
}

func TestNothingIsWrittenWhileNodeGroupsAreUnknown(t *testing.T) {
	p := &prompt{}
	atOnce(t, p, func(t *testing.T, e *Engine) {
		written := &writeCounter{next: p}
		spoke, err := newSpokeClient(&rest.Config{Host: "http://spoke", Transport: written}, "")
		if err != nil {
			t.Fatal(err)
		}
		e.spoke = spoke
		e.cfg.SplitLabel, e.cfg.Groups = poolLabel, &lateGroups{}
		key := wire.PodObjectKey{Kind: wire.PodObjectConfigMap, Namespace: "shop", Name: "settings"}
		e.handleObject(resource.Resource{Key: key.String(), Body: []byte(`{"text":{"a":"1"}}`)})
		tellChanged(t, e, "hub-1", reading(key.Name))
		synctest.Wait()
		if n := written.count.Load(); n != 0 {
			t.Errorf("%d objects are written", n)
		}
		if s := said(e, "web"); s.Message != "groups of nodes: "+errTooEarly.Error() {
			t.Errorf("told %q", s.Message)
		}
	})
}

func TestGroupedPodIsRefusedWithoutGroups(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	a := h.start(inGroups("gpu"))
	h.want(h.pod("before", ofGroup("gpu")))
	c.appears("before", "uid-before")
	a.stop()

	h.start() // the option is taken away
	h.want(h.pod("after", ofGroup("gpu")))
	h.refused("after", translate.ReasonNodeGroupUnknown)
	if c.pod("after") != nil {
		t.Error("a pod of a group runs on any node")
	}
	if c.pod("before") == nil {
		t.Error("a pod that ran was ended")
	}
}

func TestOlderAgentCannotReadGroupedPods(t *testing.T) {
	pod := wire.Pod{Group: "gpu", Pod: corev1.Pod{}}
	pod.Pod.Namespace, pod.Pod.Name, pod.Pod.UID = "shop", "web", "1"
	body, err := pod.Encode()
	if err != nil {
		t.Fatal(err)
	}
	e := idle(t)
	e.observePodList(nil, "1")
	// It reads what it knows of, which names no pod.
	e.handlePod(resource.Resource{Key: "shop/web", UID: "1", Body: append(body[:len(body)-1], `,"group":"","grouped":null}`...)})
	e.handlePodsSynced()
	en := e.pods[namespacedName{Namespace: "shop", Name: "web"}]
	en.live = &livePod{liveState: liveState{uid: "s", hubUID: "1"}, pod: &corev1.Pod{}}
	if what := decide(e.decisionInput(en)); what != actNone {
		t.Errorf("a pod that runs and cannot be read: %s, want it left alone", what)
	}
	en.live = nil
	if what := decide(e.decisionInput(en)); what == actCreate {
		t.Error("a pod that cannot be read is run")
	}
}
