// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/podrefs"
)

// TestHubTokenIsAtTheDefaultPath has a kubelet mount what was written.
func TestHubTokenIsAtTheDefaultPath(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	nodes, err := c.kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) == 0 {
		t.Skip("needs a node, and the cluster has none")
	}
	h := newHub(c)
	h.complete()
	h.start(hubTokens, func(cfg *Config) { cfg.Prefix, cfg.APIHost, cfg.APIPort = "hub-", "hub.example.com", "6443" })
	c.namespace = "hub-" + c.namespace // where the pods are
	web := h.pod("web", asking, func(p *wire.Pod) {
		p.Pod.Namespace = strings.TrimPrefix(c.namespace, "hub-")
		p.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(4242))}
		p.Pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		main := &p.Pod.Spec.Containers[0]
		main.Resources, main.ImagePullPolicy = corev1.ResourceRequirements{}, corev1.PullNever
		main.SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(1000))}
		main.Command = []string{"sh", "-c", `cd ` + podrefs.TokenPath + ` && { cat token; echo; cat ca.crt; echo; cat namespace; echo;
			stat -Lc '%a %g' token; echo $KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT; } > /dev/termination-log 2>&1`}
	})
	hubsNamespace := web.Pod.Namespace
	h.object(wire.PodObjectKey{Kind: wire.PodObjectConfigMap, Namespace: hubsNamespace, Name: podrefs.RootCA}, wire.PodObject{Text: map[string]string{"ca.crt": "the hub's"}})
	h.issue(web, "first")
	h.want(web)
	var ended *corev1.ContainerStateTerminated
	c.eventually("the container has ended", func() bool {
		pod := c.pod("web")
		if pod != nil && len(pod.Status.ContainerStatuses) > 0 {
			ended = pod.Status.ContainerStatuses[0].State.Terminated
		}
		return ended != nil
	})
	want := "first\nthe hub's\n" + hubsNamespace + "\n640 4242\nhub.example.com:6443\n"
	if ended.Message != want || ended.ExitCode != 0 {
		t.Errorf("the container saw %q, code %d, want %q", ended.Message, ended.ExitCode, want)
	}
}
