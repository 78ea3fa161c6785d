// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
)

func (s *tests) testDeleteScript(t *testing.T) {
	s.Hub.Kubectl(t, "delete", "workerdeployment", "-n", s.team, "parts")
	s.waitForBundle(t, 1, 2)
	for _, spoke := range s.Spokes {
		waitForGone(t, "Service worker-a-parts of "+spoke.Name, func(ctx context.Context) error {
			_, err := spoke.Kube.CoreV1().Services(s.inSpoke()).Get(ctx, "worker-a-parts", metav1.GetOptions{})
			return err
		})
	}
	s.waitForHello(t, s.hello)
}

// testDeleteAccount: nothing of it is left in the clusters, on the hub and in the registry,
// but what its owner has made.
func (s *tests) testDeleteAccount(t *testing.T) {
	s.Hub.Kubectl(t, "delete", "workeraccount", "-n", s.team, s.account, "--timeout=180s")
	s.waitForRemainingWorks(t)
	if bundles := s.names(t, bundlesResource); len(bundles) > 0 {
		t.Errorf("bundles %q are left", bundles)
	}
	s.Hub.Kubectl(t, "delete", "workerdeployment", "-n", s.team, "hello", "--timeout=180s")
	testbed.Until(t, "releases and the copies of Secrets are gone", testbed.Settle, func(ctx context.Context) error {
		secrets, err := s.Hub.Kube.CoreV1().Secrets(s.team).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if releases := s.names(t, releasesResource); len(releases) > 0 || len(secrets.Items) != 1 {
			return fmt.Errorf("there are the releases %q and %d Secrets, want the user's", releases, len(secrets.Items))
		}
		return nil
	})
}

// waitForRemainingWorks waits until clusters have nothing of the account, and the registry no image.
func (s *tests) waitForRemainingWorks(t *testing.T) {
	t.Helper()
	for _, spoke := range s.Spokes {
		waitForGone(t, "work of "+spoke.Name, func(ctx context.Context) error {
			_, err := s.Hub.Dyn.Resource(manifestWorks).Namespace(spoke.Name).Get(ctx, s.inSpoke(), metav1.GetOptions{})
			return err
		})
		s.waitForNamespaceDeleted(t, spoke)
	}
	testbed.Until(t, "builds and images are gone", testbed.Settle, func(ctx context.Context) error {
		tags, err := s.images.Tags(ctx, s.repository())
		jobs, listErr := s.Hub.Kube.BatchV1().Jobs(env.WorkersNamespace).List(ctx, metav1.ListOptions{})
		if err := errors.Join(err, listErr); err != nil {
			return err
		}
		if builds := s.names(t, buildersResource); len(builds)+len(tags)+len(jobs.Items) > 0 {
			return fmt.Errorf("there are the builds %q, images %q and %d jobs", builds, tags, len(jobs.Items))
		}
		return nil
	})
}

// checkNoPanic reads the operator's log. It has to have the rights for all that it does. Only what
// it tells of a namespace that ends at that moment comes too late.
func (s *tests) checkNoPanic(t *testing.T) {
	logs := s.Hub.Kubectl(t, "logs", "-n", env.WorkersNamespace, "deployment/spokelet-workers", "--tail=-1")
	testbed.ReportRaces(t, logs)
	for line := range strings.Lines(logs) {
		if strings.Contains(line, "forbidden") && !strings.Contains(line, "Server rejected event") {
			t.Errorf("the operator may not do what it does: %s", line)
		}
	}
	out := s.Hub.Kubectl(t, "get", "pods", "-n", env.WorkersNamespace, "-l", "app.kubernetes.io/name=spokelet-workers", "-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}")
	if out != "0" {
		t.Errorf("the operator's container restarted: %s", out)
	}
}

// deleteObject leaves the clusters as other suites expect them.
func (s *tests) deleteObject(t *testing.T) {
	s.Hub.Kubectl(t, "delete", "namespace", s.team, "--timeout=180s")
	if err := s.Env.UninstallWorkers(t.Context()); err != nil {
		t.Error(err)
	}
	for _, gvr := range []schema.GroupVersionResource{deploymentsResource, releasesResource, bundlesResource, buildersResource, accountsResource} {
		s.Hub.Kubectl(t, "delete", "crd", gvr.GroupResource().String(), "--timeout=180s")
	}
	s.Hub.Kubectl(t, "label", "managedcluster", "spoke1", "spoke2", "workers.spokelet.io/clusters-", "region-")
	for _, site := range append(slices.Clip(s.Spokes), s.Hub) {
		site.Kubectl(t, "delete", "clusterrole,clusterrolebinding", "carol")
	}
}
