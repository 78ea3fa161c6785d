// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/watcher"
)

// watchPods follows the pods of one virtual node and no others until ctx ends.
func (c *Controller) watchPods(ctx context.Context, n *clusterState, name string) {
	selector := fields.OneTermEqualSelector("spec.nodeName", name).String()
	feed := watcher.NewListWatch(c.config.Client.CoreV1().Pods(metav1.NamespaceAll), func(o *metav1.ListOptions) { o.FieldSelector = selector })
	(&watcher.Watcher{ListWatch: feed, Handler: c.podHandler(n, name), CopyObjects: true, Log: c.config.Logger}).Run(ctx)
}

func (c *Controller) podHandler(n *clusterState, name string) *watcher.StoreHandler[wire.PodKey, *corev1.Pod] {
	return &watcher.StoreHandler[wire.PodKey, *corev1.Pod]{
		Read: func(obj metav1.Object) (wire.PodKey, *corev1.Pod, bool) {
			pod, ok := obj.(*corev1.Pod)
			if !ok || pod.Spec.NodeName != name {
				return wire.PodKey{}, nil, false
			}
			return keyOf(pod), trim(pod), true
		},
		Replace: func(all map[wire.PodKey]*corev1.Pod) { c.replacePods(n, name, all) },
		Set: func(_ wire.PodKey, pod *corev1.Pod) {
			n.mu.Lock()
			defer n.mu.Unlock()
			c.setPod(n, pod)
		},
		Delete: func(key wire.PodKey, pod *corev1.Pod) {
			n.mu.Lock()
			defer n.mu.Unlock()
			if p, ok := n.pods[key]; ok && p.pod.Spec.NodeName == name {
				c.publishForcedDeletion(n, p, pod)
				c.deletePod(n, key)
			}
		},
		Log: c.config.Logger.WithValues("node", name), Name: "the pods of a virtual node",
	}
}

// trim drops what nobody reads.
func trim(pod *corev1.Pod) *corev1.Pod {
	pod.ManagedFields = nil
	return pod
}

func keyOf(pod *corev1.Pod) wire.PodKey {
	return wire.PodKey{Namespace: pod.Namespace, Name: pod.Name}
}

// replacePods sets all pods of a node. Only now, and when those of the cluster's other
// nodes are known, does a source say that it is complete.
func (c *Controller) replacePods(n *clusterState, name string, all map[wire.PodKey]*corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, p := range n.pods {
		if _, ok := all[key]; !ok && p.pod.Spec.NodeName == name {
			c.deletePod(n, key)
		}
	}
	for _, pod := range all {
		c.setPod(n, pod)
	}
	c.markListed(n, name)
}

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
