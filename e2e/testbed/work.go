// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// WorksResource is that of the multicluster Work.
	WorksResource = schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Resource: "works"}
	// AppliedWorksResource is that of its anchors in the spoke.
	AppliedWorksResource = schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Resource: "appliedworks"}
)

// condition reads one condition of an object: status, reason and message.
func condition(obj *unstructured.Unstructured, kind string) (status, reason, message string) {
	list, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, item := range list {
		c, ok := item.(map[string]any)
		if ok && c["type"] == kind {
			return fmt.Sprint(c["status"]), fmt.Sprint(c["reason"]), fmt.Sprint(c["message"])
		}
	}
	return "", "", ""
}

// WorkManifest is a multicluster Work for the spoke.
func (s *Testbed) WorkManifest(name string, manifests ...string) string {
	return fmt.Sprintf("apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: Work\nmetadata: {name: %s, namespace: %s}\nspec: {workload: {manifests: [%s]}}\n",
		name, s.Spoke().Name, strings.Join(manifests, ", "))
}

// ConfigMap is one of the default namespace, with one key, k.
func ConfigMap(name, value string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: default}, data: {k: %q}}`, name, value)
}

// ConfigMapWork is a work of one ConfigMap.
func (s *Testbed) ConfigMapWork(work, name string) string {
	return s.WorkManifest(work, ConfigMap(name, "v"))
}

// UntilWork waits for a condition of a Work in the namespace of the spoke, at its
// present generation, and returns the reason.
func (s *Testbed) UntilWork(t *testing.T, name, kind, want string) string {
	t.Helper()
	var reason string
	Until(t, fmt.Sprintf("work %s %s=%s", name, kind, want), Settle, func(ctx context.Context) error {
		work, err := s.Hub.Dyn.Resource(WorksResource).Namespace(s.Spoke().Name).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status, why, message := condition(work, kind)
		if status != want || Observed(work.Object, kind) != work.GetGeneration() {
			return fmt.Errorf("is %q %s: %s", status, why, message)
		}
		reason = why
		return nil
	})
	return reason
}

// Observed is the generation that a condition is about, zero if there is no such
// condition.
func Observed(obj map[string]any, kind string) int64 {
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

// Value reads the key k of a ConfigMap of the spoke's default namespace.
func (s *Testbed) Value(ctx context.Context, name string) (string, error) {
	cm, err := s.Spoke().Kube.CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return cm.Data["k"], nil
}

// UntilValue waits until a ConfigMap of the spoke has a value, and returns how long it
// took.
func (s *Testbed) UntilValue(t *testing.T, name, want string) time.Duration {
	t.Helper()
	start := time.Now()
	Until(t, fmt.Sprintf("configmap %s with %q", name, want), Settle, func(ctx context.Context) error {
		got, err := s.Value(ctx, name)
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

// UntilGone waits until a ConfigMap of the spoke is gone.
func (s *Testbed) UntilGone(t *testing.T, name string) {
	t.Helper()
	Until(t, "absence of configmap "+name, Settle, func(ctx context.Context) error {
		_, err := s.Value(ctx, name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return errors.New("it is there")
	})
}
