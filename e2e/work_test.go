// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func workManifest(name string, manifests ...string) string {
	return fmt.Sprintf("apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: Work\nmetadata: {name: %s, namespace: spoke1}\nspec: {workload: {manifests: [%s]}}\n",
		name, strings.Join(manifests, ", "))
}

func configMap(name, value string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: default}, data: {k: %q}}`, name, value)
}

func configMapWork(work, name string) string { return workManifest(work, configMap(name, "v")) }

// untilWork waits for a condition of a Work in the namespace of spoke1, at its
// present generation, and returns the reason.
func (s *suite) untilWork(t *testing.T, name, kind, want string) string {
	t.Helper()
	var reason string
	until(t, fmt.Sprintf("work %s %s=%s", name, kind, want), settle, func(ctx context.Context) error {
		work, err := s.hub.dyn.Resource(worksResource).Namespace("spoke1").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status, why, message := condition(work, kind)
		if status != want || observed(work.Object, kind) != work.GetGeneration() {
			return fmt.Errorf("is %q %s: %s", status, why, message)
		}
		reason = why
		return nil
	})
	return reason
}

func observed(obj map[string]any, kind string) int64 {
	status, _ := obj["status"].(map[string]any)
	list, _ := status["conditions"].([]any)
	for _, item := range list {
		if c, ok := item.(map[string]any); ok && c["type"] == kind {
			generation, _ := c["observedGeneration"].(int64)
			return generation
		}
	}
	return 0
}

// value reads the key k of a ConfigMap of the spoke's default namespace.
func (s *suite) value(ctx context.Context, name string) (string, error) {
	cm, err := s.spoke().kube.CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return cm.Data["k"], nil
}

func (s *suite) untilValue(t *testing.T, name, want string) time.Duration {
	t.Helper()
	start := time.Now()
	until(t, fmt.Sprintf("configmap %s with %q", name, want), settle, func(ctx context.Context) error {
		got, err := s.value(ctx, name)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("is %q", got)
		}
		return nil
	})
	return time.Since(start)
}

func (s *suite) untilGone(t *testing.T, name string) {
	t.Helper()
	until(t, "absence of configmap "+name, settle, func(ctx context.Context) error {
		_, err := s.value(ctx, name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return errors.New("it is there")
	})
}

func (s *suite) workIsApplied(t *testing.T) {
	s.hub.apply(t, workManifest("basic", configMap("one", "1"), configMap("two", "2")))
	if reason := s.untilWork(t, "basic", "Applied", "True"); reason != "AppliedWorkComplete" {
		t.Errorf("reason: got %q", reason)
	}
	s.untilValue(t, "one", "1")
	s.untilValue(t, "two", "2")
	cm, err := s.spoke().kube.CoreV1().ConfigMaps("default").Get(t.Context(), "one", metav1.GetOptions{})
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
	s.hub.apply(t, workManifest("basic", configMap("one", "updated")))
	s.untilValue(t, "one", "updated")
	s.untilGone(t, "two")
	s.untilWork(t, "basic", "Applied", "True")
	// The record follows the object: it may not lead to a lost one.
	until(t, "anchor that lists what is there", settle, func(ctx context.Context) error {
		anchor, err := s.spoke().dyn.Resource(appliedWorksResource).Get(ctx, "basic", metav1.GetOptions{})
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

func (s *suite) badManifest(t *testing.T) {
	s.hub.apply(t, workManifest("mixed",
		configMap("good", "v"),
		`{apiVersion: example.com/v1, kind: Unicorn, metadata: {name: u}}`,
		`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: default}}`,
		`{apiVersion: v1, kind: Service, metadata: {name: broken, namespace: default}, spec: {ports: [{port: 99999}]}}`,
	))
	if reason := s.untilWork(t, "mixed", "Applied", "False"); reason != "AppliedWorkFailed" {
		t.Errorf("reason: got %q", reason)
	}
	s.untilValue(t, "good", "v")
	work, err := s.hub.dyn.Resource(worksResource).Namespace("spoke1").Get(t.Context(), "mixed", metav1.GetOptions{})
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
	refused(t, "a manifest without a kind cannot be stored", s.hub.ctl, workManifest("nokind", `{apiVersion: v1, metadata: {name: x}}`), []string{"apply", "-f", "-"}, "kind")
	s.hub.kubectl(t, "delete", "work", "mixed", "-n", "spoke1", "--timeout=90s")
	s.untilGone(t, "good")
}

func (s *suite) driftIsRepaired(t *testing.T) {
	s.hub.apply(t, workManifest("drift", configMap("drifts", "wanted")))
	s.untilWork(t, "drift", "Applied", "True")
	s.spoke().kubectl(t, "patch", "configmap", "drifts", "--type=merge", "-p", `{"data":{"k":"changed","theirs":"kept"}}`)
	t.Logf("changed field repaired within %s", s.untilValue(t, "drifts", "wanted").Round(time.Millisecond))
	cm, err := s.spoke().kube.CoreV1().ConfigMaps("default").Get(t.Context(), "drifts", metav1.GetOptions{})
	if err != nil || cm.Data["theirs"] != "kept" {
		t.Errorf("what others add stays: %v, %v", cm.Data, err)
	}
	s.spoke().kubectl(t, "delete", "configmap", "drifts")
	t.Logf("deleted object back within %s", s.untilValue(t, "drifts", "wanted").Round(time.Millisecond))
}

func (s *suite) workIsDeleted(t *testing.T) {
	for _, name := range []string{"basic", "drift"} {
		s.hub.kubectl(t, "delete", "work", name, "-n", "spoke1", "--timeout=90s")
	}
	// The objects go before the Work does, so nothing is waited for here.
	for _, name := range []string{"one", "drifts"} {
		if _, err := s.value(t.Context(), name); !apierrors.IsNotFound(err) {
			t.Errorf("%s: got %v, want it gone", name, err)
		}
	}
	anchors, err := s.spoke().dyn.Resource(appliedWorksResource).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, anchor := range anchors.Items {
		if name := anchor.GetName(); name == "basic" || name == "drift" {
			t.Errorf("anchor %s stayed", name)
		}
	}
}
