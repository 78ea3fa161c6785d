// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/agent/pod/shape"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const poolLabel = "example.com/pool"

type groupList []string

func (g groupList) GroupsOf(context.Context) ([]string, error) { return g, nil }

// inGroups has an engine of a cluster that is split by the pool.
func inGroups(names ...string) func(*Config) {
	return func(c *Config) { c.SplitLabel, c.Groups = poolLabel, groupList(names) }
}

// ofGroup is a pod that is bound to the node of a group.
func ofGroup(name string) func(*wire.Pod) {
	return func(p *wire.Pod) { p.Group, p.Pod.Spec.NodeName = name, wire.NodeName(spokeName, name) }
}

func TestAPodRunsOnTheNodesThatTheHubChose(t *testing.T) {
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

func TestAPodOfAGroupIsRefusedWhereThereAreNone(t *testing.T) {
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	a := h.start(inGroups("gpu"))
	h.want(h.pod("before", ofGroup("gpu")))
	c.appears("before", "uid-before")
	a.stop()

	h.start() // the option is taken away
	h.want(h.pod("after", ofGroup("gpu")))
	h.refused("after", shape.ReasonNodeGroupUnknown)
	if c.pod("after") != nil {
		t.Error("a pod of a group runs on any node")
	}
	if c.pod("before") == nil {
		t.Error("a pod that ran was ended")
	}
}

func TestWhatAnOlderAgentMakesOfAPodOfAGroup(t *testing.T) {
	pod := wire.Pod{Group: "gpu", Pod: corev1.Pod{}}
	pod.Pod.Namespace, pod.Pod.Name, pod.Pod.UID = "shop", "web", "1"
	body, err := pod.Encode()
	if err != nil {
		t.Fatal(err)
	}
	e := idle(t)
	e.resync(nil, "1")
	// It reads what it knows of, which names no pod.
	e.accept(resource.Resource{Key: "shop/web", UID: "1", Body: append(body[:len(body)-1], `,"group":"","grouped":null}`...)})
	e.complete()
	en := e.entries[place{Namespace: "shop", Name: "web"}]
	en.live = &live{presence: presence{uid: "s", hubUID: "1"}, pod: &corev1.Pod{}}
	if what := decide(e.situation(en)); what != actRest {
		t.Errorf("a pod that runs and cannot be read: %s, want it left alone", what)
	}
	en.live = nil
	if what := decide(e.situation(en)); what == actCreate {
		t.Error("a pod that cannot be read is run")
	}
}
