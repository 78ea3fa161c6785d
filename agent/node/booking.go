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

// amount is how much of one resource is requested: CPU in thousandths, the rest
// whole and rounded up, as the scheduler counts.
type amount struct {
	resource unique.Handle[corev1.ResourceName]
	value    int64
}

// booking is what one pod takes of its node. There is one for each pod of the
// spoke, so names that recur are held once, and nothing else of the pod is held.
type booking struct {
	node     unique.Handle[string]
	requests []amount // sorted by resource
}

func (b booking) equal(other booking) bool {
	return b.node == other.node && slices.Equal(b.requests, other.requests)
}

// occupant is a pod as far as it is kept, on its way from the API server.
type occupant struct {
	metav1.TypeMeta
	metav1.ObjectMeta // name and namespace

	booking booking
	// ours is true for a pod of the hub, and uid its UID there; the rest is not
	// known of such a pod.
	ours bool
	uid  types.UID
}

var _ runtime.Object = (*occupant)(nil)

// DeepCopyObject returns a copy; what it shares is never written.
func (o *occupant) DeepCopyObject() runtime.Object {
	c := *o
	return &c
}

// GetObjectKind is runtime.Object's.
func (o *occupant) GetObjectKind() schema.ObjectKind { return &o.TypeMeta }

func (o *occupant) key() types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
}

func occupantOf(pod *corev1.Pod, hubID string) *occupant {
	o := &occupant{ObjectMeta: metav1.ObjectMeta{
		// The reflector's own, short-lived store needs them.
		Namespace: pod.Namespace, Name: pod.Name, ResourceVersion: pod.ResourceVersion,
	}}
	if hubID != "" && pod.Labels[translate.LabelHub] == hubID {
		o.ours, o.uid = true, types.UID(pod.Labels[translate.LabelHubPodUID])
		return o
	}
	o.booking = booking{node: unique.Make(pod.Spec.NodeName), requests: requestsOf(pod)}
	return o
}

// requestsOf is what the scheduler of the spoke counts for a pod. Containers whose
// size is being changed count with the most of what is asked for, granted and
// in force.
func requestsOf(pod *corev1.Pod) []amount {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{
		UseStatusResources: true,
		InPlacePodLevelResourcesVerticalScalingEnabled: true,
	})
	all := make([]amount, 0, len(requests))
	for name, quantity := range requests {
		if value := valueOf(name, quantity); value > 0 {
			all = append(all, amount{resource: unique.Make(name), value: value})
		}
	}
	slices.SortFunc(all, func(a, b amount) int { return cmp.Compare(a.resource.Value(), b.resource.Value()) })
	return all
}

func valueOf(name corev1.ResourceName, quantity resource.Quantity) int64 {
	if name != corev1.ResourceCPU {
		return quantity.Value()
	}
	if quantity.Value() > math.MaxInt64/1000 { // in thousandths it would run over
		return math.MaxInt64
	}
	return quantity.MilliValue()
}

// booked is what pods take of each node, by the node's name: the sums of their
// requests, and their number as the resource "pods".
type booked map[string]corev1.ResourceList

// amounts are sums by resource. One stays at its limit rather than run over.
type amounts map[unique.Handle[corev1.ResourceName]]int64

func (s amounts) add(a amount) {
	if s[a.resource] += a.value; s[a.resource] < 0 {
		s[a.resource] = math.MaxInt64
	}
}

func (s amounts) list() corev1.ResourceList {
	list := make(corev1.ResourceList, len(s))
	for handle, value := range s {
		name := handle.Value()
		if name == corev1.ResourceCPU {
			list[name] = *resource.NewMilliQuantity(value, format(name))
		} else {
			list[name] = *resource.NewQuantity(value, format(name))
		}
	}
	return list
}

// book adds up what pods take.
func book(bookings iter.Seq[booking]) booked {
	pods := unique.Make(corev1.ResourcePods)
	sums := map[unique.Handle[string]]amounts{}
	for b := range bookings {
		of := sums[b.node]
		if of == nil {
			of = amounts{}
			sums[b.node] = of
		}
		for _, a := range b.requests {
			of.add(a)
		}
		of.add(amount{resource: pods, value: 1})
	}
	all := make(booked, len(sums))
	for node, of := range sums {
		all[node.Value()] = of.list()
	}
	return all
}
