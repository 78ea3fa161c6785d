// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sharing tests objects that are the same on the hub and in a spoke, with real API
// servers and real programs.
package sharing

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/spokelet/spokelet/e2e/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tests are those of this suite.
type tests struct{ *testbed.Testbed }

func TestShared(t *testing.T) {
	s := &tests{testbed.Open(t)}
	testbed.InOrder(t, 1,
		testbed.Step{Name: "definitions are there", Run: s.define},
		testbed.Step{Name: "what is not shared says why", Run: s.refused},
		testbed.Step{Name: "the pair works through cuts, as published", Run: s.pairThroughCuts},
		testbed.Step{Name: "the pair works, corrected", Run: s.pairCorrected},
		testbed.Step{Name: "a definition is brought, and objects go both ways", Run: s.bothWays},
		testbed.Step{Name: "changes of both sides are merged", Run: s.merged},
		testbed.Step{Name: "a name that both sides had is not overwritten", Run: s.collision},
		testbed.Step{Name: "what one side refuses is said", Run: s.refusedThere},
		testbed.Step{Name: "reports of all clusters are on the hub", Run: s.reports},
		testbed.Step{Name: "an agent that is killed loses nothing", Run: s.agentIsKilled},
		testbed.Step{Name: "a hub that is killed loses nothing", Run: s.hubIsKilled},
		testbed.Step{Name: "a definition that is deleted deletes nothing on the hub", Run: s.definitionIsDeleted},
		testbed.Step{Name: "no race was seen", Run: s.NoRace},
		testbed.Step{Name: "what is no longer shared stays", Run: s.end},
	)
}

var (
	requestStates   = schema.GroupVersionResource{Group: "com.redhat.ecosystem.sample", Version: "v1", Resource: "requeststates"}
	gadgets         = testbed.GadgetsResource
	findings        = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "findings"}
	sharedResources = schema.GroupVersionResource{Group: "sync.spokelet.io", Version: "v1alpha1", Resource: "sharedresources"}
)

func (s *tests) define(t *testing.T) {
	s.Hub.Apply(t, testbed.SharedDefinition("Gadget")+"---"+testbed.SharedDefinition("Finding"))
	for _, spoke := range s.Spokes {
		spoke.Apply(t, testbed.SharedDefinition("Finding"))
	}
}

// example is a file of examples/request-state.
func (s *tests) example(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.Env.Build.Root, "examples", "request-state", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// onSpoke1 selects the first spoke.
const onSpoke1 = "clusterSelector: {matchLabels: {shared: first}}"

// status is the part of a SharedResource that the tests look at.
type status struct {
	Conditions []metav1.Condition
	Objects    int
	Clusters   []struct {
		Name       string
		Objects    int
		Conflicts  int
		LastError  string
		Conditions []metav1.Condition
	}
}

// untilStatus waits until the status of a SharedResource is as wanted.
func (s *tests) untilStatus(t *testing.T, name, what string, wanted func(status) error) {
	t.Helper()
	testbed.Until(t, what, testbed.Settle, func(ctx context.Context) error {
		obj, err := s.Hub.Dyn.Resource(sharedResources).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		raw, err := json.Marshal(obj.Object["status"])
		if err != nil {
			return err
		}
		var got status
		if err := json.Unmarshal(raw, &got); err != nil {
			return err
		}
		if err := wanted(got); err != nil {
			return fmt.Errorf("%w: status is %s", err, raw)
		}
		return nil
	})
}

// condition wants one with a status, a reason and words in its message.
func condition(all []metav1.Condition, kind, value, reason string, words ...string) error {
	for _, c := range all {
		if c.Type != kind {
			continue
		}
		if string(c.Status) != value || c.Reason != reason {
			return fmt.Errorf("%s is %s, %s", kind, c.Status, c.Reason)
		}
		for _, word := range words {
			if !strings.Contains(c.Message, word) {
				return fmt.Errorf("%q does not name %q", c.Message, word)
			}
		}
		return nil
	}
	return fmt.Errorf("there is no %s", kind)
}

// ready waits until a SharedResource is.
func (s *tests) ready(t *testing.T, name string) {
	t.Helper()
	s.untilStatus(t, name, name+" is ready", func(got status) error { return condition(got.Conditions, "Ready", "True", "Shared") })
}

// cluster is what a status says of the first spoke.
func (got status) first(check func(objects, conflicts int, lastError string, conditions []metav1.Condition) error) error {
	for _, c := range got.Clusters {
		if c.Name == "spoke1" {
			return check(c.Objects, c.Conflicts, c.LastError, c.Conditions)
		}
	}
	return fmt.Errorf("spoke1 is not there")
}

// side is the objects of a resource on one side.
type side struct {
	dynamic.ResourceInterface
	name string
}

// sides are the objects of a resource on the hub and in the first spoke.
func (s *tests) sides(gvr schema.GroupVersionResource) (hub, spoke side) {
	return side{s.Hub.Dyn.Resource(gvr).Namespace("spoke1"), "hub"}, side{s.Spoke().Dyn.Resource(gvr).Namespace("default"), "spoke"}
}

// until waits until an object has the values of fields, by their paths with dots; an empty
// one is absent.
func (on side) until(t *testing.T, name, what string, want map[string]string) *unstructured.Unstructured {
	t.Helper()
	var last *unstructured.Unstructured
	testbed.Until(t, fmt.Sprintf("%s: %s: %s", on.name, name, what), testbed.Settle, func(ctx context.Context) error {
		obj, err := on.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		last = obj
		for path, value := range want {
			if got := field(obj, path); got != value {
				return fmt.Errorf("%s is %q, want %q", path, got, value)
			}
		}
		return nil
	})
	return last
}

func field(obj *unstructured.Unstructured, path string) string {
	value, _, _ := unstructured.NestedFieldNoCopy(obj.Object, strings.Split(path, ".")...)
	if text, ok := value.(string); ok {
		return text
	}
	if value == nil {
		return ""
	}
	raw, _ := json.Marshal(value)
	return string(raw)
}

// untilGone waits until there is no object of a name.
func (on side) untilGone(t *testing.T, name string) {
	t.Helper()
	testbed.Until(t, fmt.Sprintf("%s: %s is gone", on.name, name), testbed.Settle, func(ctx context.Context) error {
		_, err := on.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
}

// untilInvalid waits until an API server does not take a merge patch any more.
func (on side) untilInvalid(t *testing.T, name, patch string) {
	t.Helper()
	testbed.Until(t, fmt.Sprintf("%s: %s: %s is invalid", on.name, name, patch), testbed.Settle, func(ctx context.Context) error {
		_, err := on.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsInvalid(err) {
			return nil
		}
		return cmp.Or(err, errors.New("it is taken"))
	})
}

// merge changes an object by a merge patch, of a subresource too.
func (on side) merge(t *testing.T, name, patch string, subresources ...string) {
	t.Helper()
	_, err := on.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil {
		t.Fatalf("%s: change %s: %v", on.name, name, err)
	}
}
