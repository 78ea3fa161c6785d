// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"errors"
	"slices"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// testConcurrentChanges writes two versions at the same time, and has the API server say which is the
// later one.
func (s *tests) testConcurrentChanges(t *testing.T) {
	before, err := s.statusOf(t.Context(), deploymentsResource, "hello")
	if err != nil {
		t.Fatal(err)
	}
	versions := [2]string{"v3a", "v3b"}
	var urls [2]string
	for i, version := range versions {
		urls[i] = s.put(t, "hello", version, hello(version))
	}
	var generations [2]int64
	var errs [2]error
	var group sync.WaitGroup
	for i, url := range urls {
		group.Go(func() {
			obj, err := s.Hub.Dyn.Resource(deploymentsResource).Namespace(s.team).Patch(t.Context(), "hello", types.MergePatchType, []byte(use(url)), metav1.PatchOptions{})
			if errs[i] = err; err == nil {
				generations[i] = obj.GetGeneration()
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	later := 0
	if generations[1] > generations[0] {
		later = 1
	}
	s.waitForHello(t, "Hello "+versions[later]+" "+secondSecret)
	got := s.waitForReady(t, "hello")
	if got.Revision <= before.Revision || got.Served != got.Release {
		t.Errorf("status is %+v, after revision %d", got, before.Revision)
	}
	if used, _, _ := unstructured.NestedStringSlice(s.object(t, releasesResource, got.Release).Object, "spec", "scriptUrls"); len(used) != 1 || used[0] != urls[later] {
		t.Errorf("the release is of %q, want %q", used, urls[later])
	}
	s.checkRevisionsAscend(t, got)
	// No bundle was without the script for a moment.
	for _, name := range s.names(t, buildersResource) {
		if scripts, _, _ := unstructured.NestedStringSlice(s.object(t, buildersResource, name).Object, "spec", "scriptNames"); !slices.Contains(scripts, "hello") {
			t.Errorf("%s is of %q", name, scripts)
		}
	}
	s.checkStillHello(t)
}

// checkRevisionsAscend checks that the current release is the last one of its WorkerDeployment.
func (s *tests) checkRevisionsAscend(t *testing.T, current status) {
	t.Helper()
	owner := s.object(t, deploymentsResource, "hello").GetUID()
	seen := map[int64]string{}
	for _, name := range s.names(t, releasesResource) {
		release := s.object(t, releasesResource, name)
		if by := metav1.GetControllerOf(release); by == nil || by.UID != owner {
			continue
		}
		revision, _, _ := unstructured.NestedInt64(release.Object, "status", "revision")
		if seen[revision] != "" || revision > current.Revision || (revision == current.Revision) != (name == current.Release) {
			t.Errorf("release %s has revision %d, as %q; the current one is %s with %d", name, revision, seen[revision], current.Release, current.Revision)
		}
		seen[revision] = name
	}
}
