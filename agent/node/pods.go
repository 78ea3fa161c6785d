// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"maps"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/spokelet/spokelet/api/wire"
)

// podsPerPage bounds the pods that are decoded at once, where the API server
// does not stream them.
const podsPerPage = 500

// scheduledPods selects the pods that take something of a node: those that a node
// has, and that have not ended.
var scheduledPods = fields.AndSelectors(
	fields.OneTermNotEqualSelector("spec.nodeName", ""),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
).String()

// podTable holds what the pods of the spoke take of its nodes. It is what a
// reflector writes them into; of each pod a few hundred bytes stay.
type podTable struct {
	hubID, prefix string
	logger        logr.Logger
	// changed is called when the sum of what is booked may have changed.
	changed func()
	// listed is closed when the pods have been listed, or may not be.
	listed     chan struct{}
	markListed func() // closes listed, once

	mu       sync.Mutex
	requests map[types.NamespacedName]podRequests // guarded by mu: pods that are not ours
	hubPods  map[types.NamespacedName]types.UID   // guarded by mu: their UIDs on the hub
}

var (
	_ cache.TransformingStore = (*podTable)(nil)
	_ cache.DoneChecker       = (*podTable)(nil)
)

func newPodTable(config WatcherConfig, changed func()) *podTable {
	t := &podTable{
		hubID: config.HubID, prefix: config.NamespacePrefix, logger: config.Logger, changed: changed,
		listed:   make(chan struct{}),
		requests: map[types.NamespacedName]podRequests{}, hubPods: map[types.NamespacedName]types.UID{},
	}
	t.markListed = sync.OnceFunc(func() { close(t.listed) })
	return t
}

// run follows the pods until ctx ends.
func (t *podTable) run(ctx context.Context, client kubernetes.Interface) {
	pods := client.CoreV1().Pods(metav1.NamespaceAll)
	reflector := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = scheduledPods
			// A list of "any version" is not paged.
			o.ResourceVersion, o.ResourceVersionMatch = "", ""
			page, err := pods.List(ctx, o)
			if err != nil {
				return nil, t.handleListError(err)
			}
			return t.trimList(page), nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = scheduledPods
			w, err := pods.Watch(ctx, o)
			return w, t.handleListError(err)
		},
	}, client), &corev1.Pod{}, t, cache.ReflectorOptions{Name: "pods of the cluster"})
	reflector.WatchListPageSize = podsPerPage
	reflector.RunWithContext(ctx)
}

// handleListError passes an error on. A cluster that does not show its pods is not kept
// from being a node: it has then what its nodes have.
func (t *podTable) handleListError(err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	select {
	case <-t.listed:
	default:
		t.logger.Error(err, "cannot see the pods of the cluster: what they take is not counted")
		t.markListed()
	}
	return err
}

func (t *podTable) trimList(page *corev1.PodList) *internalversion.List {
	small := &internalversion.List{ListMeta: page.ListMeta, Items: make([]runtime.Object, len(page.Items))}
	for i := range page.Items {
		small.Items[i] = trimPod(&page.Items[i], t.hubID)
	}
	return small
}

// Transformer returns what makes pods small before they are kept.
func (t *podTable) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if o := t.trimObject(obj); o != nil {
			return o, nil
		}
		return obj, nil
	}
}

// trimObject returns nil for what is no pod.
func (t *podTable) trimObject(obj any) *trimmedPod {
	switch o := obj.(type) {
	case *trimmedPod:
		return o
	case *corev1.Pod:
		return trimPod(o, t.hubID)
	}
	return nil
}

// Add takes a pod.
func (t *podTable) Add(obj any) error {
	o := t.trimObject(obj)
	if o == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := o.key()
	before, was := t.requests[key]
	if o.isHubPod {
		t.hubPods[key] = o.hubUID
		delete(t.requests, key)
	} else {
		t.requests[key] = o.requests
		delete(t.hubPods, key)
	}
	if was == o.isHubPod || was && !before.equal(o.requests) {
		t.changed()
	}
	return nil
}

// Update takes a changed pod.
func (t *podTable) Update(obj any) error { return t.Add(obj) }

// Delete takes a pod that is gone or has ended.
func (t *podTable) Delete(obj any) error {
	o := t.trimObject(obj)
	if o == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := o.key()
	if _, was := t.requests[key]; was {
		delete(t.requests, key)
		t.changed()
	}
	delete(t.hubPods, key)
	return nil
}

// Replace takes all pods.
func (t *podTable) Replace(objs []any, _ string) error {
	others, ours := make(map[types.NamespacedName]podRequests, len(objs)), map[types.NamespacedName]types.UID{}
	for _, obj := range objs {
		switch o := t.trimObject(obj); {
		case o == nil:
		case o.isHubPod:
			ours[o.key()] = o.hubUID
		default:
			others[o.key()] = o.requests
		}
	}
	t.mu.Lock()
	t.requests, t.hubPods = others, ours
	t.mu.Unlock()
	t.changed()
	t.markListed()
	return nil
}

// Resync does nothing: nothing is repeated.
func (t *podTable) Resync() error { return nil }

// Name is cache.DoneChecker's.
func (t *podTable) Name() string { return "pods of the cluster" }

// Done is closed when the pods are known, or will not be.
func (t *podTable) Done() <-chan struct{} { return t.listed }

// sumRequests adds up what pods that are not ours take.
func (t *podTable) sumRequests() requestsByNode {
	t.mu.Lock()
	defer t.mu.Unlock()
	return sumRequests(maps.Values(t.requests))
}

// hubPod is Pods' Ours.
func (t *podTable) hubPod(namespace, name string) (wire.PodKey, types.UID, bool) {
	hubNamespace, ok := strings.CutPrefix(namespace, t.prefix)
	if !ok || hubNamespace == "" {
		return wire.PodKey{}, "", false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	uid, ok := t.hubPods[types.NamespacedName{Namespace: namespace, Name: name}]
	return wire.PodKey{Namespace: hubNamespace, Name: name}, uid, ok
}
