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

// maxNamed is how many objects a progress names.
const maxNamed = 3

// followed is Helm's client of the cluster, which says what it does.
type followed struct {
	*kube.Client
	say func(progress string)
	// end is when Helm has to be done. It knows a time for each wait alone.
	end       time.Time
	discovery discovery.DiscoveryInterface
	mapper    func() (meta.RESTMapper, error)
	// refused are why the last deletion was not done, or not all of it, which Helm does not
	// tell.
	refused []error
}

// Create says how many objects are created.
func (f *followed) Create(resources kube.ResourceList, options ...kube.ClientCreateOption) (*kube.Result, error) {
	f.say("creating " + named(resources))
	return f.Client.Create(resources, options...)
}

// Update says how many objects are updated.
func (f *followed) Update(original, target kube.ResourceList, options ...kube.ClientUpdateOption) (*kube.Result, error) {
	f.say("updating " + named(target))
	return f.Client.Update(original, target, options...)
}

// Delete says how many objects are deleted.
func (f *followed) Delete(resources kube.ResourceList, policy metav1.DeletionPropagation) (*kube.Result, []error) {
	f.say("deleting " + named(resources))
	result, errs := f.Client.Delete(resources, policy)
	f.refused = errs
	return result, errs
}

// GetWaiter returns one that says what it waits for.
func (f *followed) GetWaiter(strategy kube.WaitStrategy) (kube.Waiter, error) {
	return f.GetWaiterWithOptions(strategy)
}

// GetWaiterWithOptions returns one that says what it waits for.
func (f *followed) GetWaiterWithOptions(strategy kube.WaitStrategy, options ...kube.WaitOption) (kube.Waiter, error) {
	w, err := f.Client.GetWaiterWithOptions(strategy, options...)
	if err != nil {
		return nil, err
	}
	return &waiter{Waiter: w, waits: strategy != kube.HookOnlyStrategy, say: f.say, end: f.end, discovery: f.discovery}, nil
}

// waiter is Helm's, which says what it waits for.
type waiter struct {
	kube.Waiter
	// waits: it waits for more than hooks.
	waits bool
	say   func(progress string)

	end       time.Time
	discovery discovery.DiscoveryInterface
}

// left is what is left of a wait. It is never zero, which Helm takes for 30 seconds.
func (w *waiter) left(timeout time.Duration) time.Duration {
	return max(min(timeout, time.Until(w.end)), time.Millisecond)
}

// Wait says which objects are to be ready.
func (w *waiter) Wait(resources kube.ResourceList, timeout time.Duration) error {
	if w.waits {
		w.say("waiting until ready: " + named(resources))
	}
	if err := w.Waiter.Wait(resources, w.left(timeout)); err != nil {
		return err
	}
	awaitKinds(w.discovery, resources, w.left(timeout))
	return nil
}

// WaitWithJobs says which objects are to be ready.
func (w *waiter) WaitWithJobs(resources kube.ResourceList, timeout time.Duration) error {
	if w.waits {
		w.say("waiting until ready: " + named(resources))
	}
	return w.Waiter.WaitWithJobs(resources, w.left(timeout))
}

// WaitForDelete says which objects are to be gone.
func (w *waiter) WaitForDelete(resources kube.ResourceList, timeout time.Duration) error {
	if w.waits {
		w.say("waiting until gone: " + named(resources))
	}
	return w.Waiter.WaitForDelete(resources, w.left(timeout))
}

// WatchUntilReady says which hook is waited for.
func (w *waiter) WatchUntilReady(resources kube.ResourceList, timeout time.Duration) error {
	w.say("waiting for the hook " + named(resources))
	return w.Waiter.WatchUntilReady(resources, w.left(timeout))
}

// named names some objects, and counts the others.
func named(resources kube.ResourceList) string {
	var names []string
	for _, info := range resources[:min(len(resources), maxNamed)] {
		names = append(names, nameOf(info))
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

func nameOf(info *resource.Info) string {
	kind := "object"
	if info.Mapping != nil {
		kind = info.Mapping.GroupVersionKind.Kind
	}
	return kind + " " + info.Name
}
