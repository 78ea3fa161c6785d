// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/spokelet/spokelet/api/wire"
)

// reflector follows the pods of one virtual node and no others.
func (k *Keeper) reflector(n *node, name string) *cache.Reflector {
	pods := k.config.Client.CoreV1().Pods(metav1.NamespaceAll)
	bound := listWatch{
		kind: &corev1.Pod{}, watch: pods.Watch,
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return pods.List(ctx, consistent(o))
		},
		where: metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", name).String()},
	}
	return bound.reflector(k.config.Client, store{keeper: k, node: n, name: name}, "pods of a virtual node")
}

// store is what a reflector writes one node's pods into.
type store struct {
	keeper *Keeper
	node   *node
	// name of the virtual node.
	name string
}

var _ cache.ReflectorStore = store{}

// own returns a pod of the node, trimmed of what nobody reads.
func (s store) own(obj any) (*corev1.Pod, bool) {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Spec.NodeName != s.name {
		return nil, false
	}
	return trim(pod), true
}

func trim(pod *corev1.Pod) *corev1.Pod {
	pod.ManagedFields = nil
	return pod
}

func keyOf(pod *corev1.Pod) wire.PodKey {
	return wire.PodKey{Namespace: pod.Namespace, Name: pod.Name}
}

// Add takes a pod.
func (s store) Add(obj any) error {
	if pod, ok := s.own(obj); ok {
		s.node.mu.Lock()
		defer s.node.mu.Unlock()
		s.keeper.put(s.node, pod)
	}
	return nil
}

// Update takes a changed pod.
func (s store) Update(obj any) error { return s.Add(obj) }

// Delete takes a pod that is gone.
func (s store) Delete(obj any) error {
	if pod, ok := s.own(obj); ok {
		s.node.mu.Lock()
		defer s.node.mu.Unlock()
		if h, ok := s.node.pods[keyOf(pod)]; ok && h.pod.Spec.NodeName == s.name {
			s.keeper.tellForced(s.node, h, pod)
			s.keeper.remove(s.node, keyOf(pod))
		}
	}
	return nil
}

// Replace takes all pods of the node. Only now, and when those of the cluster's other
// nodes are known, is anything said of absence.
func (s store) Replace(objs []any, _ string) error {
	k, n := s.keeper, s.node
	there := make(map[wire.PodKey]*corev1.Pod, len(objs))
	for _, obj := range objs {
		if pod, ok := s.own(obj); ok {
			there[keyOf(pod)] = pod
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, h := range n.pods {
		if _, ok := there[key]; !ok && h.pod.Spec.NodeName == s.name {
			k.remove(n, key)
		}
	}
	for _, pod := range there {
		k.put(n, pod)
	}
	k.listed(n, s.name)
	return nil
}

// Resync does nothing: what is to be done is done until it succeeds.
func (s store) Resync() error { return nil }

// put takes a pod; n.mu is held.
func (k *Keeper) put(n *node, pod *corev1.Pod) {
	key := keyOf(pod)
	h, ok := n.pods[key]
	if ok && h.passed(pod) {
		return
	}
	if ok && h.pod.UID != pod.UID {
		k.remove(n, key)
		ok = false
	}
	if !ok {
		h = &held{since: time.Now()}
		n.pods[key] = h
		k.tally(n, pod, 1)
	}
	h.pod = pod
	k.publish(n, key, h)
	if h.report != nil || !h.sent || h.waits() || k.claimsOthers(n, h) {
		k.queue.Add(ref{node: n.name, key: key})
	}
}

// remove forgets a pod that is gone; n.mu is held.
func (k *Keeper) remove(n *node, key wire.PodKey) {
	h, ok := n.pods[key]
	if !ok {
		return
	}
	delete(n.pods, key)
	k.tally(n, h.pod, -1)
	k.pace.Forget(ref{node: n.name, key: key})
	k.withdraw(n, key, h)
}
