// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const tailUser = "hub:system:serviceaccount:spokelet-workers:spokelet-workers-api"

func withTail(p *Placement) { p.Options.TailUser = tailUser }

func TestTailUserMayReadLogsAndPost(t *testing.T) {
	w := mustWork(t, placement(withTail))
	want := map[string]string{
		"Role": `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  labels: {workers.spokelet.io/account: "1234", workers.spokelet.io/bundle: bundle-1234}
  name: workers-tail
  namespace: workers-1234
rules:
- {apiGroups: [""], resources: [pods], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [pods/log], verbs: [get]}
- {apiGroups: [""], resources: [pods/proxy], verbs: [create]}
`,
		"RoleBinding": `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  labels: {workers.spokelet.io/account: "1234", workers.spokelet.io/bundle: bundle-1234}
  name: workers-tail
  namespace: workers-1234
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: workers-tail}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "` + tailUser + `"}]
`,
	}
	for kind, text := range want {
		var obj map[string]any
		if err := yaml.Unmarshal([]byte(text), &obj); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(obj, object(t, w, kind).Object); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
}

func TestNoTailUserMeansNoRole(t *testing.T) {
	w := mustWork(t, placement())
	if got := append(names(t, w, "Role"), names(t, w, "RoleBinding")...); len(got) > 0 {
		t.Errorf("there are %v", got)
	}
}

// A bundle that was built by an older operator serves its scripts, and has no tail worker.
func TestProbesDoNotUseTailPort(t *testing.T) {
	container := containerOf(t, mustWork(t, placement()))
	ports := container["ports"].([]any)
	first, last := ports[0].(map[string]any)["name"], ports[len(ports)-1]
	for _, probe := range []string{"startupProbe", "readinessProbe", "livenessProbe"} {
		port, _, err := unstructured.NestedString(container, probe, "tcpSocket", "port")
		if err != nil || port != first || port == tailPortName {
			t.Errorf("%s asks port %s, want %s: %v", probe, port, first, err)
		}
	}
	want := map[string]any{"name": "w-tail", "containerPort": float64(8079), "protocol": "TCP"}
	if diff := cmp.Diff(any(want), last); diff != "" {
		t.Errorf("last port (-want +got):\n%s", diff)
	}
}

func TestTailPortIsAllowedButHasNoService(t *testing.T) {
	w := mustWork(t, placement(withTail))
	policy := object(t, w, "NetworkPolicy")
	ingress, _, err := unstructured.NestedSlice(policy.Object, "spec", "ingress")
	if err != nil || len(ingress) != 1 {
		t.Fatalf("ingress is %v: %v", ingress, err)
	}
	var ports []string
	for _, port := range ingress[0].(map[string]any)["ports"].([]any) {
		ports = append(ports, port.(map[string]any)["port"].(string))
	}
	if got := strings.Join(ports, " "); !strings.HasSuffix(got, " "+tailPortName) || len(ports) != 4 {
		t.Errorf("ports are %s", got)
	}
	for _, obj := range objects(t, w) {
		if raw, err := obj.MarshalJSON(); err != nil || obj.GetKind() == "Service" && strings.Contains(string(raw), tailPortName) {
			t.Errorf("Service %s leads to the tail worker: %v", obj.GetName(), err)
		}
	}
}
