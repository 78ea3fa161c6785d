// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/e2e/testbed"
)

// What users of other systems reported, where it takes the controllers of a cluster.

// jobRunsOnce: a Job with a time to live is deleted by Kubernetes once it has ended; made
// anew it would run again, for ever.
func (s *tests) jobRunsOnce(t *testing.T) {
	s.Hub.Apply(t, manifestWork("job-once", "", `{apiVersion: batch/v1, kind: Job, metadata: {name: job-once, namespace: default}, spec: {backoffLimit: 0, ttlSecondsAfterFinished: 0,
      template: {spec: {restartPolicy: Never, containers: [{name: once, image: spokelet.io/test/busybox:latest, imagePullPolicy: Never, command: [/bin/busybox, echo, once]}]}}}}`))
	testbed.Until(t, "the work says that its Job has finished", testbed.Settle, func(ctx context.Context) error {
		work, err := s.Hub.Dyn.Resource(manifestWorksResource).Namespace("spoke1").Get(ctx, "job-once", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if reason := manifestReason(work, "Available"); reason != "ResourceFinished" {
			return fmt.Errorf("available: %q", reason)
		}
		return nil
	})
	s.Hub.Apply(t, manifestWork("job-canary", "", testbed.ConfigMap("job-canary", "v")))
	s.UntilValue(t, "job-canary", "v")
	if job, err := s.Spoke().Kube.BatchV1().Jobs("default").Get(t.Context(), "job-once", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Job runs again: %+v, %v", job, err)
	}
	s.endWork(t, "job-once")
	s.endWork(t, "job-canary")
}

// manifestReason is that of a condition of a work's first manifest.
func manifestReason(work *unstructured.Unstructured, kind string) string {
	manifests, _, _ := unstructured.NestedSlice(work.Object, "status", "resourceStatus", "manifests")
	if len(manifests) == 0 {
		return ""
	}
	manifest, _ := manifests[0].(map[string]any)
	conditions, _, _ := unstructured.NestedSlice(manifest, "conditions")
	for _, item := range conditions {
		if c, ok := item.(map[string]any); ok && c["type"] == kind {
			return fmt.Sprint(c["reason"])
		}
	}
	return ""
}

// exportedManifest: a garbage collector takes an object whose owners are gone, and a
// controller writes its annotations back.
func (s *tests) exportedManifest(t *testing.T) {
	s.Hub.Apply(t, manifestWork("exported", "", `{apiVersion: apps/v1, kind: Deployment, metadata: {name: exported, namespace: default, uid: 5d2f4c0e-0000-4000-8000-1234567890ab,
      resourceVersion: "918273", generation: 4, annotations: {deployment.kubernetes.io/revision: "7"},
      ownerReferences: [{apiVersion: v1, kind: Secret, name: gone, uid: 11111111-2222-4333-8444-555555555555, controller: true, blockOwnerDeletion: true}]},
      spec: {replicas: 0, selector: {matchLabels: {app: exported}}, template: {metadata: {creationTimestamp: null, labels: {app: exported}},
      spec: {containers: [{name: c, image: spokelet.io/test/busybox:latest}]}}}, status: {replicas: 1}}`))
	s.untilSaid(t, "exported", "metadata.ownerReferences", "metadata.annotations[deployment.kubernetes.io/revision]")
	deployments := s.Spoke().Kube.AppsV1().Deployments("default")
	var uid string
	testbed.Until(t, "the controller has written its annotation", testbed.Settle, func(ctx context.Context) error {
		d, err := deployments.Get(ctx, "exported", metav1.GetOptions{})
		if err != nil {
			return err
		}
		uid = string(d.UID)
		if got := d.Annotations["deployment.kubernetes.io/revision"]; got != "1" {
			return fmt.Errorf("revision %q", got)
		}
		return nil
	})
	s.Hub.Apply(t, manifestWork("exported-canary", "", testbed.ConfigMap("exported-canary", "v")))
	s.UntilValue(t, "exported-canary", "v")
	d, err := deployments.Get(t.Context(), "exported", metav1.GetOptions{})
	if err != nil || string(d.UID) != uid || d.Annotations["deployment.kubernetes.io/revision"] != "1" || len(d.OwnerReferences) != 1 {
		t.Errorf("it was %s, and is %+v, %v", uid, d.ObjectMeta, err)
	}
	s.endWork(t, "exported")
	s.endWork(t, "exported-canary")
}
