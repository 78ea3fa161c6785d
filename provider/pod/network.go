// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/provider/pod/address"
)

const (
	// notVirtual selects the Nodes that are not virtual ones of this hub, whose address
	// is the hub's own.
	notVirtual = "!" + wire.LabelCluster

	// apiServers is the name of the EndpointSlice of the Service default/kubernetes.
	apiServers = "kubernetes"
)

// networkWatches are the sources of a Network, and how each is listed and watched.
func (c *Controller) networkWatches() map[address.Source]listWatch {
	ranges := c.config.Client.NetworkingV1().ServiceCIDRs()
	nodes := c.config.Client.CoreV1().Nodes()
	endpoints := c.config.Client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	return map[address.Source]listWatch{
		address.Services: {
			kind: &networkingv1.ServiceCIDR{}, watch: ranges.Watch,
			list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return ranges.List(ctx, o) },
		},
		address.Nodes: {
			kind: &corev1.Node{}, watch: nodes.Watch,
			list:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return nodes.List(ctx, o) },
			where: metav1.ListOptions{LabelSelector: notVirtual},
		},
		address.APIServers: {
			kind: &discoveryv1.EndpointSlice{}, watch: endpoints.Watch,
			list:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return endpoints.List(ctx, o) },
			where: metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, apiServers).String()},
		},
	}
}

// followNetwork tells the network what the hub uses until ctx ends. Of each object only
// its claim is kept. A kind that the API server does not serve, or does not let the hub
// read, leaves the network unknown.
func (c *Controller) followNetwork(ctx context.Context, running *sync.WaitGroup) {
	for source, watched := range c.networkWatches() {
		reflector := watched.reflector(c.config.Client, usageStore{network: c.network, source: source}, "the network of the hub")
		running.Go(func() { reflector.RunWithContext(ctx) })
	}
}

// usageStore is what a reflector writes one source of the network into.
type usageStore struct {
	network *address.Network
	source  address.Source
}

var _ cache.ReflectorStore = usageStore{}

// Add takes an object.
func (s usageStore) Add(obj any) error {
	if name, claim, ok := usageOf(obj); ok {
		s.network.Put(s.source, name, claim)
	}
	return nil
}

// Update takes a changed object.
func (s usageStore) Update(obj any) error { return s.Add(obj) }

// Delete takes that an object is gone.
func (s usageStore) Delete(obj any) error {
	if name, _, ok := usageOf(obj); ok {
		s.network.Delete(s.source, name)
	}
	return nil
}

// Replace takes all objects.
func (s usageStore) Replace(objs []any, _ string) error {
	all := make(map[string]address.Usage, len(objs))
	for _, obj := range objs {
		if name, claim, ok := usageOf(obj); ok {
			all[name] = claim
		}
	}
	s.network.Replace(s.source, all)
	return nil
}

// Resync does nothing.
func (s usageStore) Resync() error { return nil }

// usageOf reads what of the hub's network an object uses.
func usageOf(obj any) (name string, claim address.Usage, ok bool) {
	switch obj := obj.(type) {
	case *networkingv1.ServiceCIDR:
		return obj.Name, address.ParseUsage(obj.Spec.CIDRs, nil), true
	case *corev1.Node:
		ranges := obj.Spec.PodCIDRs
		if len(ranges) == 0 && obj.Spec.PodCIDR != "" {
			ranges = []string{obj.Spec.PodCIDR}
		}
		var addresses []string
		for _, a := range obj.Status.Addresses {
			addresses = append(addresses, a.Address)
		}
		return obj.Name, address.ParseUsage(ranges, addresses), true
	case *discoveryv1.EndpointSlice:
		var addresses []string
		for _, e := range obj.Endpoints {
			addresses = append(addresses, e.Addresses...)
		}
		return obj.Name, address.ParseUsage(nil, addresses), obj.Name == apiServers
	default:
		return "", address.Usage{}, false
	}
}
