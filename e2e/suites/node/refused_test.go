// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/e2e/testbed"
)

// podsRefused makes pods that cannot run in the spoke: each says why.
func (s *tests) podsRefused(t *testing.T) {
	tests := map[string]func(*testing.T){
		"a volume that does not travel": s.volumeStaysBehind,
		"the machine of a node":         s.machineIsNotDebugged,
	}
	// Either has a Job count no pod that is being deleted before that has failed.
	for name, field := range map[string]string{
		"refused-replaced": "podReplacementPolicy: Failed",
		"refused-policy":   "podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [42]}}]}",
	} {
		tests["a Job with "+strings.Split(field, ":")[0]] = func(t *testing.T) { s.refusedPodOfAJobFails(t, name, field) }
	}
	testbed.Parallel(t, tests)
}

// volumeStaysBehind expects what kubectl shows of a pod that is refused.
func (s *tests) volumeStaysBehind(t *testing.T) {
	s.Hub.Apply(t, testbed.Pod("nfs", "volumes: [{name: far, nfs: {server: 192.0.2.1, path: /}}], ", testbed.Container("main", testbed.Forever, "")))
	testbed.UntilPod(t, s.Hub, "nfs", "says why", func(pod *corev1.Pod) error {
		if pod.Status.Phase != corev1.PodPending || pod.Status.Reason != "VolumeNotSupported" || !strings.Contains(pod.Status.Message, "far (nfs)") {
			return errors.New("it does not name the volume")
		}
		return nil
	})
	s.Hub.InPods(t, "delete", "pod", "nfs", "--timeout=300s")
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
	s.Hub.InPods(t, "delete", "pod", "-l", "job-name="+name, "--timeout=300s")
	s.Hub.InPods(t, "wait", "--for=condition=failed", "job/"+name, "--timeout=300s")
	s.Hub.InPods(t, "delete", "job", name, "--timeout=300s")
}
