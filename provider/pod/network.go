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

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/watcher"
	"github.com/spokelet/spokelet/provider/pod/address"
)

const (
	// notVirtual selects the Nodes that are not virtual ones of this hub, whose address
	// is the hub's own.
	notVirtual = "!" + wire.LabelCluster

	// apiServers is the name of the EndpointSlice of the Service default/kubernetes.
	apiServers = "kubernetes"
)

// networkFeeds are the sources of a Network.
func (c *Controller) networkFeeds() map[address.Source]watcher.ListWatch {
	byName := fields.OneTermEqualSelector(metav1.ObjectNameField, apiServers).String()
	return map[address.Source]watcher.ListWatch{
		address.Services: watcher.NewListWatch(c.config.Client.NetworkingV1().ServiceCIDRs(), nil),
		address.Nodes: watcher.NewListWatch(c.config.Client.CoreV1().Nodes(),
			func(o *metav1.ListOptions) { o.LabelSelector = notVirtual }),
		address.APIServers: watcher.NewListWatch(c.config.Client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault),
			func(o *metav1.ListOptions) { o.FieldSelector = byName }),
	}
}

// watchNetwork tells the network what the hub uses until ctx ends. Of each object only
// its addresses are kept. A kind that the API server does not serve, or does not let the
// hub read, leaves the network unknown.
func (c *Controller) watchNetwork(ctx context.Context, running *sync.WaitGroup) {
	for source, feed := range c.networkFeeds() {
		handler := &watcher.StoreHandler[string, address.Usage]{
			Read:    usageOf,
			Replace: func(all map[string]address.Usage) { c.network.Replace(source, all) },
			Set:     func(name string, usage address.Usage) { c.network.Put(source, name, usage) },
			Delete:  func(name string, _ address.Usage) { c.network.Delete(source, name) },
			Log:     c.config.Logger, Name: "the network of the hub",
		}
		running.Go(func() { (&watcher.Watcher{ListWatch: feed, Handler: handler, Log: c.config.Logger}).Run(ctx) })
	}
}

// usageOf reads what of the hub's network an object uses.
func usageOf(obj metav1.Object) (name string, usage address.Usage, ok bool) {
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
