// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeAnswers asks the virtual node what a kubelet is asked, through the API
// server, and the kubelet of the spoke the same.
func (s *suite) nodeAnswers(t *testing.T) {
	tests := map[string]func(*testing.T){}
	for _, c := range s.clients() {
		tests["what both have, "+c.name] = func(t *testing.T) { s.kubeletsAgree(t, c) }
		tests["what one has not, "+c.name] = func(t *testing.T) { s.nodeRefuses(t, c) }
	}
	parallel(t, tests)
}

// nonsense is a path that no kubelet has.
const nonsense = "nonsense"

func (s *suite) kubeletsAgree(t *testing.T, c client) {
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
		until(t, path+" of the node as of the spoke's", settle, func(ctx context.Context) error {
			hub, err := c.kubelet(ctx, wayHub, path, common)
			if err != nil {
				return err
			}
			spoke, err := c.kubelet(ctx, waySpoke, path, common)
			if diff := cmp.Diff(spoke, hub); err == nil && diff != "" {
				err = fmt.Errorf("(-spoke +hub):\n%.2000s", diff)
			}
			return err
		})
	}
}

// kubelet asks the kubelet of a node for a path, and returns what is common to both
// ways, with the exit code.
func (c client) kubelet(ctx context.Context, way, path string, common func(string) (string, error)) (string, error) {
	got := ask(ctx, c.on(way), "", "get", "--raw", "/api/v1/nodes/"+c.nodeOn(way)+"/proxy/"+path)
	if wanted := path != nonsense; (got.Code == 0) != wanted {
		return "", fmt.Errorf("%s: exit code %d: %s%s", path, got.Code, got.Out, got.Err)
	}
	out, err := common(got.Out)
	return fmt.Sprintf("exit code %d\n%s\n%s", got.Code, out, got.Err), err
}

// nodeRefuses asks for what a virtual node does not have.
func (s *suite) nodeRefuses(t *testing.T, c client) {
	t.Helper()
	proxy := "/api/v1/nodes/" + c.node + "/proxy/"
	for path, word := range map[string]string{"logs/": "no log files", "logs/?query=kubelet&tailLines=3": "no log files"} {
		refused(t, "logs of the spoke's machines are not served", c.hub, "", []string{"get", "--raw", proxy + path}, word)
	}
	of := podsNamespace + "/" + longLived + "/main"
	for path, word := range map[string]string{"run/" + of + "?cmd=ls": "run is not served", "checkpoint/" + of: "cannot be checkpointed"} {
		refused(t, "what no kubectl verb needs is not served", c.hub, "{}", []string{"create", "--raw", proxy + path, "-f", "-"}, word)
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
		if list.Items[i].Namespace == podsNamespace {
			names = append(names, list.Items[i].Name)
		}
	}
	return sortedWith(names, longLived)
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
		if strings.Contains(name, `namespace="`+podsNamespace+`"`) || strings.HasPrefix(name, "node_") && !strings.Contains(name, "swap") {
			names = append(names, name)
		}
	}
	return sortedWith(names, fmt.Sprintf(`container_memory_working_set_bytes{container="main",namespace=%q,pod=%q}`, podsNamespace, longLived))
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
			if pod.PodRef.Namespace == podsNamespace {
				names = append(names, pod.PodRef.Name+" "+c.Name)
			}
		}
	}
	return sortedWith(names, longLived+" main")
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
func (s *suite) nodeIsDrained(t *testing.T) {
	s.hub.apply(t, deployment("drained", 2, forever))
	for _, c := range s.clients() {
		s.hub.inPods(t, "rollout", "status", "deployment/drained", "--timeout=90s")
		before := podsOf(t, s.spoke(), "drained")
		if len(before) != 2 {
			t.Fatalf("the spoke has %d pods", len(before))
		}
		said := ask(t.Context(), c.hub, "", "drain", c.node, "--pod-selector=app=drained", "--timeout=90s")
		if said.Code != 0 || !strings.Contains(said.Out, "node/spoke1 drained") {
			t.Fatalf("%s: drain answers %+v", c.name, said)
		}
		for _, pod := range before {
			untilNoPod(t, s.spoke(), pod.Name)
			if !strings.Contains(said.Out, "pod/"+pod.Name+" evicted") {
				t.Errorf("%s: pod %s was not evicted: %s", c.name, pod.Name, said.Out)
			}
		}
		for _, pod := range podsOf(t, s.hub, "drained") {
			if pod.Spec.NodeName != "" {
				t.Errorf("%s: pod %s is on the cordoned node", c.name, pod.Name)
			}
		}
		if said := ask(t.Context(), c.hub, "", "uncordon", c.node); said.Code != 0 || said.Out != "node/spoke1 uncordoned\n" {
			t.Errorf("%s: uncordon answers %+v", c.name, said)
		}
	}
	s.hub.inPods(t, "rollout", "status", "deployment/drained", "--timeout=90s")
	s.hub.inPods(t, "delete", "deployment", "drained", "--timeout=90s")
	s.untilNone(t, "app=drained")
}

func podsOf(t *testing.T, on *site, app string) []corev1.Pod {
	t.Helper()
	pods, err := on.kube.CoreV1().Pods(podsNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		t.Fatal(err)
	}
	return pods.Items
}
