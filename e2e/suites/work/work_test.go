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

func (s *tests) workIsApplied(t *testing.T) {
	s.Hub.Apply(t, s.WorkManifest("basic", testbed.ConfigMap("one", "1"), testbed.ConfigMap("two", "2")))
	if reason := s.UntilWork(t, "basic", "Applied", "True"); reason != "AppliedWorkComplete" {
		t.Errorf("reason: got %q", reason)
	}
	s.UntilValue(t, "one", "1")
	s.UntilValue(t, "two", "2")
	cm, err := s.Spoke().Kube.CoreV1().ConfigMaps("default").Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range cm.ManagedFields {
		if entry.Manager != "work-agent" {
			t.Errorf("manager: got %q", entry.Manager)
		}
	}
	if len(cm.OwnerReferences) != 1 || cm.OwnerReferences[0].Kind != "AppliedWork" || cm.OwnerReferences[0].Name != "basic" {
		t.Errorf("owners: got %+v", cm.OwnerReferences)
	}
	s.Hub.Apply(t, s.WorkManifest("basic", testbed.ConfigMap("one", "updated")))
	s.UntilValue(t, "one", "updated")
	s.UntilGone(t, "two")
	s.UntilWork(t, "basic", "Applied", "True")
	// The record follows the object: it may not lead to a lost one.
	testbed.Until(t, "anchor that lists what is there", testbed.Settle, func(ctx context.Context) error {
		anchor, err := s.Spoke().Dyn.Resource(testbed.AppliedWorksResource).Get(ctx, "basic", metav1.GetOptions{})
		if err != nil {
			return err
		}
		status, _ := anchor.Object["status"].(map[string]any)
		if list, _ := status["appliedResources"].([]any); len(list) != 1 {
			return fmt.Errorf("it lists %v", list)
		}
		return nil
	})
}

func (s *tests) badManifest(t *testing.T) {
	s.Hub.Apply(t, s.WorkManifest("mixed",
		testbed.ConfigMap("good", "v"),
		`{apiVersion: example.com/v1, kind: Unicorn, metadata: {name: u}}`,
		`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: default}}`,
		`{apiVersion: v1, kind: Service, metadata: {name: broken, namespace: default}, spec: {ports: [{port: 99999}]}}`,
	))
	if reason := s.UntilWork(t, "mixed", "Applied", "False"); reason != "AppliedWorkFailed" {
		t.Errorf("reason: got %q", reason)
	}
	s.UntilValue(t, "good", "v")
	work, err := s.Hub.Dyn.Resource(testbed.WorksResource).Namespace("spoke1").Get(t.Context(), "mixed", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	status, _ := work.Object["status"].(map[string]any)
	list, _ := status["manifestConditions"].([]any)
	want := []string{"True", "False", "False", "False"}
	if len(list) != len(want) {
		t.Fatalf("got %d manifest conditions, want %d", len(list), len(want))
	}
	for i, item := range list {
		text := fmt.Sprint(item)
		if !strings.Contains(text, "status:"+want[i]) {
			t.Errorf("manifest %d: got %s", i, text)
		}
	}
	testbed.Refused(t, "a manifest without a kind cannot be stored", s.Hub.Command, s.WorkManifest("nokind", `{apiVersion: v1, metadata: {name: x}}`), []string{"apply", "-f", "-"}, "kind")
	s.Hub.Kubectl(t, "delete", "works.multicluster.x-k8s.io", "mixed", "-n", "spoke1", "--timeout=180s")
	s.UntilGone(t, "good")
}

func (s *tests) driftIsRepaired(t *testing.T) {
	s.Hub.Apply(t, s.WorkManifest("drift", testbed.ConfigMap("drifts", "wanted")))
	s.UntilWork(t, "drift", "Applied", "True")
	s.Spoke().Kubectl(t, "patch", "configmap", "drifts", "--type=merge", "-p", `{"data":{"k":"changed","theirs":"kept"}}`)
	t.Logf("changed field repaired within %s", s.UntilValue(t, "drifts", "wanted").Round(time.Millisecond))
	cm, err := s.Spoke().Kube.CoreV1().ConfigMaps("default").Get(t.Context(), "drifts", metav1.GetOptions{})
	if err != nil || cm.Data["theirs"] != "kept" {
		t.Errorf("what others add stays: %v, %v", cm.Data, err)
	}
	s.Spoke().Kubectl(t, "delete", "configmap", "drifts")
	t.Logf("deleted object back within %s", s.UntilValue(t, "drifts", "wanted").Round(time.Millisecond))
}
