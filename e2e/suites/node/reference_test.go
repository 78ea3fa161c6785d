// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/e2e/testbed"
)

// references are what the pod of referencesFollow refers to, but what it names as
// optional.
const references = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: pods}
data: {k: one, colour: green}
---
apiVersion: v1
kind: Secret
metadata: {name: keys, namespace: pods}
stringData: {k: hidden}
---
apiVersion: v1
kind: Secret
metadata: {name: pull, namespace: pods}
type: kubernetes.io/dockerconfigjson
stringData: {.dockerconfigjson: '{"auths":{"registry.example.com":{"auth":"YTpi"}}}'}
---
`

const referenceFields = `imagePullSecrets: [{name: pull}, {name: nowhere}], volumes: [
  {name: settings, configMap: {name: settings}}, {name: keys, secret: {secretName: keys}},
  {name: maybe, configMap: {name: nowhere, optional: true}},
  {name: self, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}},
  {name: mixed, projected: {sources: [{configMap: {name: settings}}, {secret: {name: keys, items: [{key: k, path: secret}]}}]}}], `

const referenceMounts = `volumeMounts: [{name: settings, mountPath: /settings}, {name: keys, mountPath: /keys},
  {name: maybe, mountPath: /maybe}, {name: self, mountPath: /self}, {name: mixed, mountPath: /mixed}],
  envFrom: [{configMapRef: {name: settings, optional: true}, prefix: S_}, {secretRef: {name: nowhere, optional: true}}],
  resources: {limits: {memory: 64Mi}},
  env: [{name: FROM_CONFIG, valueFrom: {configMapKeyRef: {name: settings, key: k}}}, {name: FROM_SECRET, valueFrom: {secretKeyRef: {name: keys, key: k}}},
  {name: MAYBE, valueFrom: {configMapKeyRef: {name: settings, key: nokey, optional: true}}},
  {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: SPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}},
  {name: ADDRESS, valueFrom: {fieldRef: {fieldPath: status.podIP}}}, {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory}}}], `

// referencesFollow reads in the pod what it refers to, changes it on the hub, and
// expects that the copies go with the last pod that needs them.
func (s *tests) referencesFollow(t *testing.T) {
	s.Hub.Apply(t, references+testbed.Pod("refers", referenceFields, testbed.Container("main", testbed.Forever, referenceMounts)))
	refers := testbed.UntilPod(t, s.Hub, "refers", "ready", testbed.Ready)
	in := func(script string) string {
		return s.Hub.InPods(t, "exec", "refers", "--", "sh", "-c", script)
	}
	for script, want := range map[string]string{
		"echo $FROM_CONFIG $FROM_SECRET $S_colour $MAYBE": "one hidden green",
		"echo $POD $SPACE $ADDRESS $MEMORY":               "refers pods " + refers.Status.PodIP + " 67108864",
		"cat /settings/k /keys/k /mixed/k /mixed/secret":  "onehiddenonehidden",
		"ls /maybe":        "",
		"cat /self/labels": `app="refers"`,
	} {
		if got := strings.TrimSpace(in(script)); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: got %q, want %q", script, got, want)
		}
	}
	s.Hub.InPods(t, "patch", "configmap", "settings", "--type=merge", "-p", `{"data":{"k":"two"}}`)
	start := time.Now()
	s.untilCopy(t, "settings", "two")
	t.Logf("a changed ConfigMap is in the spoke after %s", time.Since(start).Round(time.Millisecond))
	testbed.Until(t, "changed ConfigMap in the pod", testbed.Settle, func(context.Context) error {
		// A kubelet looks at its pod's volumes once a minute, or when the pod changes.
		s.Hub.InPods(t, "annotate", "pod", "refers", "--overwrite", fmt.Sprintf("looked=%d", time.Now().UnixNano()))
		if got := in("sleep 0.5; cat /settings/k"); got != "two" {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
	s.Hub.InPods(t, "delete", "pod", "refers", "--timeout=300s")
	for _, kind := range []string{"configmap/settings", "secret/keys", "secret/pull"} {
		s.untilNoCopy(t, kind)
	}
}

func (s *tests) untilCopy(t *testing.T, name, want string) {
	t.Helper()
	testbed.Until(t, "copy of ConfigMap "+name, testbed.Settle, func(ctx context.Context) error {
		got, err := s.Spoke().Kube.CoreV1().ConfigMaps(testbed.PodsNamespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got.Data["k"] != want {
			return fmt.Errorf("it has %v", got.Data)
		}
		return nil
	})
}

func (s *tests) untilNoCopy(t *testing.T, object string) {
	t.Helper()
	testbed.Until(t, "absence of the copy of "+object, testbed.Settle, func(ctx context.Context) error {
		out, err := s.Spoke().Command.Run(ctx, "get", object, "-n", testbed.PodsNamespace, "--ignore-not-found", "-o", "name")
		if err == nil && out != "" {
			err = errors.New("it is there")
		}
		return err
	})
}

// missingReferenceHeals makes a pod before the ConfigMap that it needs.
func (s *tests) missingReferenceHeals(t *testing.T) {
	s.Hub.Apply(t, testbed.Pod("early", "", testbed.Container("main", testbed.Forever, "envFrom: [{configMapRef: {name: late}}], ")))
	testbed.UntilPod(t, s.Hub, "early", "says what is missing", func(pod *corev1.Pod) error {
		for _, c := range pod.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && w.Reason == "CreateContainerConfigError" && strings.Contains(w.Message, `"late" not found`) {
				return nil
			}
		}
		return fmt.Errorf("containers: %+v", pod.Status.ContainerStatuses)
	})
	if _, err := s.Spoke().Kube.CoreV1().ConfigMaps(testbed.PodsNamespace).Get(t.Context(), "late", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the spoke's copy of what is not there: %v", err)
	}
	s.Hub.InPods(t, "create", "configmap", "late", "--from-literal=k=v")
	testbed.UntilPod(t, s.Hub, "early", "ready", testbed.Ready)
	s.Hub.InPods(t, "delete", "pod", "early", "--timeout=300s")
	s.Hub.InPods(t, "delete", "configmap", "late")
}
