// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"fmt"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
	"github.com/spokelet/spokelet/hack/clusters"
)

// testRegistryUnavailable: what is served stays, and the new version comes when the registry is back.
func (s *tests) testRegistryUnavailable(t *testing.T) {
	s.makeUnavailable(t, s.images.Server, func() {
		s.ask(t, "5", hello("v5"))
		s.waitForStatus(t, "hello", "says that the build is tried again", func(got status) error {
			return got.is("Built", "Unknown", "Retrying")
		})
		s.checkStillHello(t)
	})
	s.waitForHello(t, "Hello v5 "+secondSecret)
	s.waitForReady(t, "hello")
}

// makeUnavailable stops a server while something is done.
func (s *tests) makeUnavailable(t *testing.T, server *env.Server, meanwhile func()) {
	t.Helper()
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	meanwhile()
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// testTunnelCut: the other cluster has the new version, and the bundle counts it alone. No
// release but the new one is kept, and the image that the cluster runs which is away.
func (s *tests) testTunnelCut(t *testing.T) {
	away, old := s.Spokes[1], s.image(t)
	heal := s.cutTunnel(t, away)
	url := s.put(t, "hello", "6", hello("v6"))
	s.change(t, "workerdeployment", "hello", fmt.Sprintf(`{"spec":{"releaseHistoryLimit":1,"template":{"scriptUrls":[%q]}}}`, url))
	s.waitForServedIn(t, s.Spoke(), "hello", "Hello v6 "+secondSecret)
	s.waitForStatus(t, "hello", "names the cluster that is away", func(got status) error {
		return got.is("Ready", "False", "ClustersNotReady", away.Name)
	})
	if last := s.object(t, bundlesResource, s.bundle()).GetAnnotations()["lastImage"]; last != old {
		t.Errorf("the last image is %q, want %q", last, old)
	}
	s.waitForImages(t, s.image(t), old)
	heal()
	s.waitForHello(t, "Hello v6 "+secondSecret)
	s.waitForBundle(t, 2, 2)
	s.waitForReady(t, "hello")
	s.waitForImages(t, s.image(t))
}

// cutTunnel cuts the network between a cluster and the hub, until the function that it returns is
// called, or the test has ended.
func (s *tests) cutTunnel(t *testing.T, spoke *testbed.Site) (heal func()) {
	t.Helper()
	if err := s.Env.Set.Cut(t.Context(), spoke.Cluster, clusters.Drop); err != nil {
		t.Fatal(err)
	}
	heal = sync.OnceFunc(func() {
		// The test's own context may have ended by now.
		if err := s.Env.Set.Heal(context.WithoutCancel(t.Context()), spoke.Cluster); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(heal)
	return heal
}

// waitForImages waits until the registry has images of the account, and no others.
func (s *tests) waitForImages(t *testing.T, images ...string) {
	t.Helper()
	testbed.Until(t, fmt.Sprintf("%d images are left", len(images)), testbed.Settle, func(ctx context.Context) error {
		tags, err := s.images.Tags(ctx, s.repository())
		if err == nil && len(tags) != len(images) {
			err = fmt.Errorf("there are %q, for the releases %q", tags, s.names(t, releasesResource))
		}
		return err
	})
	for _, image := range images {
		if there, err := s.images.Has(t.Context(), image); err != nil || !there {
			t.Errorf("%s is there: %v, %v", image, there, err)
		}
	}
}

// testClusterLeaves: with the label goes everything, and comes back with it.
func (s *tests) testClusterLeaves(t *testing.T) {
	left := s.Spokes[1]
	s.Hub.Kubectl(t, "label", "managedcluster", left.Name, "workers.spokelet.io/clusters-")
	s.waitForBundle(t, 2, 1)
	s.waitForNamespaceDeleted(t, left)
	s.checkStillServedIn(t, s.Spoke(), "hello", s.hello)
	s.Hub.Kubectl(t, "label", "managedcluster", left.Name, "workers.spokelet.io/clusters=true")
	s.waitForBundle(t, 2, 2)
	s.waitForHello(t, s.hello)
}

// waitForNamespaceDeleted waits until a cluster has nothing of the account.
func (s *tests) waitForNamespaceDeleted(t *testing.T, spoke *testbed.Site) {
	t.Helper()
	waitForGone(t, "namespace "+s.inSpoke()+" of "+spoke.Name, func(ctx context.Context) error {
		_, err := spoke.Kube.CoreV1().Namespaces().Get(ctx, s.inSpoke(), metav1.GetOptions{})
		return err
	})
}
