// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/spokelet/spokelet/api/wire"
)

// running is a summary of a cluster whose nodes agree on that, in so far as it is not "".
func running(os, arch string) wire.NodeSummary {
	s := healthy()
	s.System = wire.NodeSystem{OS: os, Arch: arch}
	return s
}

// systemOf are the values of the two labels of a Node, "" for one that it has not.
func (h *hub) systemOf(name string) wire.NodeSystem {
	h.t.Helper()
	pass(time.Minute)
	labels := h.node(name).Labels
	return wire.NodeSystem{OS: labels[corev1.LabelOSStable], Arch: labels[corev1.LabelArchStable]}
}

func (h *hub) wantSystem(name, os, arch, when string) {
	h.t.Helper()
	if diff := cmp.Diff(wire.NodeSystem{OS: os, Arch: arch}, h.systemOf(name)); diff != "" {
		h.t.Errorf("system of %s %s (-want +got):\n%s", name, when, diff)
	}
}

func TestNodeHasCommonSystemLabels(t *testing.T) {
	cases := map[string]struct {
		reason   string
		record   map[string]string
		says     []wire.NodeSummary
		os, arch string
	}{
		"they agree":             {reason: "charts select by both", says: []wire.NodeSummary{running("linux", "amd64")}, os: "linux", arch: "amd64"},
		"they differ in one":     {reason: "a pod for one might come to the other", says: []wire.NodeSummary{running("linux", "")}, os: "linux"},
		"nothing is said of it":  {reason: "there is no node", says: []wire.NodeSummary{running("", "")}},
		"one that differs comes": {reason: "the label is not true any more", says: []wire.NodeSummary{running("linux", "amd64"), running("", "amd64")}, arch: "amd64"},
		"it goes again":          {reason: "labels are live", says: []wire.NodeSummary{running("", "arm64"), running("linux", "arm64")}, os: "linux", arch: "arm64"},
		"the record says so": {
			reason: "an administrator's word is not an agent's to change", record: map[string]string{"kubernetes.io/os": "windows"},
			says: []wire.NodeSummary{running("linux", "amd64")}, os: "windows", arch: "amd64",
		},
		"the record takes it away": {
			reason: "no pod selects nothing", record: map[string]string{"kubernetes.io/os": ""},
			says: []wire.NodeSummary{running("linux", "amd64")}, arch: "amd64",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := startHub(t, fake.NewSimpleClientset())
				defer h.stop()
				c := spoke1
				c.Labels = tc.record
				h.ensure(c)
				h.connect("spoke1")
				for _, s := range tc.says {
					h.summary("spoke1", s)
					pass(time.Minute)
				}
				h.wantSystem("spoke1", tc.os, tc.arch, "("+tc.reason+")")
				labels := h.node("spoke1").Labels
				for _, part := range []string{"os", "arch"} {
					if got, want := labels["beta.kubernetes.io/"+part], labels["kubernetes.io/"+part]; got != want {
						t.Errorf("the earlier label of %s says %q", part, got)
					}
				}
			})
		})
	}
}

func TestGroupNodeHasSystemLabelsOfItsNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewSimpleClientset())
		defer h.stop()
		h.ensure(spoke1)
		h.connect("spoke1")
		h.group("spoke1", "gpu", running("linux", "arm64"))
		s := running("linux", "amd64")
		s.Split = &wire.NodeSplit{Label: poolLabel, Groups: []string{"gpu"}, System: wire.NodeSystem{OS: "linux"}}
		h.summary("spoke1", s)
		h.wantSystem("spoke1", "linux", "amd64", "as that of the rest")
		h.wantSystem("spoke1.gpu", "linux", "arm64", "as that of the group")
		h.ensure(consenting(""))
		h.wantSystem("spoke1", "linux", "", "as that of the whole cluster, which is one node without consent")
	})
}

// objector is a DaemonSets that objects to the operating system's label.
type objector struct {
	mu    sync.Mutex
	text  string
	known bool
}

func (o *objector) set(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text, o.known = text, true
}

func (o *objector) Objection(have, more map[string]string) (text string, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if have[corev1.LabelOSStable] != "" || more[corev1.LabelOSStable] == "" {
		return "", o.known
	}
	return o.text, o.known
}

func TestSystemLabelsWaitForDaemonSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, sets := fake.NewSimpleClientset(), &objector{}
		with := func(c *Config) { c.DaemonSets = sets }
		h := startHub(t, client, with)
		r, recorder := reconciler(t, h.provider, record(nil))
		wantConditions(t, r, map[string]string{}, "before anything is known")
		h.connect("spoke1")
		h.summary("spoke1", running("linux", "amd64"))
		h.wantSystem("spoke1", "", "", "before the DaemonSets are known")
		wantConditions(t, r, map[string]string{}, "before the DaemonSets are known")

		sets.set("kube-proxy would wait")
		h.provider.DaemonSetsChanged()
		h.wantSystem("spoke1", "", "", "while a DaemonSet is in the way")
		wantConditions(t, r, map[string]string{ConditionNodeLabelled: "False " + ReasonNotLabelled}, "while a DaemonSet is in the way")
		if said := <-recorder.Events; !strings.Contains(said, "kube-proxy would wait") {
			t.Errorf("event %q does not say why", said)
		}

		sets.set("")
		h.provider.DaemonSetsChanged()
		h.wantSystem("spoke1", "linux", "amd64", "when none is in the way any more")
		wantConditions(t, r, map[string]string{ConditionNodeLabelled: "True " + ReasonLabelled}, "when none is in the way any more")

		sets.set("another would wait")
		h.provider.DaemonSetsChanged()
		h.summary("spoke1", running("linux", "arm64"))
		h.wantSystem("spoke1", "linux", "arm64", "though a DaemonSet came: pods choose the node by it")
		h.stop()

		next := startHub(t, client, with)
		defer next.stop()
		next.ensure(spoke1)
		next.wantSystem("spoke1", "linux", "arm64", "after a restart of the hub")
		next.connect("spoke1")
		next.summary("spoke1", running("linux", "arm64"))
		next.wantSystem("spoke1", "linux", "arm64", "after a restart of the hub and of the session")
	})
}

func TestRecordLabelsOverrideDaemonSetObjection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewSimpleClientset(), func(c *Config) { c.DaemonSets = &objector{text: "kube-proxy would wait", known: true} })
		defer h.stop()
		c := spoke1
		c.Labels = map[string]string{corev1.LabelOSStable: "linux"}
		h.ensure(c)
		h.connect("spoke1")
		h.summary("spoke1", running("linux", "amd64"))
		h.wantSystem("spoke1", "linux", "amd64", "with a record that names the system")
	})
}

// cautious is a DaemonSets that objects to every label of a system that the Node lacks.
type cautious struct{}

func (cautious) Objection(have, more map[string]string) (text string, known bool) {
	for _, name := range []string{corev1.LabelOSStable, corev1.LabelArchStable} {
		if have[name] != more[name] {
			return "agents would wait", true
		}
	}
	return "", true
}

func TestRecordLabelDoesNotImplySystemLabelsAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset()
		c := spoke1
		c.Labels = map[string]string{corev1.LabelOSStable: "linux"}
		for _, when := range []string{"at first", "after a restart of the hub"} {
			h := startHub(t, client, func(c *Config) { c.DaemonSets = cautious{} })
			h.ensure(c)
			h.connect("spoke1")
			h.summary("spoke1", running("linux", "amd64"))
			h.wantSystem("spoke1", "linux", "", when)
			h.stop()
		}
	})
}

func TestSplitLabelDoesNotImplySystemLabelsAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset()
		for _, when := range []string{"at first", "after a restart of the hub"} {
			h := startHub(t, client, func(c *Config) { c.DaemonSets = cautious{} })
			h.ensure(consenting(corev1.LabelArchStable))
			h.connect("spoke1")
			h.group("spoke1", "arm64", running("linux", "arm64"))
			s := running("linux", "amd64")
			s.Split = &wire.NodeSplit{Label: corev1.LabelArchStable, Groups: []string{"arm64"}}
			h.summary("spoke1", s)
			h.wantSystem("spoke1.arm64", "", "arm64", when)
			h.wantSystem("spoke1", "", "", when+", of the rest")
			h.stop()
		}
	})
}

func TestUnknownSystemHasNoObjection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewSimpleClientset(), func(c *Config) { c.DaemonSets = &objector{text: "kube-proxy would wait", known: true} })
		defer h.stop()
		r, _ := reconciler(t, h.provider, record(nil))
		h.connect("spoke1")
		h.summary("spoke1", running("", ""))
		wantConditions(t, r, map[string]string{}, "of a cluster of mixed nodes")
	})
}
