// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/spokelet/spokelet/agent/pod/translate"
)

// resourceAmount is how much of one resource is requested: CPU in thousandths, the rest
// whole and rounded up, as the scheduler counts.
type resourceAmount struct {
	resource unique.Handle[corev1.ResourceName]
	value    int64
}

// podRequests is what one pod takes of its node. There is one for each pod of the
// spoke, so names that recur are held once, and nothing else of the pod is held.
type podRequests struct {
	node    unique.Handle[string]
	amounts []resourceAmount // sorted by resource
}

func (b podRequests) equal(other podRequests) bool {
	return b.node == other.node && slices.Equal(b.amounts, other.amounts)
}

// trimmedPod is a pod as far as it is kept, on its way from the API server.
type trimmedPod struct {
	metav1.TypeMeta
	metav1.ObjectMeta // name and namespace

	requests podRequests
	// isHubPod is true for a pod of the hub, and uid its UID there; the rest is not
	// known of such a pod.
	isHubPod bool
	hubUID   types.UID
}

var _ runtime.Object = (*trimmedPod)(nil)

// DeepCopyObject returns a copy; what it shares is never written.
func (o *trimmedPod) DeepCopyObject() runtime.Object {
	c := *o
	return &c
}

// GetObjectKind is runtime.Object's.
func (o *trimmedPod) GetObjectKind() schema.ObjectKind { return &o.TypeMeta }

func (o *trimmedPod) key() types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
}

func trimPod(pod *corev1.Pod, hubID string) *trimmedPod {
	o := &trimmedPod{ObjectMeta: metav1.ObjectMeta{
		// The reflector's own, short-lived store needs them.
		Namespace: pod.Namespace, Name: pod.Name, ResourceVersion: pod.ResourceVersion,
	}}
	if hubID != "" && pod.Labels[translate.LabelHub] == hubID {
		o.isHubPod, o.hubUID = true, types.UID(pod.Labels[translate.LabelHubPodUID])
		return o
	}
	o.requests = podRequests{node: unique.Make(pod.Spec.NodeName), amounts: requestedAmounts(pod)}
	return o
}

// requestedAmounts is what the scheduler of the spoke counts for a pod. Containers whose
// size is being changed count with the most of what is asked for, granted and
// in force.
func requestedAmounts(pod *corev1.Pod) []resourceAmount {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{
		UseStatusResources: true,
		InPlacePodLevelResourcesVerticalScalingEnabled: true,
	})
	all := make([]resourceAmount, 0, len(requests))
	for name, quantity := range requests {
		if value := scaledValue(name, quantity); value > 0 {
			all = append(all, resourceAmount{resource: unique.Make(name), value: value})
		}
	}
	slices.SortFunc(all, func(a, b resourceAmount) int { return cmp.Compare(a.resource.Value(), b.resource.Value()) })
	return all
}

func scaledValue(name corev1.ResourceName, quantity resource.Quantity) int64 {
	if name != corev1.ResourceCPU {
		return quantity.Value()
	}
	if quantity.Value() > math.MaxInt64/1000 { // in thousandths it would run over
		return math.MaxInt64
	}
	return quantity.MilliValue()
}

// requestsByNode is what pods take of each node, by the node's name: the sums of their
// requests, and their number as the resource "pods".
type requestsByNode map[string]corev1.ResourceList

// resourceSums are sums by resource. One stays at its limit rather than run over.
type resourceSums map[unique.Handle[corev1.ResourceName]]int64

func (s resourceSums) add(a resourceAmount) {
	if s[a.resource] += a.value; s[a.resource] < 0 {
		s[a.resource] = math.MaxInt64
	}
}

func (s resourceSums) resourceList() corev1.ResourceList {
	list := make(corev1.ResourceList, len(s))
	for handle, value := range s {
		name := handle.Value()
		if name == corev1.ResourceCPU {
			list[name] = *resource.NewMilliQuantity(value, quantityFormat(name))
		} else {
			list[name] = *resource.NewQuantity(value, quantityFormat(name))
		}
	}
	return list
}

// sumRequests adds up what pods take.
func sumRequests(bookings iter.Seq[podRequests]) requestsByNode {
	pods := unique.Make(corev1.ResourcePods)
	sums := map[unique.Handle[string]]resourceSums{}
	for b := range bookings {
		of := sums[b.node]
		if of == nil {
			of = resourceSums{}
			sums[b.node] = of
		}
		for _, a := range b.amounts {
			of.add(a)
		}
		of.add(resourceAmount{resource: pods, value: 1})
	}
	all := make(requestsByNode, len(sums))
	for node, of := range sums {
		all[node.Value()] = of.resourceList()
	}
	return all
}
