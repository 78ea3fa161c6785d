// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/e2e/testbed"
)

const (
	workSets      = "worksets.mcm.ibm.com"
	resourceViews = "resourceviews.mcm.ibm.com"
)

// everywhere is a WorkSet that creates a ConfigMap in both spokes.
func everywhere(name, object string) string {
	return fmt.Sprintf(`
apiVersion: mcm.ibm.com/v1alpha1
kind: WorkSet
metadata: {name: %s, namespace: bob}
spec:
  clusterSelector: {matchLabels: {fan: out}}
  template:
    spec: {type: Action, actionType: Create, kube: {namespace: bob, template: {apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {a: b}}}}
`, name, object)
}

// everything is a ResourceView that shows it.
func everything(name, object string) string {
	return fmt.Sprintf(`
apiVersion: mcm.ibm.com/v1alpha1
kind: ResourceView
metadata: {name: %s, namespace: bob}
spec:
  clusterSelector: {matchLabels: {fan: out}}
  scope: {resource: configmaps, namespace: bob, resourceName: %s}
`, name, object)
}

// together is nil if the status of a WorkSet is of a kind, with a reason that has each
// of the words.
func (o object) together(kind string, words ...string) error {
	got, reason := o.field("status", "status"), o.field("status", "reason")
	if got != kind {
		return fmt.Errorf("it is %q: %s", got, o.field("status"))
	}
	for _, word := range words {
		if !strings.Contains(reason, word) {
			return fmt.Errorf("reason %q does not name %q", reason, word)
		}
	}
	return nil
}

// shown is nil for a ResourceView with results of these clusters and no others, each a
// ConfigMap with a value at a key.
func shown(key, value string, clusters ...string) func(object) error {
	return func(o object) error {
		results, _, _ := unstructured.NestedMap(o.Object, "status", "results")
		for _, cluster := range clusters {
			if got, _, _ := unstructured.NestedString(results, cluster, "data", key); got != value {
				return fmt.Errorf("of %s it shows %v; %s", cluster, results[cluster], o.field("status", "conditions"))
			}
		}
		if len(results) != len(clusters) {
			return fmt.Errorf("it shows %d clusters, want %d", len(results), len(clusters))
		}
		return nil
	}
}

// labelBoth selects both spokes until the test ends.
func (s *tests) labelBoth(t *testing.T) {
	t.Helper()
	label := func(ctx context.Context, label string) error {
		_, err := s.Hub.Command.Run(ctx, "label", "managedcluster", "spoke1", "spoke2", label, "--overwrite")
		return err
	}
	t.Cleanup(func() { _ = label(context.WithoutCancel(t.Context()), "fan-") })
	if err := label(t.Context(), "fan=out"); err != nil {
		t.Fatal(err)
	}
}

// fanOutNamesAway makes both kinds while the second spoke is away.
func (s *tests) fanOutNamesAway(t *testing.T) {
	t.Helper()
	s.labelBoth(t)
	s.apply(t, everywhere("away-set", "away-fanned")+"---\n"+everything("away-look", "away-fanned"))
	words := []string{"spoke2", `cluster "spoke2" is not connected`}
	s.until(t, workSets, "bob", "away-set", "the set names who is away", func(o object) error { return o.together("Processing", words...) })
	s.until(t, resourceViews, "bob", "away-look", "the view names who is away", func(o object) error {
		list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		if len(list) != 1 {
			return fmt.Errorf("conditions are %v", list)
		}
		condition, _ := list[0].(map[string]any)
		reason := fmt.Sprint(condition["reason"])
		for _, word := range words {
			if condition["type"] != "Processing" || !strings.Contains(reason, word) {
				return fmt.Errorf("condition is %v, want Processing with %q", condition, word)
			}
		}
		return shown("a", "b", "spoke1")(o)
	})
}

// fanOutIsWhole waits until the second spoke is in both, and removes them.
func (s *tests) fanOutIsWhole(t *testing.T) {
	t.Helper()
	s.until(t, workSets, "bob", "away-set", "the set is done", func(o object) error { return o.together("Completed") })
	s.until(t, resourceViews, "bob", "away-look", "both are shown", shown("a", "b", "spoke1", "spoke2"))
	s.Hub.Kubectl(t, "delete", workSets+","+resourceViews, "-n", "bob", "--all")
	testbed.Until(t, "their works go with them", testbed.Settle, func(ctx context.Context) error {
		out, err := s.Hub.Command.Run(ctx, "get", works, "-A", "-l", "mcm.ibm.com/cluster", "-o", "name")
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("there are %s", out)
		}
		return err
	})
}
