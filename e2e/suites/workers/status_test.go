// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/e2e/testbed"
)

var (
	deploymentsResource = schema.GroupVersionResource{Group: "api.worker-deployment", Version: "v1alpha1", Resource: "workerdeployments"}
	releasesResource    = schema.GroupVersionResource{Group: "api.worker-release", Version: "v1alpha1", Resource: "workerreleases"}
	bundlesResource     = schema.GroupVersionResource{Group: "api.worker-bundle", Version: "v1alpha1", Resource: "workerbundles"}
	buildersResource    = schema.GroupVersionResource{Group: "api.job-builder", Version: "v1alpha1", Resource: "jobbuilders"}
	accountsResource    = schema.GroupVersionResource{Group: "api.worker-account", Version: "v1alpha1", Resource: "workeraccounts"}
	manifestWorks       = schema.GroupVersionResource{Group: "work.open-cluster-management.io", Version: "v1", Resource: "manifestworks"}
)

// status is what a WorkerDeployment says of itself, a WorkerRelease of its revision, and all
// of them of their conditions.
type status struct {
	Release, Served string
	Revision        int64
	Conditions      []metav1.Condition

	// Of a WorkerBundle.
	Workers, ReadyClusters, SelectedClusters int

	generation int64
}

// statusOf reads the status of an object of the account.
func (s *tests) statusOf(ctx context.Context, gvr schema.GroupVersionResource, name string) (got status, err error) {
	obj, err := s.Hub.Dyn.Resource(gvr).Namespace(s.team).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return got, err
	}
	raw, err := json.Marshal(obj.Object["status"])
	if err != nil {
		return got, err
	}
	got.generation = obj.GetGeneration()
	return got, json.Unmarshal(raw, &got)
}

// is returns nil if a condition of the present generation has the status, the reason and
// words in its message.
func (got status) is(kind, value, reason string, words ...string) error {
	for _, c := range got.Conditions {
		if c.Type != kind {
			continue
		}
		if string(c.Status) != value || c.Reason != reason || c.ObservedGeneration != got.generation {
			return fmt.Errorf("%s is %s, %s of generation %d, want %s, %s of %d: %s",
				kind, c.Status, c.Reason, c.ObservedGeneration, value, reason, got.generation, c.Message)
		}
		for _, word := range words {
			if !strings.Contains(c.Message, word) {
				return fmt.Errorf("%s: %q does not name %q", kind, c.Message, word)
			}
		}
		return nil
	}
	return fmt.Errorf("there is no condition %s", kind)
}

// waitForStatusOf waits until an object of the account says what is wanted, and returns it.
func (s *tests) waitForStatusOf(t *testing.T, gvr schema.GroupVersionResource, name, what string, wanted func(status) error) status {
	t.Helper()
	var last status
	testbed.Until(t, gvr.Resource+" "+name+": "+what, testbed.Settle, func(ctx context.Context) error {
		got, err := s.statusOf(ctx, gvr, name)
		if err != nil {
			return err
		}
		last = got
		return wanted(got)
	})
	return last
}

// waitForStatus is waitForStatusOf a WorkerDeployment.
func (s *tests) waitForStatus(t *testing.T, name, what string, wanted func(status) error) status {
	t.Helper()
	return s.waitForStatusOf(t, deploymentsResource, name, what, wanted)
}

// waitForReady waits until all clusters serve what a WorkerDeployment asks for.
func (s *tests) waitForReady(t *testing.T, name string) status {
	t.Helper()
	return s.waitForStatus(t, name, "is served", func(got status) error {
		return errors.Join(got.is("Accepted", "True", "Accepted"), got.is("Built", "True", "Built"), got.is("Ready", "True", "Served"))
	})
}

// waitForBundle waits until so many workers are served in so many clusters, which are all.
func (s *tests) waitForBundle(t *testing.T, workers, clusters int) {
	t.Helper()
	s.waitForStatusOf(t, bundlesResource, s.bundle(), fmt.Sprintf("%d workers are served in %d clusters", workers, clusters), func(got status) error {
		if got.Workers != workers || got.ReadyClusters != clusters || got.SelectedClusters != clusters {
			return fmt.Errorf("it has %d workers, in %d of %d clusters", got.Workers, got.ReadyClusters, got.SelectedClusters)
		}
		return got.is("Ready", "True", "Served")
	})
}

// image is the one that the bundle has.
func (s *tests) image(t *testing.T) string {
	t.Helper()
	image, _, _ := unstructured.NestedString(s.object(t, bundlesResource, s.bundle()).Object, "spec", "podTemplate", "image")
	if image == "" {
		t.Fatalf("%s has no image", s.bundle())
	}
	return image
}

// names are those of the account's objects of a kind.
func (s *tests) names(t *testing.T, gvr schema.GroupVersionResource) []string {
	t.Helper()
	list, err := s.Hub.Dyn.Resource(gvr).Namespace(s.team).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, obj := range list.Items {
		names = append(names, obj.GetName())
	}
	return names
}

// object reads one of the account that has to be there.
func (s *tests) object(t *testing.T, gvr schema.GroupVersionResource, name string) *unstructured.Unstructured {
	t.Helper()
	obj, err := s.Hub.Dyn.Resource(gvr).Namespace(s.team).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

// waitForGone waits until something is not found any more.
func waitForGone(t *testing.T, what string, get func(context.Context) error) {
	t.Helper()
	testbed.Until(t, what+" is gone", testbed.Settle, func(ctx context.Context) error {
		err := get(ctx)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it is there"), err)
	})
}
