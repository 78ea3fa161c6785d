// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/podrefs"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// ReasonDaemonSetPod: the pods of DaemonSets are not taken.
	ReasonDaemonSetPod = "DaemonSetPod"
	// ReasonMirrorPod: the pod is the image of one that a kubelet has from a file.
	ReasonMirrorPod = "MirrorPod"
	// ReasonObjectNotAllowed: the pod refers to a ConfigMap or a Secret of a namespace
	// whose objects are not sent to clusters.
	ReasonObjectNotAllowed = "ObjectNotAllowed"

	daemonSetPod = "a DaemonSet is for every node, and this node is a whole cluster: the hub takes such pods only with its option pods.daemonSets"
	mirrorPod    = "the pod mirrors one that a kubelet has from a file, which this node has none of"
)

// refusal says why a pod is not for the cluster, nil when it is. One that was in
// the cluster before the hub's options were changed is let go of by the usual way.
func (k *Keeper) refusal(pod *corev1.Pod) *wire.PodStatus {
	var r wire.PodStatus
	switch {
	case seen(pod):
		return nil
	case pod.Annotations[corev1.MirrorPodAnnotationKey] != "":
		r.Reason, r.Message = ReasonMirrorPod, mirrorPod
	case !k.config.DaemonSets && ofDaemonSet(pod):
		r.Reason, r.Message = ReasonDaemonSetPod, daemonSetPod
	default:
		denied, ok := k.deniedObject(pod)
		if !ok {
			return nil
		}
		r.Reason = ReasonObjectNotAllowed
		r.Message = wire.Line(fmt.Sprintf("the pod refers to %s %q, and namespace %q is not in the hub's option pods.namespaces", denied.Kind, denied.Name, denied.Namespace))
	}
	r.Generation = pod.Generation
	r.Gone = pod.DeletionTimestamp != nil
	return &r
}

// deniedObject returns the first object, by kind and name, that a pod refers to and that
// it may not have.
func (k *Keeper) deniedObject(pod *corev1.Pod) (wire.PodObjectKey, bool) {
	issued := k.issues(pod)
	for _, ref := range refsOf(pod, issued) {
		if !k.mayRead(ref, issued) {
			return ref, true
		}
	}
	return wire.PodObjectKey{}, false
}

func ofDaemonSet(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "DaemonSet" {
		return false
	}
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && version.Group == appsv1.GroupName
}

// publish brings a pod and what it refers to into Sync; n.mu is held.
func (k *Keeper) publish(n *node, key wire.PodKey, h *held) {
	if k.refusal(h.pod) != nil {
		k.withdraw(n, key, h)
		return
	}
	if n.muted {
		return
	}
	h.issued = k.issues(h.pod)
	// A pod that was in its cluster before the option was narrowed keeps there what it
	// has. The API server is not asked for it: it would refuse, again and again.
	k.refer(n, h, slices.DeleteFunc(refsOf(h.pod, h.issued), func(ref wire.PodObjectKey) bool { return !k.mayRead(ref, h.issued) }))
	h.sent, h.namespaceUID = true, k.namespaces.uid(h.pod.Namespace)
	k.entitle(n, key, h)
	r, err := k.encode(n.name, h.pod, h.issued)
	if err == nil {
		err = k.config.Sync.Source(n.name, wire.KindPod).Put(r)
	}
	if err != nil {
		k.config.Logger.Error(err, "cannot send a pod to its cluster", "node", n.name, "pod", key.String())
	}
}

// withdraw takes a pod and what it refers to out of Sync; n.mu is held.
func (k *Keeper) withdraw(n *node, key wire.PodKey, h *held) {
	if h.sent && !n.muted {
		k.config.Sync.Source(n.name, wire.KindPod).Delete(key.String())
	}
	h.sent = false
	k.revoke(n, h)
	k.refer(n, h, nil)
}

// refer makes refs all that a pod keeps watched; n.mu is held.
func (k *Keeper) refer(n *node, h *held, refs []wire.PodObjectKey) {
	for _, r := range refs {
		if !slices.Contains(h.refs, r) {
			k.objects.use(n.audience, r)
		}
	}
	for _, r := range h.refs {
		if !slices.Contains(refs, r) {
			k.objects.release(n.audience, r)
		}
	}
	h.refs = refs
}

func refsOf(pod *corev1.Pod, issued bool) []wire.PodObjectKey {
	refs := podrefs.Of
	if issued {
		refs = podrefs.WithTokens
	}
	var keys []wire.PodObjectKey
	for _, r := range refs(pod) {
		keys = append(keys, wire.PodObjectKey{Kind: r.Kind, Namespace: pod.Namespace, Name: r.Name})
	}
	return keys
}

// encode makes of a pod what an agent gets of it.
func (k *Keeper) encode(cluster string, pod *corev1.Pod, issued bool) (resource.Resource, error) {
	_, group := wire.ParseNodeName(pod.Spec.NodeName)
	allowed, _ := k.consents.of(cluster)
	body, err := wire.Pod{
		Group: group, SplitLabel: allowed.SplitLabel,
		Pod: corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, Generation: pod.Generation,
				Labels: pod.Labels, Annotations: pod.Annotations, OwnerReferences: pod.OwnerReferences,
				DeletionTimestamp: pod.DeletionTimestamp, DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
			},
			Spec: pod.Spec,
		},
		NamespaceUID: k.namespaces.uid(pod.Namespace),

		Seen:   seen(pod),
		Ended:  ended(pod.Status.Phase),
		Issued: issued,
	}.Encode()
	if err != nil {
		return resource.Resource{}, err
	}
	return resource.Resource{Key: keyOf(pod).String(), UID: string(pod.UID), Generation: pod.Generation, Body: body}, nil
}

// load makes a body at the moment it is sent.
func (k *Keeper) load(cluster, key string) (resource.Resource, bool) {
	parsed, err := wire.ParsePodKey(key)
	if err != nil {
		return resource.Resource{}, false
	}
	n := k.find(cluster)
	if n == nil {
		return resource.Resource{}, false
	}
	n.mu.Lock()
	h, ok := n.pods[parsed]
	ok = ok && h.sent
	var pod *corev1.Pod
	var issued bool
	if ok {
		pod, issued = h.pod, h.issued
	}
	n.mu.Unlock()
	if !ok {
		return resource.Resource{}, false // its Delete follows
	}
	r, err := k.encode(cluster, pod, issued)
	return r, err == nil
}

// seen tells whether a pod was in its cluster: a status from there was written.
func seen(pod *corev1.Pod) bool {
	return conditionOf(&pod.Status, wire.ConditionInCluster) != nil
}

func ended(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}
