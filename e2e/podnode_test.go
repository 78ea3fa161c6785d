// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeAnswers asks the virtual node what a kubelet is asked, through the API
// server.
func (s *suite) nodeAnswers(t *testing.T) {
	raw := func(path string) string {
		return s.hub.kubectl(t, "get", "--raw", "/api/v1/nodes/spoke1/proxy/"+path)
	}
	uid := getPod(t, s.hub, longLived).UID
	for _, path := range []string{"pods", "runningpods/"} {
		var list corev1.PodList
		if err := json.Unmarshal([]byte(raw(path)), &list); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if !slices.ContainsFunc(list.Items, func(pod corev1.Pod) bool { return pod.Name == longLived && pod.UID == uid }) {
			t.Errorf("%s: the pod is not among %d", path, len(list.Items))
		}
	}
	for path, wants := range map[string][]string{
		"metrics/resource": {`container_cpu_usage_seconds_total{container="main",namespace="pods",pod="verbs"`, `pod_memory_working_set_bytes{namespace="pods",pod="verbs"`},
		"stats/summary":    {`"name":"verbs"`, `"namespace":"pods"`},
		"healthz":          {"ok"},
		"configz":          {"{"},
	} {
		until(t, path+" of the node", settle, func(context.Context) error {
			// A container has figures once its kubelet has looked twice.
			out := strings.NewReplacer("\": \"", "\":\"").Replace(raw(path))
			for _, want := range wants {
				if !strings.Contains(out, want) {
					return fmt.Errorf("no %q in %d bytes", want, len(out))
				}
			}
			return nil
		})
	}
	refused(t, "logs of the spoke's machines are not served", s.hub.ctl, "", []string{"get", "--raw", "/api/v1/nodes/spoke1/proxy/logs/"}, "logs")
	refused(t, "no such path", s.hub.ctl, "", []string{"get", "--raw", "/api/v1/nodes/spoke1/proxy/nonsense"}, "not find")
}

// nodeIsDrained drains the node of the pods of one Deployment, and lets them come
// back.
func (s *suite) nodeIsDrained(t *testing.T) {
	s.hub.apply(t, deployment("drained", 2, forever))
	s.hub.inPods(t, "rollout", "status", "deployment/drained", "--timeout=60s")
	before, err := s.spoke().kube.CoreV1().Pods(podsNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=drained"})
	if err != nil || len(before.Items) != 2 {
		t.Fatalf("the spoke has %d pods, %v", len(before.Items), err)
	}
	s.hub.kubectl(t, "drain", "spoke1", "--pod-selector=app=drained", "--timeout=60s")
	for i := range before.Items {
		untilNoPod(t, s.spoke(), before.Items[i].Name)
	}
	after, err := s.hub.kube.CoreV1().Pods(podsNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=drained"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range after.Items {
		if after.Items[i].Spec.NodeName != "" {
			t.Errorf("pod %s is on the cordoned node", after.Items[i].Name)
		}
	}
	s.hub.kubectl(t, "uncordon", "spoke1")
	s.hub.inPods(t, "rollout", "status", "deployment/drained", "--timeout=60s")
	s.hub.inPods(t, "delete", "deployment", "drained", "--timeout=30s")
	s.untilNone(t, "app=drained")
}
