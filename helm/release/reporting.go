// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"fmt"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/kube"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/discovery"
)

// maxNames bounds the objects that a progress names.
const maxNames = 3

// reportingClient is Helm's client of the cluster, which reports its steps.
type reportingClient struct {
	*kube.Client
	report func(progress string)
	// end bounds all waits together. Helm has a timeout for each wait.
	end       time.Time
	discovery discovery.DiscoveryInterface
	mapper    func() (meta.RESTMapper, error)
	// deleteErrors are those of the last deletion, which Helm does not return.
	deleteErrors []error
}

// Create reports the objects that are created.
func (f *reportingClient) Create(resources kube.ResourceList, options ...kube.ClientCreateOption) (*kube.Result, error) {
	f.report("creating " + formatNames(resources))
	return f.Client.Create(resources, options...)
}

// Update reports the objects that are updated.
func (f *reportingClient) Update(original, target kube.ResourceList, options ...kube.ClientUpdateOption) (*kube.Result, error) {
	f.report("updating " + formatNames(target))
	return f.Client.Update(original, target, options...)
}

// Delete reports the objects that are deleted.
func (f *reportingClient) Delete(resources kube.ResourceList, policy metav1.DeletionPropagation) (*kube.Result, []error) {
	f.report("deleting " + formatNames(resources))
	result, errs := f.Client.Delete(resources, policy)
	f.deleteErrors = errs
	return result, errs
}

// GetWaiter returns a waiter that reports what it waits for.
func (f *reportingClient) GetWaiter(strategy kube.WaitStrategy) (kube.Waiter, error) {
	return f.GetWaiterWithOptions(strategy)
}

// GetWaiterWithOptions returns a waiter that reports what it waits for.
func (f *reportingClient) GetWaiterWithOptions(strategy kube.WaitStrategy, options ...kube.WaitOption) (kube.Waiter, error) {
	w, err := f.Client.GetWaiterWithOptions(strategy, options...)
	if err != nil {
		return nil, err
	}
	return &reportingWaiter{Waiter: w, waitsForObjects: strategy != kube.HookOnlyStrategy, report: f.report, end: f.end, discovery: f.discovery}, nil
}

// reportingWaiter is Helm's waiter, which reports what it waits for.
type reportingWaiter struct {
	kube.Waiter
	// waitsForObjects: it waits for more than hooks.
	waitsForObjects bool
	report          func(progress string)

	end       time.Time
	discovery discovery.DiscoveryInterface
}

// remaining returns the rest of a timeout. It is never zero, which Helm takes for 30 seconds.
func (w *reportingWaiter) remaining(timeout time.Duration) time.Duration {
	return max(min(timeout, time.Until(w.end)), time.Millisecond)
}

// Wait reports the objects that are to become ready.
func (w *reportingWaiter) Wait(resources kube.ResourceList, timeout time.Duration) error {
	if w.waitsForObjects {
		w.report("waiting until ready: " + formatNames(resources))
	}
	if err := w.Waiter.Wait(resources, w.remaining(timeout)); err != nil {
		return err
	}
	waitForKinds(w.discovery, resources, w.remaining(timeout))
	return nil
}

// WaitWithJobs reports the objects that are to become ready.
func (w *reportingWaiter) WaitWithJobs(resources kube.ResourceList, timeout time.Duration) error {
	if w.waitsForObjects {
		w.report("waiting until ready: " + formatNames(resources))
	}
	return w.Waiter.WaitWithJobs(resources, w.remaining(timeout))
}

// WaitForDelete reports the objects that are to be deleted.
func (w *reportingWaiter) WaitForDelete(resources kube.ResourceList, timeout time.Duration) error {
	if w.waitsForObjects {
		w.report("waiting until gone: " + formatNames(resources))
	}
	return w.Waiter.WaitForDelete(resources, w.remaining(timeout))
}

// WatchUntilReady reports the hook that is waited for.
func (w *reportingWaiter) WatchUntilReady(resources kube.ResourceList, timeout time.Duration) error {
	w.report("waiting for the hook " + formatNames(resources))
	return w.Waiter.WatchUntilReady(resources, w.remaining(timeout))
}

// formatNames names some objects, and counts the others.
func formatNames(resources kube.ResourceList) string {
	var names []string
	for _, info := range resources[:min(len(resources), maxNames)] {
		names = append(names, formatName(info))
	}
	text := strings.Join(names, ", ")
	switch more := len(resources) - len(names); {
	case more > 0:
		return fmt.Sprintf("%s and %d more", text, more)
	case text == "":
		return "nothing"
	default:
		return text
	}
}

func formatName(info *resource.Info) string {
	kind := "object"
	if info.Mapping != nil {
		kind = info.Mapping.GroupVersionKind.Kind
	}
	return kind + " " + info.Name
}
