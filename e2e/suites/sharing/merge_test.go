// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
)

// refused: what cannot be shared, and what nobody may, says so.
func (s *tests) refused(t *testing.T) {
	for name, tc := range map[string]struct {
		fields, reason string
		words          []string
	}{
		"deployments": {"{group: apps, resource: deployments, clusterSelector: {}}", "NotShareable", []string{"ManifestWork"}},
		"works":       {"{group: work.open-cluster-management.io, resource: manifestworks, clusterSelector: {}}", "NotShareable", nil},
		"own":         {"{group: sync.spokelet.io, resource: sharedresources, clusterSelector: {}}", "NotShareable", nil},
	} {
		s.Hub.Apply(t, fmt.Sprintf("apiVersion: sync.spokelet.io/v1alpha1\nkind: SharedResource\nmetadata: {name: %s}\nspec: %s\n", name, tc.fields))
		s.untilStatus(t, name, name+" are refused", func(got status) error {
			return condition(got.Conditions, "Accepted", "False", tc.reason, tc.words...)
		})
		s.Hub.Kubectl(t, "delete", "sharedresource", name)
	}
	testbed.Refused(t, "all clusters would write one namespace", s.Hub.Command, testbed.SharedResourceManifest("one", gadgets, "clusterSelector: {}, hubNamespace: default"),
		[]string{"apply", "-f", "-"}, "hubNamespace")
	s.Hub.Kubectl(t, "label", "managedcluster", "spoke1", "shared=first", "--overwrite")
	s.Hub.Apply(t, testbed.SharedResourceManifest("undefined", gadgets, onSpoke1))
	s.untilStatus(t, "undefined", "a definition is missing in the spoke", func(got status) error {
		return got.first(func(_, _ int, _ string, conditions []metav1.Condition) error {
			return condition(conditions, "Ready", "False", "DefinitionMissing", "cluster:", "gadgets.example.com")
		})
	})
	s.Hub.Kubectl(t, "delete", "sharedresource", "undefined")
	s.Hub.Apply(t, strings.ReplaceAll(testbed.SharedResourceManifest("unallowed", findings, onSpoke1), "spokeNamespace: default", "spokeNamespace: kube-public"))
	s.untilStatus(t, "unallowed", "a namespace is not allowed", func(got status) error {
		return got.first(func(_, _ int, _ string, conditions []metav1.Condition) error {
			return condition(conditions, "Ready", "False", "RightsMissing", "cluster:", "kube-public", "shared.allow")
		})
	})
	s.Hub.Kubectl(t, "delete", "sharedresource", "unallowed")
}

// bothWays: objects are created, changed and deleted on either side.
func (s *tests) bothWays(t *testing.T) {
	s.Hub.Apply(t, testbed.SharedResourceManifest("gadgets", gadgets, onSpoke1+", definition: Brought"))
	s.ready(t, "gadgets")
	hub, spoke := s.sides(gadgets)
	s.Hub.Apply(t, testbed.Gadget("spoke1", "from-hub", "a: one"))
	spoke.until(t, "from-hub", "is created", map[string]string{"spec.a": "one"})
	spoke.merge(t, "from-hub", `{"status":{"phase":"Running"}}`, "status")
	hub.until(t, "from-hub", "has the spoke's status", map[string]string{"status.phase": "Running"})
	s.Spoke().Apply(t, testbed.Gadget("default", "from-spoke", "a: two"))
	hub.until(t, "from-spoke", "is created", map[string]string{"spec.a": "two"})
	hub.merge(t, "from-spoke", `{"metadata":{"labels":{"by":"hub"},"annotations":{"example.com/note":"kept"}},"spec":{"b":"three"}}`)
	spoke.until(t, "from-spoke", "is changed", map[string]string{"spec.a": "two", "spec.b": "three", "metadata.labels.by": "hub"})
	hub.merge(t, "from-hub", `{"metadata":{"finalizers":["example.com/hub"]}}`)
	s.Spoke().Kubectl(t, "delete", "gadgets", "from-hub", "--wait=false")
	spoke.untilGone(t, "from-hub")
	hub.until(t, "from-hub", "waits for its finalizer", nil)
	hub.merge(t, "from-hub", `{"metadata":{"finalizers":null}}`)
	hub.untilGone(t, "from-hub")
	s.Hub.Kubectl(t, "delete", "gadgets", "-n", "spoke1", "from-spoke")
	spoke.untilGone(t, "from-spoke")
}

// merged: both sides change an object while the tunnel is cut.
func (s *tests) merged(t *testing.T) {
	hub, spoke := s.sides(gadgets)
	s.Hub.Apply(t, testbed.Gadget("spoke1", "both", "a: '0', c: '0', ports: [{name: p, port: 1}, {name: q, port: 1}]"))
	spoke.until(t, "both", "is created", map[string]string{"spec.a": "0"})
	s.cut(t)
	hub.merge(t, "both", `{"spec":{"a":"hub","c":"hub","ports":[{"name":"p","port":2},{"name":"q","port":1}]}}`)
	spoke.merge(t, "both", `{"spec":{"b":"spoke","c":"spoke","ports":[{"name":"p","port":1},{"name":"q","port":3}]}}`)
	s.heal(t)
	want := map[string]string{
		"spec.a": "hub", "spec.b": "spoke", "spec.c": "hub",
		"spec.ports": `[{"name":"p","port":2},{"name":"q","port":3}]`,
	}
	spoke.until(t, "both", "is merged", want)
	hub.until(t, "both", "is merged", want)
	for _, at := range []struct {
		site      *testbed.Site
		namespace string
	}{{s.Hub, "spoke1"}, {s.Spoke(), "default"}} {
		testbed.Until(t, at.site.Name+": an event names the field", testbed.Settle, func(ctx context.Context) error {
			out, err := at.site.Command.Run(ctx, "get", "events", "-n", at.namespace, "--field-selector", "reason=ConflictDecided,involvedObject.name=both", "-o", "jsonpath={.items[*].message}")
			if err == nil && !strings.Contains(out, ".spec.c") {
				err = fmt.Errorf("events say %q", out)
			}
			return err
		})
	}
}

// collision: an object that both sides had before is not overwritten.
func (s *tests) collision(t *testing.T) {
	hub, spoke := s.sides(gadgets)
	s.cut(t)
	s.Hub.Apply(t, testbed.Gadget("spoke1", "twice", "a: hub")+testbed.Gadget("spoke1", "alike", "a: same"))
	s.Spoke().Apply(t, testbed.Gadget("default", "twice", "a: spoke")+testbed.Gadget("default", "alike", "a: same"))
	s.heal(t)
	s.untilStatus(t, "gadgets", "a conflict is named", func(got status) error {
		return got.first(func(_, conflicts int, lastError string, _ []metav1.Condition) error {
			if conflicts != 1 || !strings.Contains(lastError, "twice") || !strings.Contains(lastError, ".spec.a") {
				return fmt.Errorf("%d conflicts, %q", conflicts, lastError)
			}
			return nil
		})
	})
	hub.until(t, "twice", "is the hub's", map[string]string{"spec.a": "hub"})
	spoke.until(t, "twice", "is the spoke's", map[string]string{"spec.a": "spoke"})
	hub.merge(t, "alike", `{"spec":{"b":"travels"}}`)
	spoke.until(t, "alike", "is shared", map[string]string{"spec.b": "travels"})
	spoke.merge(t, "twice", `{"spec":{"a":"hub"}}`)
	s.untilStatus(t, "gadgets", "the conflict is over", func(got status) error {
		return got.first(func(_, conflicts int, _ string, _ []metav1.Condition) error {
			if conflicts != 0 {
				return fmt.Errorf("%d conflicts", conflicts)
			}
			return nil
		})
	})
	hub.merge(t, "twice", `{"spec":{"b":"resolved"}}`)
	spoke.until(t, "twice", "is shared since it was equal", map[string]string{"spec.b": "resolved"})
}

// refusedThere: what a policy of one side refuses is said, and tried again when it
// changes.
func (s *tests) refusedThere(t *testing.T) {
	hub, spoke := s.sides(gadgets)
	narrow := strings.Replace(testbed.SharedDefinition("Gadget"), "maxLength: 20", "maxLength: 5", 1)
	s.Spoke().Apply(t, narrow)
	const tooLong = `{"spec":{"c":"too long"}}`
	spoke.untilInvalid(t, "both", tooLong) // an API server serves a new schema a moment later
	hub.merge(t, "both", tooLong)
	s.untilStatus(t, "gadgets", "a refusal is said", func(got status) error {
		return got.first(func(_, _ int, lastError string, _ []metav1.Condition) error {
			if !strings.Contains(lastError, "cluster:") || !strings.Contains(lastError, "both") || !strings.Contains(lastError, "spec.c") {
				return fmt.Errorf("last error is %q", lastError)
			}
			return nil
		})
	})
	hub.merge(t, "both", `{"spec":{"c":"short"}}`)
	spoke.until(t, "both", "has what is accepted", map[string]string{"spec.c": "short"})
	s.untilStatus(t, "gadgets", "the error is over", func(got status) error {
		return got.first(func(_, _ int, lastError string, _ []metav1.Condition) error {
			if lastError != "" {
				return fmt.Errorf("last error is %q", lastError)
			}
			return nil
		})
	})
	s.Spoke().Apply(t, testbed.SharedDefinition("Gadget"))
}

// reports: what a scanner finds in each cluster is on the hub, and what is changed there
// is undone.
func (s *tests) reports(t *testing.T) {
	s.Hub.Apply(t, testbed.SharedResourceManifest("findings", findings, "clusterSelector: {}, direction: ToHub"))
	for _, spoke := range s.Spokes {
		spoke.Apply(t, strings.ReplaceAll(testbed.Gadget("default", "scan", "a: "+spoke.Name), "Gadget", "Finding"))
	}
	for _, spoke := range s.Spokes {
		on := side{s.Hub.Dyn.Resource(findings).Namespace(spoke.Name), "hub"}
		on.until(t, "scan", "is there", map[string]string{"spec.a": spoke.Name})
		on.merge(t, "scan", `{"spec":{"a":"forged"}}`)
		on.until(t, "scan", "is right again", map[string]string{"spec.a": spoke.Name})
		s.Hub.Kubectl(t, "delete", "findings", "-n", spoke.Name, "scan")
		on.until(t, "scan", "is back", map[string]string{"spec.a": spoke.Name})
	}
	s.Spoke().Kubectl(t, "delete", "findings", "-n", "default", "scan")
	side{s.Hub.Dyn.Resource(findings).Namespace("spoke1"), "hub"}.untilGone(t, "scan")
}

// agentIsKilled: both sides change objects meanwhile.
func (s *tests) agentIsKilled(t *testing.T) {
	s.NoRace(t) // the log of its pod goes
	s.survives(t, "agent", func() {
		s.Spoke().Kubectl(t, "delete", "pod", "-n", env.AgentNamespace, "-l", testbed.AgentPods, "--grace-period=0", "--force")
	}, func() {})
}

// hubIsKilled: as above. What is deleted before another hub watches is held, so that the
// deletions wait until the session of the one that was killed has ended.
func (s *tests) hubIsKilled(t *testing.T) {
	s.NoRace(t)
	ended := func() int {
		return strings.Count(s.Spoke().Kubectl(t, "logs", "-n", env.AgentNamespace, "-l", testbed.AgentPods, "--tail=-1"), "session ended")
	}
	before := ended()
	s.survives(t, "hub", func() {
		s.Hub.Kubectl(t, "delete", "pod", "-n", env.HubNamespace, "-l", "app.kubernetes.io/name=spokelet-hub", "--grace-period=0", "--force")
	}, func() {
		testbed.Until(t, "the session of the hub that was killed has ended", testbed.Settle, func(context.Context) error {
			if ended() == before {
				return errors.New("it has not")
			}
			return nil
		})
	})
}

// survives changes objects on both sides while something is interrupted, and deletes them
// once that is over.
func (s *tests) survives(t *testing.T, prefix string, interrupt, over func()) {
	t.Helper()
	const many = 20
	hub, spoke := s.sides(gadgets)
	var manifests strings.Builder
	for i := range many {
		manifests.WriteString(testbed.Gadget("spoke1", fmt.Sprintf("%s-%d", prefix, i), "a: '0', b: '0'"))
	}
	s.Hub.Apply(t, manifests.String())
	spoke.until(t, fmt.Sprintf("%s-%d", prefix, many-1), "is created", map[string]string{"spec.a": "0"})
	for i := range many {
		name := fmt.Sprintf("%s-%d", prefix, i)
		spoke.until(t, name, "is created", map[string]string{"spec.a": "0"})
		hub.merge(t, name, `{"spec":{"a":"hub"}}`)
		if i == many/2 {
			interrupt()
		}
		spoke.merge(t, name, `{"spec":{"b":"spoke"}}`)
	}
	for i := range many {
		name := fmt.Sprintf("%s-%d", prefix, i)
		want := map[string]string{"spec.a": "hub", "spec.b": "spoke"}
		hub.until(t, name, "has both", want)
		spoke.until(t, name, "has both", want)
	}
	over()
	hub.merge(t, prefix+"-0", `{"spec":{"c":"after"}}`)
	spoke.until(t, prefix+"-0", "travels again", map[string]string{"spec.c": "after"})
	s.Hub.Kubectl(t, "delete", "gadgets", "-n", "spoke1", "--all")
	testbed.Until(t, "the spoke's are gone", testbed.Settle, func(ctx context.Context) error {
		list, err := spoke.List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("there are %d", len(list.Items))
		}
		return err
	})
}
