// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/e2e/testbed"
)

func (s *tests) acceptanceIsLive(t *testing.T) {
	name := s.Spoke().Name
	s.Hub.Kubectl(t, "patch", "managedcluster", name, "--type=merge", "-p", `{"spec":{"hubAcceptsClient":false}}`)
	start := time.Now()
	testbed.Until(t, "session of a cluster that is not accepted", 30*time.Second, func(ctx context.Context) error {
		out, err := s.Hub.Command.Run(ctx, "get", "--raw", "/apis/live.spokelet.io/v1alpha1/clusters/"+name+"/proxy/version")
		if err == nil {
			return fmt.Errorf("still answers: %s", out)
		}
		return nil
	})
	t.Logf("cut %s after hubAcceptsClient=false", time.Since(start).Round(time.Millisecond))
	if _, err := s.Hub.Kube.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
		t.Errorf("the namespace of a cluster that is not accepted stays: %v", err)
	}
	testbed.Refused(t, "only who may accept may accept", s.Hub.As("mallory", "system:authenticated"), "",
		[]string{"patch", "managedcluster", name, "--type=merge", "-p", `{"spec":{"hubAcceptsClient":true}}`}, "orbidden")
	s.Hub.Kubectl(t, "patch", "managedcluster", name, "--type=merge", "-p", `{"spec":{"hubAcceptsClient":true}}`)
	s.UntilReady(t, name, corev1.ConditionTrue, testbed.Settle)
}
