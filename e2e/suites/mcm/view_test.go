// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
)

var getOptions = metav1.GetOptions{}

func gvrOf(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

// pod is one that never runs: no image is needed to look at it.
func pod(name, app string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: bob, labels: {app: %s}}, "+
		"spec: {nodeSelector: {none: none}, containers: [{name: c, image: none}]}}\n", name, app)
}

// viewIsLive: with an interval of an hour a pod is on the hub long before that, by one watch.
func (s *tests) viewIsLive(t *testing.T) {
	offset := testbed.AuditSize(t, s.Spoke())
	for _, name := range []string{"live-1", "live-2"} {
		s.apply(t, work(name, "spoke1", `type: Resource, scope: {resourceType: pods, namespace: bob, labelSelector: {matchLabels: {app: live}}, mode: Periodic, updateIntervalSeconds: 3600}`))
		s.until(t, works, "bob", name, "an empty view", func(w object) error { return w.is("Processing") })
	}
	began := time.Now()
	s.Spoke().Apply(t, pod("live-a", "live"))
	s.until(t, works, "bob", "live-1", "the pod is shown", func(w object) error {
		if !slices.Contains(w.names(), "live-a") {
			return fmt.Errorf("it shows %q", w.names())
		}
		return nil
	})
	t.Logf("a pod that is created is in the hub's status after %s, kubectl included", time.Since(began).Round(time.Millisecond))
	s.apply(t, work("live-table", "spoke1", `type: Resource, scope: {resourceType: po, namespace: bob, labelSelector: {app: live}, serverPrint: true}`))
	w := s.until(t, works, "bob", "live-table", "a table", func(w object) error { return w.is("Completed") })
	if w.field("status", "result", "kind") != "Table" || !strings.Contains(w.field("status", "result", "columnDefinitions"), "Ready") {
		t.Errorf("serverPrint gives %.300s", w.field("status", "result"))
	}
	watches, lists := s.bobsRequests(t, offset, "pods")
	if watches != 2 || lists != 0 {
		t.Errorf("%d watches and %d lists of pods by bob, want one watch for two works, one for the table, and no list", watches, lists)
	}
	s.Hub.Kubectl(t, "delete", works, "-n", "bob", "live-1", "live-2", "live-table")
}

// bobsRequests counts what bob asked of the spoke.
func (s *tests) bobsRequests(t *testing.T, offset int64, resource string) (watches, lists int) {
	t.Helper()
	requests, err := env.AuditSince(s.Spoke().Cluster, offset)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		if r.Impersonated == nil || r.Impersonated.Username != "hub:"+bob || r.ObjectRef.Resource != resource {
			continue
		}
		switch r.Verb {
		case "watch":
			watches++
		case "list":
			lists++
		}
	}
	return watches, lists
}
