// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/e2e/testbed"
)

// untilManifest waits until the Applied condition of a manifest has a message,
// at the work's present generation.
func (s *tests) untilManifest(t *testing.T, work string, ordinal int, want string) {
	t.Helper()
	testbed.Until(t, fmt.Sprintf("manifest %d of work %s: %s", ordinal, work, want), testbed.Settle, func(ctx context.Context) error {
		obj, err := s.Hub.Dyn.Resource(testbed.WorksResource).Namespace("spoke1").Get(ctx, work, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if testbed.Observed(obj.Object, "Applied") != obj.GetGeneration() {
			return fmt.Errorf("generation %d is not observed", obj.GetGeneration())
		}
		if message := manifestMessage(obj.Object, ordinal); !strings.Contains(message, want) {
			return fmt.Errorf("is %q", message)
		}
		return nil
	})
}

// manifestMessage is that of the Applied condition of one manifest.
func manifestMessage(work map[string]any, ordinal int) string {
	status, _ := work["status"].(map[string]any)
	list, _ := status["manifestConditions"].([]any)
	if ordinal >= len(list) {
		return ""
	}
	manifest, _ := list[ordinal].(map[string]any)
	return appliedMessage(manifest)
}

// appliedMessage is that of the Applied condition of what a status says of a manifest.
func appliedMessage(manifest map[string]any) string {
	conditions, _ := manifest["conditions"].([]any)
	for _, item := range conditions {
		if c, ok := item.(map[string]any); ok && c["type"] == "Applied" {
			return fmt.Sprint(c["message"])
		}
	}
	return ""
}

// largeManifests: what the hub's API server cannot store it refuses, what the
// spoke's cannot is on the work.
func (s *tests) largeManifests(t *testing.T) {
	big := s.WorkManifest("big", testbed.ConfigMap("big", strings.Repeat("x", 2<<20)))
	for _, args := range [][]string{{"create", "-f", "-"}, {"apply", "-f", "-"}, {"apply", "--server-side", "-f", "-"}} {
		testbed.Refused(t, "2 MiB do not fit the hub's own API server", s.Hub.Command, big, args, "large")
		testbed.Refused(t, "what was refused is not there", s.Hub.Command, "", []string{"get", "works.multicluster.x-k8s.io", "big", "-n", "spoke1"}, "NotFound", "big")
	}
	large := s.WorkManifest("large", testbed.ConfigMap("large", strings.Repeat("x", 1100<<10)), testbed.ConfigMap("small", "v"))
	if _, err := s.Hub.Command.RunInput(t.Context(), strings.NewReader(large), "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	s.untilManifest(t, "large", 0, `"large" is invalid`)
	s.UntilValue(t, "small", "v")
	if _, err := s.Value(t.Context(), "large"); err == nil {
		t.Error("an object is there that cannot be")
	}
	s.Hub.Kubectl(t, "delete", "works.multicluster.x-k8s.io", "large", "-n", "spoke1", "--timeout=180s")
	s.UntilGone(t, "small")
}
