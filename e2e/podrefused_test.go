// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
func (s *suite) podsRefused(t *testing.T) {
	s.spoke().apply(t, spokeNamespaces)
	for _, name := range []string{"foreign", "limited", "strict"} {
		s.makeNamespace(t, name)
	}
	// A quota holds once a controller has counted.
	s.spoke().kubectl(t, "wait", "--for=jsonpath={.status.hard.pods}=0", "resourcequota/nothing", "-n", "limited", "--timeout=90s")
	// It is the spoke's own.
	s.spoke().apply(t, strings.Replace(pod("clash", "", container("main", forever, "")), onSpoke, "", 1))
	theirs := untilPod(t, s.spoke(), "clash", "ready", ready)
	plain := container("main", forever, "")
	tests := map[string]func(*testing.T){
		"host network": s.says("hostnet", podsNamespace, "hostNetwork: true, ", "HostAccess", "host namespaces"),
		"host path":    s.says("hostpath", podsNamespace, "volumes: [{name: root, hostPath: {path: /}}], ", "HostAccess", "hostPath"),
		"privileged": func(t *testing.T) {
			s.saysOf(t, podIn(podsNamespace, "privileged", onSpoke, container("main", forever, "securityContext: {privileged: true}, ")), podsNamespace, "privileged", "HostAccess", "privileged")
		},
		"a volume that does not travel": s.says("nfs", podsNamespace, "volumes: [{name: far, nfs: {server: 192.0.2.1, path: /}}], ", "VolumeNotSupported", "far (nfs)"),
		"a claim that is not there":     s.says("claims", podsNamespace, "volumes: [{name: data, persistentVolumeClaim: {claimName: nobodys}}], ", "ClaimNotAllowed", `"nobodys"`),
		"kube-system":                   s.says("intruder", "kube-system", "", "", "kube-system"),
		"a namespace of the spoke's":    s.says("unwanted", "foreign", "", "", "spokelet.io/pods"),
		"a Secret that does not travel": s.says("withheld", "foreign", "volumes: [{name: keys, secret: {secretName: keys}}], ", "ObjectNotAllowed", "pods.namespaces"),
		"a quota that is used up": func(t *testing.T) {
			s.says("toomany", "limited", "", "", "exceeded quota")(t)
			s.spoke().kubectl(t, "delete", "resourcequota", "nothing", "-n", "limited")
			untilPodIn(t, s.hub, "limited", "toomany", "ready", ready)
		},
		"admission": s.says("loose", "strict", "", "", "violates PodSecurity"),
		"a name that is taken": func(t *testing.T) {
			s.saysOf(t, pod("clash", "", plain), podsNamespace, "clash", "NameTaken", "clash")
			if now := getPod(t, s.spoke(), "clash"); now.UID != theirs.UID || now.DeletionTimestamp != nil {
				t.Errorf("the spoke's own pod: was %s, is %s, deleted %v", theirs.UID, now.UID, now.DeletionTimestamp)
			}
			s.spoke().inPods(t, "delete", "pod", "clash", "--timeout=90s")
			untilPod(t, s.hub, "clash", "ready", ready)
		},
	}
	for _, c := range s.clients() {
		tests["the machine of a node, "+c.name] = func(t *testing.T) { s.machineIsNotDebugged(t, c) }
	}
	parallel(t, tests)
	s.hub.kubectl(t, "delete", "namespace", "foreign", "limited", "strict", "--wait=false")
	s.hub.kubectl(t, "delete", "pod", "-n", "kube-system", "intruder", "--timeout=90s")
	s.hub.inPods(t, "delete", "pod", "-l", "app in (hostnet, hostpath, privileged, nfs, claims, clash)", "--timeout=90s")
	s.hub.kubectl(t, "wait", "--for=delete", "namespace/foreign", "namespace/limited", "namespace/strict", "--timeout=90s")
	left, err := s.spoke().kube.CoreV1().Pods("limited").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("pods in the spoke after their namespace went on the hub: %d, %v", len(left.Items), err)
	}
	s.spoke().kubectl(t, "delete", "namespace", "foreign", "limited", "strict", "--wait=false")
}

// says is a test of a pod that waits with a reason (any, if it is empty) and a
// message that has a part.
func (s *suite) says(name, namespace, fields, reason, part string) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		s.saysOf(t, podIn(namespace, name, onSpoke+fields, container("main", forever, "")), namespace, name, reason, part)
	}
}

func (s *suite) saysOf(t *testing.T, manifest, namespace, name, reason, part string) {
	t.Helper()
	s.hub.apply(t, manifest)
	pod := untilPodIn(t, s.hub, namespace, name, "says why", func(pod *corev1.Pod) error {
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
