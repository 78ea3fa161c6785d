// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/wire"
)

func TestAnAgentThatGoesEndsThePodsAndNothingElse(t *testing.T) {
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	a := h.start()
	h.object(h.configMap("settings"), wire.PodObject{Text: map[string]string{"k": "1"}})
	h.want(h.pod("web", reading("settings")))
	c.appears("web", "uid-web")
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Data: map[string]string{"k": "theirs"}}
	if _, err := c.kube.CoreV1().ConfigMaps(c.namespace).Create(t.Context(), theirs, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a.stop()

	if err := Remove(t.Context(), c.cfg, "", c.namespace); err != nil {
		t.Fatal(err)
	}
	if pod := c.pod("web"); pod != nil && pod.DeletionTimestamp == nil {
		t.Error("the pod runs on")
	}
	if left := c.dataOf("settings"); left != nil {
		t.Errorf("the copy is left behind: %v", left)
	}
	if c.dataOf("theirs") == nil {
		t.Error("an object of the owner is gone")
	}
	if err := Remove(t.Context(), c.cfg, "", c.namespace); err != nil {
		t.Errorf("again: %v", err)
	}
}
