// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/spokelet/spokelet/e2e/testbed"
	"github.com/spokelet/spokelet/hack/clusters"
)

// nodeAnswers asks the virtual node what a kubelet is asked, through the API
// server, and the kubelet of the spoke the same.
func (s *tests) nodeAnswers(t *testing.T) {
	testbed.Parallel(t, map[string]func(*testing.T){"what both have": s.kubeletsAgree, "what one has not": s.nodeRefuses})
}

// nonsense is a path that no kubelet has.
const nonsense = "nonsense"

func (s *tests) kubeletsAgree(t *testing.T) {
	c := s.webSocket()
	for path, common := range map[string]func(string) (string, error){
		"healthz":          whole,
		nonsense:           whole,
		"pods":             podNames,
		"runningpods/":     podNames,
		"metrics/resource": seriesNames,
		"stats/summary":    statsNames,
		"configz":          kubeletSettings,
	} {
		// A container has figures once its kubelet has looked twice.
		testbed.Until(t, path+" of the node as of the spoke's", testbed.Settle, func(ctx context.Context) error {
			hub, err := kubelet(ctx, c, testbed.WayHub, path, common)
			if err != nil {
				return err
			}
			spoke, err := kubelet(ctx, c, testbed.WaySpoke, path, common)
			if diff := cmp.Diff(spoke, hub); err == nil && diff != "" {
				err = fmt.Errorf("(-spoke +hub):\n%.2000s", diff)
			}
			return err
		})
	}
}

// kubelet asks the kubelet of a node for a path, and returns what is common to both
// ways, with the exit code.
func kubelet(ctx context.Context, c testbed.Client, way, path string, common func(string) (string, error)) (string, error) {
	got := testbed.Ask(ctx, c.On(way), "", "get", "--raw", "/api/v1/nodes/"+c.NodeOn(way)+"/proxy/"+path)
	if wanted := path != nonsense; (got.Code == 0) != wanted {
		return "", fmt.Errorf("%s: exit code %d: %s%s", path, got.Code, got.Out, got.Err)
	}
	out, err := common(got.Out)
	return fmt.Sprintf("exit code %d\n%s\n%s", got.Code, out, got.Err), err
}

// nodeRefuses asks for what a virtual node does not have.
func (s *tests) nodeRefuses(t *testing.T) {
	c := s.webSocket()
	proxy := "/api/v1/nodes/" + c.Node + "/proxy/"
	for path, word := range map[string]string{"logs/": "no log files", "logs/?query=kubelet&tailLines=3": "no log files"} {
		testbed.Refused(t, "logs of the spoke's machines are not served", c.Hub, "", []string{"get", "--raw", proxy + path}, word)
	}
	of := testbed.PodsNamespace + "/" + testbed.LongLived + "/main"
	checkpoint := "cannot be checkpointed"
	if s.Env.Set.Provider() == clusters.Kind {
		checkpoint = "Forbidden" // kubeadm gives the API server no right to ask a kubelet for it
	}
	for path, word := range map[string]string{"run/" + of + "?cmd=ls": "run is not served", "checkpoint/" + of: checkpoint} {
		testbed.Refused(t, "what no kubectl verb needs is not served", c.Hub, "{}", []string{"create", "--raw", proxy + path, "-f", "-"}, word)
	}
}

// whole is an answer that is the same as it is.
func whole(out string) (string, error) { return out, nil }

var errNoPod = errors.New("the long-lived pod is not there")

// podNames are those of the tests' pods in a list.
func podNames(out string) (string, error) {
	var list corev1.PodList
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return "", err
	}
	var names []string
	for i := range list.Items {
		if list.Items[i].Namespace == testbed.PodsNamespace {
			names = append(names, list.Items[i].Name)
		}
	}
	return sortedWith(names, testbed.LongLived)
}

// sortedWith is a text of the names, one of which has to be there.
func sortedWith(names []string, wanted string) (string, error) {
	if !slices.Contains(names, wanted) {
		return "", errNoPod
	}
	slices.Sort(names)
	return strings.Join(names, "\n"), nil
}

// seriesNames are the metrics of the tests' pods, without their values, and the
// names of the node's.
func seriesNames(out string) (string, error) {
	var names []string
	for line := range strings.Lines(out) {
		name, _, _ := strings.Cut(line, " ")
		// Swap is not said of a node that has none.
		if strings.Contains(name, `namespace="`+testbed.PodsNamespace+`"`) || strings.HasPrefix(name, "node_") && !strings.Contains(name, "swap") {
			names = append(names, name)
		}
	}
	return sortedWith(names, fmt.Sprintf(`container_memory_working_set_bytes{container="main",namespace=%q,pod=%q}`, testbed.PodsNamespace, testbed.LongLived))
}

// statsNames are the tests' pods and their containers in a summary.
func statsNames(out string) (string, error) {
	type named struct {
		Name string `json:"name"`
	}
	var stats struct {
		Pods []struct {
			PodRef struct {
				named

				Namespace string `json:"namespace"`
			} `json:"podRef"`
			Containers []named `json:"containers"`
		} `json:"pods"`
	}
	if err := json.Unmarshal([]byte(out), &stats); err != nil {
		return "", err
	}
	var names []string
	for _, pod := range stats.Pods {
		for _, c := range pod.Containers {
			if pod.PodRef.Namespace == testbed.PodsNamespace {
				names = append(names, pod.PodRef.Name+" "+c.Name)
			}
		}
	}
	return sortedWith(names, testbed.LongLived+" main")
}

// kubeletSettings are those of a configuration that are the same for every kubelet
// that asks the API server who may ask what.
func kubeletSettings(out string) (string, error) {
	type webhook struct {
		Enabled bool   `json:"enabled"`
		TTL     string `json:"cacheTTL"`
	}
	var config struct {
		Kubelet struct {
			metav1.TypeMeta

			EnableServer   bool                                 `json:"enableServer"`
			Authentication struct{ Webhook, Anonymous webhook } `json:"authentication"`
			Authorization  struct{ Mode string }                `json:"authorization"`
			Handlers       bool                                 `json:"enableDebuggingHandlers"`
		} `json:"kubeletconfig"`
	}
	err := json.Unmarshal([]byte(out), &config)
	return fmt.Sprintf("%+v", config), err
}

// nodeIsDrained drains the node of the pods of one Deployment, and lets them come
// back.
func (s *tests) nodeIsDrained(t *testing.T) {
	s.Hub.Apply(t, deployment("drained", 2, testbed.Forever))
	t.Cleanup(func() { _, _ = s.Hub.Command.Run(context.WithoutCancel(t.Context()), "uncordon", s.Spoke().Name) })
	c := s.webSocket()
	s.Hub.InPods(t, "rollout", "status", "deployment/drained", "--timeout=300s")
	before := podsOf(t, s.Spoke(), "drained")
	if len(before) != 2 {
		t.Fatalf("the spoke has %d pods", len(before))
	}
	said := testbed.Ask(t.Context(), c.Hub, "", "drain", c.Node, "--pod-selector=app=drained", "--timeout=150s")
	if said.Code != 0 || !strings.Contains(said.Out, "node/spoke1 drained") {
		t.Fatalf("%s: drain answers %+v", c.Name, said)
	}
	for _, pod := range before {
		testbed.UntilNoPod(t, s.Spoke(), pod.Name)
		if !strings.Contains(said.Out, "pod/"+pod.Name+" evicted") {
			t.Errorf("%s: pod %s was not evicted: %s", c.Name, pod.Name, said.Out)
		}
	}
	for _, pod := range podsOf(t, s.Hub, "drained") {
		if pod.Spec.NodeName != "" {
			t.Errorf("%s: pod %s is on the cordoned node", c.Name, pod.Name)
		}
	}
	if said := testbed.Ask(t.Context(), c.Hub, "", "uncordon", c.Node); said.Code != 0 || said.Out != "node/spoke1 uncordoned\n" {
		t.Errorf("%s: uncordon answers %+v", c.Name, said)
	}
	s.Hub.InPods(t, "rollout", "status", "deployment/drained", "--timeout=300s")
	s.Hub.InPods(t, "delete", "deployment", "drained", "--timeout=300s")
	s.untilNone(t, "app=drained")
}

func podsOf(t *testing.T, on *testbed.Site, app string) []corev1.Pod {
	t.Helper()
	pods, err := on.Kube.CoreV1().Pods(testbed.PodsNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		t.Fatal(err)
	}
	return pods.Items
}
