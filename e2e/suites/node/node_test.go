// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/spokelet/spokelet/e2e/testbed"
)

func (s *tests) nodeIsLive(t *testing.T) {
	spoke := s.Spoke()
	nodes, err := spoke.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := resource.Quantity{}
	for _, node := range nodes.Items {
		want.Add(*node.Status.Capacity.Cpu())
	}
	node, err := s.Hub.Kube.CoreV1().Nodes().Get(t.Context(), spoke.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := node.Status.Capacity.Cpu(); got.Cmp(want) != 0 {
		t.Errorf("cpu: the node has %s, the spoke's nodes %s", got, &want)
	}
	if got := node.Status.NodeInfo.KubeletVersion; got != nodes.Items[0].Status.NodeInfo.KubeletVersion {
		t.Errorf("version: got %q", got)
	}
	if !strings.HasPrefix(node.Spec.ProviderID, "spokelet://") {
		t.Errorf("provider id: got %q", node.Spec.ProviderID)
	}
	for _, name := range []string{corev1.LabelOSStable, corev1.LabelArchStable} {
		if got, want := node.Labels[name], nodes.Items[0].Labels[name]; got != want {
			t.Errorf("label %s: the node has %q, the spoke's nodes %q", name, got, want)
		}
	}
	s.capacityFollows(t, nodes.Items[0].Name)
}

// capacityFollows gives the spoke's node an extended resource and expects it on
// the hub, on the event.
func (s *tests) capacityFollows(t *testing.T, name string) {
	t.Helper()
	const kind = "example.com/widgets"
	patch := func(value string) {
		body := fmt.Sprintf(`[{"op":"add","path":"/status/capacity/example.com~1widgets","value":%q}]`, value)
		s.Spoke().Kubectl(t, "patch", "node", name, "--subresource=status", "--type=json", "-p", body)
	}
	patch("7")
	start := time.Now()
	testbed.Until(t, "extended resource on the virtual node", testbed.Settle, func(ctx context.Context) error {
		node, err := s.Hub.Kube.CoreV1().Nodes().Get(ctx, s.Spoke().Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := node.Status.Capacity[kind]; got.Value() != 7 {
			return fmt.Errorf("is %s", got.String())
		}
		return nil
	})
	t.Logf("capacity of the spoke on the hub after %s", time.Since(start).Round(time.Millisecond))
}

func (s *tests) kubeletEndpoint(t *testing.T) {
	name := s.Spoke().Name
	if out := s.Hub.Kubectl(t, "get", "--raw", "/api/v1/nodes/"+name+"/proxy/healthz"); out != "ok" {
		t.Errorf("healthz: got %q", out)
	}
	testbed.Until(t, "figures of the spoke's kubelets", testbed.Settle, func(ctx context.Context) error {
		out, err := s.Hub.Command.Run(ctx, "get", "--raw", "/api/v1/nodes/"+name+"/proxy/metrics/resource")
		if err != nil {
			return err
		}
		if !strings.Contains(out, "node_cpu_usage_seconds_total ") || !strings.Contains(out, "node_memory_working_set_bytes ") {
			return fmt.Errorf("no node figures in %.400q", out)
		}
		return nil
	})
	var stats struct {
		Node struct {
			NodeName string `json:"nodeName"`
			Memory   struct {
				WorkingSetBytes uint64 `json:"workingSetBytes"`
			} `json:"memory"`
		} `json:"node"`
	}
	raw := s.Hub.Kubectl(t, "get", "--raw", "/api/v1/nodes/"+name+"/proxy/stats/summary")
	if err := json.Unmarshal([]byte(raw), &stats); err != nil || stats.Node.NodeName != name || stats.Node.Memory.WorkingSetBytes == 0 {
		t.Errorf("stats/summary: %v: %.400s", err, raw)
	}
	testbed.Refused(t, "who has no right on nodes/proxy gets nothing", s.Hub.As("mallory"), "",
		[]string{"get", "--raw", "/api/v1/nodes/" + name + "/proxy/healthz"}, "orbidden")
	s.kubeletRefusesStrangers(t)
}

// kubeletRefusesStrangers goes around the API server, straight to the port.
func (s *tests) kubeletRefusesStrangers(t *testing.T) {
	t.Helper()
	node, err := s.Hub.Kube.CoreV1().Nodes().Get(t.Context(), s.Spoke().Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(int(node.Status.DaemonEndpoints.KubeletEndpoint.Port))
	address := "https://" + net.JoinHostPort(node.Status.Addresses[0].Address, port) + "/stats/summary"
	for reason, header := range map[string]string{
		"nobody":         "",
		"a forged token": "Authorization: Bearer nonsense",
	} {
		out, err := s.Hub.Exec(t.Context(), "curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", "-H", header, address)
		if err != nil || string(out) != "401" {
			t.Errorf("%s: got %q, %v, want 401", reason, out, err)
		}
	}
}
