// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// untilManifest waits until the Applied condition of a manifest has a message,
// at the work's present generation, and returns it.
func (s *suite) untilManifest(t *testing.T, work string, ordinal int, within time.Duration, want string) string {
	t.Helper()
	var message string
	until(t, fmt.Sprintf("manifest %d of work %s: %s", ordinal, work, want), within, func(ctx context.Context) error {
		obj, err := s.hub.dyn.Resource(worksResource).Namespace("spoke1").Get(ctx, work, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if observed(obj.Object, "Applied") != obj.GetGeneration() {
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
func (s *suite) worksActAsTheirAccount(t *testing.T) {
	const class = `{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: e2e-low}, value: 1}`
	s.hub.apply(t, workManifest("rights", configMap("allowed", "v"), class))
	if reason := s.untilWork(t, "rights", "Applied", "False"); reason != "AppliedWorkFailed" {
		t.Errorf("reason: got %q", reason)
	}
	s.untilValue(t, "allowed", "v")
	message := s.untilManifest(t, "rights", 1, settle, "forbidden")
	for _, word := range []string{"Failed to apply manifest: ", "klusterlet-work-sa", "priorityclasses"} {
		if !strings.Contains(message, word) {
			t.Errorf("message %q does not name %q", message, word)
		}
	}
	s.spoke().apply(t, `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: e2e-classes, labels: {"open-cluster-management.io/aggregate-to-work": "true"}}, `+
		`rules: [{apiGroups: [scheduling.k8s.io], resources: [priorityclasses], verbs: ["*"]}]}`)
	start := time.Now()
	s.untilWork(t, "rights", "Applied", "True")
	t.Logf("applied %s after the right was given", time.Since(start).Round(time.Millisecond))
	s.hub.kubectl(t, "delete", "work", "rights", "-n", "spoke1", "--timeout=90s")
	s.untilGone(t, "allowed")
	s.spoke().kubectl(t, "delete", "clusterrole", "e2e-classes")
}

// largeManifests: what the hub's API server cannot store it refuses, what the
// spoke's cannot is on the work.
func (s *suite) largeManifests(t *testing.T) {
	big := workManifest("big", configMap("big", strings.Repeat("x", 2<<20)))
	for _, args := range [][]string{{"create", "-f", "-"}, {"apply", "-f", "-"}, {"apply", "--server-side", "-f", "-"}} {
		refused(t, "2 MiB do not fit the hub's own API server", s.hub.ctl, big, args, "large")
		refused(t, "what was refused is not there", s.hub.ctl, "", []string{"get", "work", "big", "-n", "spoke1"}, "NotFound", "big")
	}
	large := workManifest("large", configMap("large", strings.Repeat("x", 1100<<10)), configMap("small", "v"))
	if _, err := s.hub.ctl.RunInput(t.Context(), strings.NewReader(large), "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	s.untilManifest(t, "large", 0, settle, `"large" is invalid`)
	s.untilValue(t, "small", "v")
	if _, err := s.value(t.Context(), "large"); err == nil {
		t.Error("an object is there that cannot be")
	}
	s.hub.kubectl(t, "delete", "work", "large", "-n", "spoke1", "--timeout=90s")
	s.untilGone(t, "small")
}
