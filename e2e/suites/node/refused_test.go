// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/e2e/testbed"
)

// spokeNamespaces are there before a pod of the hub comes to them.
const spokeNamespaces = `
apiVersion: v1
kind: Namespace
metadata: {name: foreign}
---
apiVersion: v1
kind: Namespace
metadata: {name: limited, labels: {spokelet.io/pods: allowed}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: nothing, namespace: limited}
spec: {hard: {pods: 0}}
---
apiVersion: v1
kind: Namespace
metadata: {name: strict, labels: {spokelet.io/pods: allowed, pod-security.kubernetes.io/enforce: restricted}}
`

// podsRefused makes pods that cannot run in the spoke: each says why, and those
// that can heal do.
func (s *tests) podsRefused(t *testing.T) {
	s.Spoke().Apply(t, spokeNamespaces)
	for _, name := range []string{"foreign", "limited", "strict"} {
		s.MakeNamespace(t, name)
	}
	// A quota holds once a controller has counted.
	s.Spoke().Kubectl(t, "wait", "--for=jsonpath={.status.hard.pods}=0", "resourcequota/nothing", "-n", "limited", "--timeout=90s")
	// It is the spoke's own.
	s.Spoke().Apply(t, strings.Replace(testbed.Pod("clash", "", testbed.Container("main", testbed.Forever, "")), testbed.OnSpoke, "", 1))
	theirs := testbed.UntilPod(t, s.Spoke(), "clash", "ready", testbed.Ready)
	plain := testbed.Container("main", testbed.Forever, "")
	tests := map[string]func(*testing.T){
		"host network": s.says("hostnet", testbed.PodsNamespace, "hostNetwork: true, ", "HostAccess", "host namespaces"),
		"host path":    s.says("hostpath", testbed.PodsNamespace, "volumes: [{name: root, hostPath: {path: /}}], ", "HostAccess", "hostPath"),
		"privileged": func(t *testing.T) {
			s.saysOf(t, testbed.PodIn(testbed.PodsNamespace, "privileged", testbed.OnSpoke, testbed.Container("main", testbed.Forever, "securityContext: {privileged: true}, ")), testbed.PodsNamespace, "privileged", "HostAccess", "privileged")
		},
		"a volume that does not travel": s.says("nfs", testbed.PodsNamespace, "volumes: [{name: far, nfs: {server: 192.0.2.1, path: /}}], ", "VolumeNotSupported", "far (nfs)"),
		"a claim that is not there":     s.says("claims", testbed.PodsNamespace, "volumes: [{name: data, persistentVolumeClaim: {claimName: nobodys}}], ", "ClaimNotAllowed", `"nobodys"`),
		"kube-system":                   s.says("intruder", "kube-system", "", "", "kube-system"),
		"a namespace of the spoke's":    s.says("unwanted", "foreign", "", "", "spokelet.io/pods"),
		"a Secret that does not travel": s.says("withheld", "foreign", "volumes: [{name: keys, secret: {secretName: keys}}], ", "ObjectNotAllowed", "pods.namespaces"),
		"a quota that is used up": func(t *testing.T) {
			s.says("toomany", "limited", "", "", "exceeded quota")(t)
			s.Spoke().Kubectl(t, "delete", "resourcequota", "nothing", "-n", "limited")
			testbed.UntilPodIn(t, s.Hub, "limited", "toomany", "ready", testbed.Ready)
		},
		"admission": s.says("loose", "strict", "", "", "violates PodSecurity"),
		"a name that is taken": func(t *testing.T) {
			s.saysOf(t, testbed.Pod("clash", "", plain), testbed.PodsNamespace, "clash", "NameTaken", "clash")
			if now := testbed.GetPod(t, s.Spoke(), "clash"); now.UID != theirs.UID || now.DeletionTimestamp != nil {
				t.Errorf("the spoke's own pod: was %s, is %s, deleted %v", theirs.UID, now.UID, now.DeletionTimestamp)
			}
			s.Spoke().InPods(t, "delete", "pod", "clash", "--timeout=90s")
			testbed.UntilPod(t, s.Hub, "clash", "ready", testbed.Ready)
		},
	}
	// Either has a Job count no pod that is being deleted before that has failed.
	for name, field := range map[string]string{
		"refused-replaced": "podReplacementPolicy: Failed",
		"refused-policy":   "podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [42]}}]}",
	} {
		tests["a Job with "+strings.Split(field, ":")[0]] = func(t *testing.T) { s.refusedPodOfAJobFails(t, name, field) }
	}
	for _, c := range s.Clients() {
		tests["the machine of a node, "+c.Name] = func(t *testing.T) { s.machineIsNotDebugged(t, c) }
	}
	testbed.Parallel(t, tests)
	s.Hub.Kubectl(t, "delete", "namespace", "foreign", "limited", "strict", "--wait=false")
	s.Hub.Kubectl(t, "delete", "pod", "-n", "kube-system", "intruder", "--timeout=90s")
	s.Hub.InPods(t, "delete", "pod", "-l", "app in (hostnet, hostpath, privileged, nfs, claims, clash)", "--timeout=90s")
	s.Hub.Kubectl(t, "wait", "--for=delete", "namespace/foreign", "namespace/limited", "namespace/strict", "--timeout=90s")
	left, err := s.Spoke().Kube.CoreV1().Pods("limited").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("pods in the spoke after their namespace went on the hub: %d, %v", len(left.Items), err)
	}
	s.Spoke().Kubectl(t, "delete", "namespace", "foreign", "limited", "strict", "--wait=false")
}

// madeNamespacesGo deletes two namespaces of the hub. In one of those that were made for
// them somebody keeps a ConfigMap.
func (s *tests) madeNamespacesGo(t *testing.T) {
	const kept, gone = "made-kept", "made-gone"
	for _, name := range []string{kept, gone} {
		s.MakeNamespace(t, name)
		s.Hub.Apply(t, testbed.PodIn(name, "passing", testbed.OnSpoke, testbed.Container("main", testbed.Forever, "")))
	}
	for _, name := range []string{kept, gone} {
		testbed.UntilPodIn(t, s.Hub, name, "passing", "ready", testbed.Ready)
	}
	s.Spoke().Kubectl(t, "create", "configmap", "theirs", "-n", kept)
	s.Hub.Kubectl(t, "delete", "namespace", kept, gone, "--timeout=90s")
	s.Spoke().Kubectl(t, "wait", "--for=delete", "namespace/"+gone, "--timeout=90s")
	s.Spoke().Kubectl(t, "wait", `--for=jsonpath={.metadata.annotations.spokelet\.io/kept-because}=holds configmaps/theirs`, "namespace/"+kept, "--timeout=90s")
	s.Spoke().Kubectl(t, "delete", "configmap", "theirs", "-n", kept)
	s.Spoke().Kubectl(t, "annotate", "namespace", kept, "spokelet.io/kept-because-")
	s.Spoke().Kubectl(t, "wait", "--for=delete", "namespace/"+kept, "--timeout=90s")
}

// refusedPodOfAJobFails deletes the only pod that a Job may have.
func (s *tests) refusedPodOfAJobFails(t *testing.T, name, field string) {
	s.Hub.Apply(t, fmt.Sprintf("apiVersion: batch/v1\nkind: Job\nmetadata: {name: %s, namespace: %s}\nspec: {backoffLimit: 0, %s, template: {spec: %s}}\n",
		name, testbed.PodsNamespace, field, testbed.PodSpec("hostNetwork: true, restartPolicy: Never, "+testbed.BySelector, testbed.Container("main", testbed.Forever, ""))))
	testbed.Until(t, "refused pod of Job "+name, testbed.Settle, func(ctx context.Context) error {
		pods, err := s.Hub.Kube.CoreV1().Pods(testbed.PodsNamespace).List(ctx, metav1.ListOptions{LabelSelector: "job-name=" + name})
		if err != nil {
			return err
		}
		if len(pods.Items) != 1 || pods.Items[0].Status.Reason != "HostAccess" {
			return fmt.Errorf("there are %d pods, or the one is not refused", len(pods.Items))
		}
		return nil
	})
	s.Hub.InPods(t, "delete", "pod", "-l", "job-name="+name, "--timeout=90s")
	s.Hub.InPods(t, "wait", "--for=condition=failed", "job/"+name, "--timeout=90s")
	s.Hub.InPods(t, "delete", "job", name, "--timeout=90s")
}

// says is a test of a pod that waits with a reason (any, if it is empty) and a
// message that has a part.
func (s *tests) says(name, namespace, fields, reason, part string) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		s.saysOf(t, testbed.PodIn(namespace, name, testbed.OnSpoke+fields, testbed.Container("main", testbed.Forever, "")), namespace, name, reason, part)
	}
}

func (s *tests) saysOf(t *testing.T, manifest, namespace, name, reason, part string) {
	t.Helper()
	s.Hub.Apply(t, manifest)
	pod := testbed.UntilPodIn(t, s.Hub, namespace, name, "says why", func(pod *corev1.Pod) error {
		if pod.Status.Phase != corev1.PodPending || pod.Status.Reason == "" || !strings.Contains(pod.Status.Message, part) {
			return fmt.Errorf("wanted %q", part)
		}
		return nil
	})
	if reason != "" && pod.Status.Reason != reason {
		t.Errorf("reason: got %q, want %q", pod.Status.Reason, reason)
	}
	t.Logf("%s: %s", pod.Status.Reason, pod.Status.Message)
}
