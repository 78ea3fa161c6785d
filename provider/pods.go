// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// ReasonPodsNotSupported is the reason of a pod that is bound to a virtual node.
const ReasonPodsNotSupported = "PodsNotSupported"

const podsNotSupported = "this node is a whole cluster and does not run pods; send work to it as a Work"

// podWorkers write what is to be said of pods, for all nodes together.
const podWorkers = 4

// podKeeper does a kubelet's duty for the pods that are bound to virtual nodes:
// it says once that they will not run, and lets go of those that are deleted.
//
// It watches the pods of each node by itself, as a kubelet does, and not those
// of the hub: what else the hub runs costs it nothing.
type podKeeper struct {
	client kubernetes.Interface
	logger logr.Logger
	queue  workqueue.TypedRateLimitingInterface[podRef]

	mu   sync.Mutex
	pods map[podRef]podState
}

type podRef struct {
	namespace, name string
	uid             types.UID
	node            string
}

// podState is what decides what a pod needs.
type podState struct {
	deleting bool // it has a deletion timestamp
	released bool // a kubelet, or nobody, has confirmed the deletion
	told     bool // it bears our reason, or is past needing one
}

func newPodKeeper(client kubernetes.Interface, logger logr.Logger) *podKeeper {
	return &podKeeper{
		client: client,
		logger: logger,
		queue:  workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[podRef]()),
		pods:   map[podRef]podState{},
	}
}

func stateOf(pod *corev1.Pod) podState {
	return podState{
		deleting: pod.DeletionTimestamp != nil,
		released: pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0,
		told: pod.Status.Reason == ReasonPodsNotSupported ||
			pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
	}
}

// run works until ctx ends.
func (k *podKeeper) run(ctx context.Context) {
	var workers sync.WaitGroup
	for range podWorkers {
		workers.Go(func() {
			for k.work(ctx) {
			}
		})
	}
	<-ctx.Done()
	k.queue.ShutDown()
	workers.Wait()
}

// watch follows the pods of one node until stop is called, as it must be.
func (k *podKeeper) watch(ctx context.Context, node string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	where := fields.OneTermEqualSelector("spec.nodeName", node).String()
	pods := k.client.CoreV1().Pods(metav1.NamespaceAll)
	reflector := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = where
			return pods.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = where
			return pods.Watch(ctx, o)
		},
	}, k.client), &corev1.Pod{}, podStore{keeper: k, node: node}, cache.ReflectorOptions{Name: "pods of a virtual node"})
	var running sync.WaitGroup
	running.Go(func() { reflector.RunWithContext(ctx) })
	return func() {
		cancel()
		running.Wait()
		k.replace(node, nil)
	}
}

func (k *podKeeper) work(ctx context.Context) bool {
	ref, quit := k.queue.Get()
	if quit {
		return false
	}
	defer k.queue.Done(ref)
	if err := k.keep(ctx, ref); err != nil && ctx.Err() == nil {
		k.logger.Error(err, "cannot keep a pod of a virtual node", "node", ref.node)
		k.queue.AddRateLimited(ref)
		return true
	}
	k.queue.Forget(ref)
	return true
}

func (k *podKeeper) keep(ctx context.Context, ref podRef) error {
	k.mu.Lock()
	state, ok := k.pods[ref]
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	switch {
	case !ok, state.released:
		return nil
	case state.deleting:
		return k.release(ctx, ref)
	case !state.told:
		return k.tell(ctx, ref)
	}
	return nil
}

// release confirms a deletion, as a kubelet does when the last container has
// ended; here there was none.
func (k *podKeeper) release(ctx context.Context, ref podRef) error {
	options := metav1.NewDeleteOptions(0)
	options.Preconditions = metav1.NewUIDPreconditions(string(ref.uid))
	err := k.client.CoreV1().Pods(ref.namespace).Delete(ctx, ref.name, *options)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("pod %s/%s cannot be released: %w", ref.namespace, ref.name, err)
	}
	return nil
}

// tell says why the pod stays Pending.
func (k *podKeeper) tell(ctx context.Context, ref podRef) error {
	patch, err := json.Marshal(refusal(ref.uid, metav1.Now()))
	if err != nil {
		return fmt.Errorf("pod %s/%s cannot be told: %w", ref.namespace, ref.name, err)
	}
	_, err = k.client.CoreV1().Pods(ref.namespace).
		Patch(ctx, ref.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("pod %s/%s cannot be told: %w", ref.namespace, ref.name, err)
	}
	return nil
}

// refusal is a patch of a pod's status; the uid in it makes the API server
// refuse it for another pod of that name.
func refusal(uid types.UID, now metav1.Time) map[string]any {
	condition := func(kind corev1.PodConditionType) map[string]any {
		return map[string]any{
			"type": kind, "status": corev1.ConditionFalse, "lastTransitionTime": now,
			"reason": ReasonPodsNotSupported, "message": podsNotSupported,
		}
	}
	return map[string]any{
		"metadata": map[string]any{"uid": uid},
		"status": map[string]any{
			"phase":   corev1.PodPending,
			"reason":  ReasonPodsNotSupported,
			"message": podsNotSupported,
			"conditions": []any{
				condition(corev1.PodReadyToStartContainers), condition(corev1.ContainersReady), condition(corev1.PodReady),
			},
		},
	}
}

func (k *podKeeper) set(ref podRef, state podState) {
	k.mu.Lock()
	k.pods[ref] = state
	k.mu.Unlock()
	k.queue.Add(ref)
}

func (k *podKeeper) unset(ref podRef) {
	k.mu.Lock()
	delete(k.pods, ref)
	k.mu.Unlock()
}

// replace makes pods all that a node has.
func (k *podKeeper) replace(node string, pods map[podRef]podState) {
	k.mu.Lock()
	for ref := range k.pods {
		if _, ok := pods[ref]; !ok && ref.node == node {
			delete(k.pods, ref)
		}
	}
	k.mu.Unlock()
	for ref, state := range pods {
		k.set(ref, state)
	}
}

// podStore is what a reflector writes one node's pods into. Nothing of a pod is
// kept but its state.
type podStore struct {
	keeper *podKeeper
	node   string
}

var _ cache.ReflectorStore = podStore{}

func (s podStore) ref(pod *corev1.Pod) podRef {
	return podRef{namespace: pod.Namespace, name: pod.Name, uid: pod.UID, node: s.node}
}

// Add takes a pod.
func (s podStore) Add(obj any) error {
	if pod, ok := obj.(*corev1.Pod); ok {
		s.keeper.set(s.ref(pod), stateOf(pod))
	}
	return nil
}

// Update takes a changed pod.
func (s podStore) Update(obj any) error { return s.Add(obj) }

// Delete takes a pod that is gone.
func (s podStore) Delete(obj any) error {
	if pod, ok := obj.(*corev1.Pod); ok {
		s.keeper.unset(s.ref(pod))
	}
	return nil
}

// Replace takes all pods of the node.
func (s podStore) Replace(objs []any, _ string) error {
	pods := make(map[podRef]podState, len(objs))
	for _, obj := range objs {
		if pod, ok := obj.(*corev1.Pod); ok {
			pods[s.ref(pod)] = stateOf(pod)
		}
	}
	s.keeper.replace(s.node, pods)
	return nil
}

// Resync does nothing: what is to be done is done until it succeeds.
func (s podStore) Resync() error { return nil }
