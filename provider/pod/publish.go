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

// AllNamespaces, among the Namespaces of [ObjectPolicy], stands for every namespace.
const AllNamespaces = "*"

// ObjectPolicy says whose ConfigMaps and Secrets pods may have. Whoever controls the
// cluster that a pod runs in has what the pod refers to.
type ObjectPolicy struct {
	// Namespaces are the only ones whose objects are sent to clusters; none when empty.
	Namespaces []string
}

func (p ObjectPolicy) allows(namespace string) bool {
	return slices.Contains(p.Namespaces, namespace) || slices.Contains(p.Namespaces, AllNamespaces)
}

// canRead tells whether the hub may ask its API server for an object: what is sent with
// tokens of the hub is its authority, which every namespace has.
func (c *Controller) canRead(ref wire.PodObjectKey, issued bool) bool {
	authority := ref.Kind == wire.PodObjectConfigMap && ref.Name == podrefs.RootCA
	return c.config.Objects.allows(ref.Namespace) || issued && authority
}

// rejectionStatus says why a pod is not for the cluster, nil when it is. One that was in
// the cluster before the hub's options were changed is let go of by the usual way.
func (c *Controller) rejectionStatus(pod *corev1.Pod) *wire.PodStatus {
	var r wire.PodStatus
	switch {
	case wasInCluster(pod):
		return nil
	case pod.Annotations[corev1.MirrorPodAnnotationKey] != "":
		r.Reason, r.Message = ReasonMirrorPod, mirrorPod
	case !c.config.DaemonSets && isDaemonSetPod(pod):
		r.Reason, r.Message = ReasonDaemonSetPod, daemonSetPod
	default:
		denied, ok := c.deniedObject(pod)
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
func (c *Controller) deniedObject(pod *corev1.Pod) (wire.PodObjectKey, bool) {
	issued := c.tokens.issuesTokens(pod)
	for _, ref := range referencedObjects(pod, issued) {
		if !c.canRead(ref, issued) {
			return ref, true
		}
	}
	return wire.PodObjectKey{}, false
}

func isDaemonSetPod(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "DaemonSet" {
		return false
	}
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && version.Group == appsv1.GroupName
}

// publish brings a pod and what it refers to into Sync; n.mu is held.
func (c *Controller) publish(n *clusterState, key wire.PodKey, p *podState) {
	if c.rejectionStatus(p.pod) != nil {
		c.unpublish(n, key, p)
		return
	}
	if n.forgotten {
		return
	}
	p.hubTokens = c.tokens.issuesTokens(p.pod)
	// A pod that was in its cluster before the option was narrowed keeps there what it
	// has. The API server is not asked for it: it would refuse, again and again.
	c.setReferences(n, p, slices.DeleteFunc(referencedObjects(p.pod, p.hubTokens), func(ref wire.PodObjectKey) bool { return !c.canRead(ref, p.hubTokens) }))
	p.published, p.namespaceUID = true, c.namespaces.uid(p.pod.Namespace)
	c.tokens.updateTokens(n, key, p)
	r, err := c.encodePod(n.name, p.pod, p.hubTokens)
	if err == nil {
		err = c.config.Sync.Source(n.name, wire.KindPod).Put(r)
	}
	if err != nil {
		c.config.Logger.Error(err, "cannot send a pod to its cluster", "node", n.name, "pod", key.String())
	}
}

// unpublish takes a pod and what it refers to out of Sync; n.mu is held.
func (c *Controller) unpublish(n *clusterState, key wire.PodKey, p *podState) {
	if p.published && !n.forgotten {
		c.config.Sync.Source(n.name, wire.KindPod).Delete(key.String())
	}
	p.published = false
	c.tokens.unpublishTokens(n, p)
	c.setReferences(n, p, nil)
}

// setReferences makes refs all that a pod keeps watched; n.mu is held.
func (c *Controller) setReferences(n *clusterState, p *podState, refs []wire.PodObjectKey) {
	for _, r := range refs {
		if !slices.Contains(p.refs, r) {
			c.objects.AddReference(n.subscriber, r)
		}
	}
	for _, r := range p.refs {
		if !slices.Contains(refs, r) {
			c.objects.RemoveReference(n.subscriber, r)
		}
	}
	p.refs = refs
}

func referencedObjects(pod *corev1.Pod, issued bool) []wire.PodObjectKey {
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

// encodePod makes of a pod what an agent gets of it.
func (c *Controller) encodePod(cluster string, pod *corev1.Pod, issued bool) (resource.Resource, error) {
	_, group := wire.ParseNodeName(pod.Spec.NodeName)
	allowed, _ := c.consents.get(cluster)
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
		NamespaceUID: c.namespaces.uid(pod.Namespace),

		Seen:   wasInCluster(pod),
		Ended:  hasEnded(pod.Status.Phase),
		Issued: issued,
	}.Encode()
	if err != nil {
		return resource.Resource{}, err
	}
	return resource.Resource{Key: keyOf(pod).String(), UID: string(pod.UID), Generation: pod.Generation, Body: body}, nil
}

// loadPod makes a body at the moment it is sent.
func (c *Controller) loadPod(cluster, key string) (resource.Resource, bool) {
	parsed, err := wire.ParsePodKey(key)
	if err != nil {
		return resource.Resource{}, false
	}
	n := c.getCluster(cluster)
	if n == nil {
		return resource.Resource{}, false
	}
	n.mu.Lock()
	p, ok := n.pods[parsed]
	ok = ok && p.published
	var pod *corev1.Pod
	var issued bool
	if ok {
		pod, issued = p.pod, p.hubTokens
	}
	n.mu.Unlock()
	if !ok {
		return resource.Resource{}, false // its Delete follows
	}
	r, err := c.encodePod(cluster, pod, issued)
	return r, err == nil
}

// wasInCluster tells whether a pod was in its cluster: a status from there was written.
func wasInCluster(pod *corev1.Pod) bool {
	return statusCondition(&pod.Status, wire.ConditionInCluster) != nil
}

func hasEnded(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}
