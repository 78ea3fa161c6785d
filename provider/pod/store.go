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
func (c *Controller) reflector(n *clusterState, name string) *cache.Reflector {
	pods := c.config.Client.CoreV1().Pods(metav1.NamespaceAll)
	bound := listWatch{
		kind: &corev1.Pod{}, watch: pods.Watch,
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return pods.List(ctx, consistent(o))
		},
		where: metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", name).String()},
	}
	return bound.reflector(c.config.Client, store{controller: c, node: n, name: name}, "pods of a virtual node")
}

// store is what a reflector writes one node's pods into.
type store struct {
	controller *Controller
	node       *clusterState
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
		s.controller.setPod(s.node, pod)
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
		if p, ok := s.node.pods[keyOf(pod)]; ok && p.pod.Spec.NodeName == s.name {
			s.controller.publishForcedDeletion(s.node, p, pod)
			s.controller.deletePod(s.node, keyOf(pod))
		}
	}
	return nil
}

// Replace takes all pods of the node. Only now, and when those of the cluster's other
// nodes are known, is anything said of absence.
func (s store) Replace(objs []any, _ string) error {
	k, n := s.controller, s.node
	there := make(map[wire.PodKey]*corev1.Pod, len(objs))
	for _, obj := range objs {
		if pod, ok := s.own(obj); ok {
			there[keyOf(pod)] = pod
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, p := range n.pods {
		if _, ok := there[key]; !ok && p.pod.Spec.NodeName == s.name {
			k.deletePod(n, key)
		}
	}
	for _, pod := range there {
		k.setPod(n, pod)
	}
	k.markListed(n, s.name)
	return nil
}

// Resync does nothing: what is to be done is done until it succeeds.
func (s store) Resync() error { return nil }

// setPod takes a pod; n.mu is held.
func (c *Controller) setPod(n *clusterState, pod *corev1.Pod) {
	key := keyOf(pod)
	p, ok := n.pods[key]
	if ok && p.isStale(pod) {
		return
	}
	if ok && p.pod.UID != pod.UID {
		c.deletePod(n, key)
		ok = false
	}
	if !ok {
		p = &podState{firstSeen: time.Now()}
		n.pods[key] = p
		c.countPod(n, pod, 1)
	}
	p.pod = pod
	c.publish(n, key, p)
	if p.report != nil || !p.published || p.isUnreported() || c.showsForeignAddress(n, p) {
		c.queue.Add(podRef{cluster: n.name, key: key})
	}
}

// deletePod forgets a pod that is gone; n.mu is held.
func (c *Controller) deletePod(n *clusterState, key wire.PodKey) {
	p, ok := n.pods[key]
	if !ok {
		return
	}
	delete(n.pods, key)
	c.countPod(n, p.pod, -1)
	c.statusPacer.Forget(podRef{cluster: n.name, key: key})
	c.unpublish(n, key, p)
}
