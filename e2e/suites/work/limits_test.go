// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/e2e/testbed"
)

// untilManifest waits until the Applied condition of a manifest has a message,
// at the work's present generation, and returns it.
func (s *tests) untilManifest(t *testing.T, work string, ordinal int, within time.Duration, want string) string {
	t.Helper()
	var message string
	testbed.Until(t, fmt.Sprintf("manifest %d of work %s: %s", ordinal, work, want), within, func(ctx context.Context) error {
		obj, err := s.Hub.Dyn.Resource(testbed.WorksResource).Namespace("spoke1").Get(ctx, work, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if testbed.Observed(obj.Object, "Applied") != obj.GetGeneration() {
			return fmt.Errorf("generation %d is not observed", obj.GetGeneration())
		}
		message = manifestMessage(obj.Object, ordinal)
		if !strings.Contains(message, want) {
			return fmt.Errorf("is %q", message)
		}
		return nil
	})
	return message
}

// manifestMessage is that of the Applied condition of one manifest.
func manifestMessage(work map[string]any, ordinal int) string {
	status, _ := work["status"].(map[string]any)
	list, _ := status["manifestConditions"].([]any)
	if ordinal >= len(list) {
		return ""
	}
	manifest, _ := list[ordinal].(map[string]any)
	conditions, _ := manifest["conditions"].([]any)
	for _, item := range conditions {
		if c, ok := item.(map[string]any); ok && c["type"] == "Applied" {
			return fmt.Sprint(c["message"])
		}
	}
	return ""
}

// worksActAsTheirAccount: the chart's account of the works may not write every
// kind; the spoke's owner may let it.
func (s *tests) worksActAsTheirAccount(t *testing.T) {
	const class = `{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: e2e-low}, value: 1}`
	s.Hub.Apply(t, testbed.WorkManifest("rights", testbed.ConfigMap("allowed", "v"), class))
	if reason := s.UntilWork(t, "rights", "Applied", "False"); reason != "AppliedWorkFailed" {
		t.Errorf("reason: got %q", reason)
	}
	s.UntilValue(t, "allowed", "v")
	message := s.untilManifest(t, "rights", 1, testbed.Settle, "forbidden")
	for _, word := range []string{"Failed to apply manifest: ", "klusterlet-work-sa", "priorityclasses"} {
		if !strings.Contains(message, word) {
			t.Errorf("message %q does not name %q", message, word)
		}
	}
	s.Spoke().Apply(t, `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: e2e-classes, labels: {"open-cluster-management.io/aggregate-to-work": "true"}}, `+
		`rules: [{apiGroups: [scheduling.k8s.io], resources: [priorityclasses], verbs: ["*"]}]}`)
	start := time.Now()
	s.UntilWork(t, "rights", "Applied", "True")
	t.Logf("applied %s after the right was given", time.Since(start).Round(time.Millisecond))
	s.Hub.Kubectl(t, "delete", "works.multicluster.x-k8s.io", "rights", "-n", "spoke1", "--timeout=90s")
	s.UntilGone(t, "allowed")
	s.Spoke().Kubectl(t, "delete", "clusterrole", "e2e-classes")
}

// largeManifests: what the hub's API server cannot store it refuses, what the
// spoke's cannot is on the work.
func (s *tests) largeManifests(t *testing.T) {
	big := testbed.WorkManifest("big", testbed.ConfigMap("big", strings.Repeat("x", 2<<20)))
	for _, args := range [][]string{{"create", "-f", "-"}, {"apply", "-f", "-"}, {"apply", "--server-side", "-f", "-"}} {
		testbed.Refused(t, "2 MiB do not fit the hub's own API server", s.Hub.Command, big, args, "large")
		testbed.Refused(t, "what was refused is not there", s.Hub.Command, "", []string{"get", "works.multicluster.x-k8s.io", "big", "-n", "spoke1"}, "NotFound", "big")
	}
	large := testbed.WorkManifest("large", testbed.ConfigMap("large", strings.Repeat("x", 1100<<10)), testbed.ConfigMap("small", "v"))
	if _, err := s.Hub.Command.RunInput(t.Context(), strings.NewReader(large), "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	s.untilManifest(t, "large", 0, testbed.Settle, `"large" is invalid`)
	s.UntilValue(t, "small", "v")
	if _, err := s.Value(t.Context(), "large"); err == nil {
		t.Error("an object is there that cannot be")
	}
	s.Hub.Kubectl(t, "delete", "works.multicluster.x-k8s.io", "large", "-n", "spoke1", "--timeout=90s")
	s.UntilGone(t, "small")
}
