// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// clientGetter is the genericclioptions.RESTClientGetter that Helm uses.
type clientGetter struct {
	config    *rest.Config
	namespace string
	cached    func() (discovery.CachedDiscoveryInterface, error)
	mapper    func() (meta.RESTMapper, error)
}

func newClientGetter(config *rest.Config, namespace string) *clientGetter {
	c := &clientGetter{config: config, namespace: namespace}
	c.cached = sync.OnceValues(func() (discovery.CachedDiscoveryInterface, error) {
		client, err := discovery.NewDiscoveryClientForConfig(config)
		if err != nil {
			return nil, fmt.Errorf("client of the cluster: %w", err)
		}
		return memory.NewMemCacheClient(client), nil
	})
	c.mapper = sync.OnceValues(func() (meta.RESTMapper, error) {
		client, err := c.cached()
		if err != nil {
			return nil, err
		}
		return restmapper.NewDeferredDiscoveryRESTMapper(client), nil
	})
	return c
}

// ToRESTConfig returns the configuration of a client.
func (c *clientGetter) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(c.config), nil }

// ToDiscoveryClient returns a cached discovery client.
func (c *clientGetter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	return c.cached()
}

// ToRESTMapper returns the same mapper each time, because Helm resets it after it has
// installed definitions.
func (c *clientGetter) ToRESTMapper() (meta.RESTMapper, error) { return c.mapper() }

// ToRawKubeConfigLoader returns a configuration with the namespace.
func (c *clientGetter) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	return clientcmd.NewDefaultClientConfig(*clientcmdapi.NewConfig(), &clientcmd.ConfigOverrides{
		Context: clientcmdapi.Context{Namespace: c.namespace},
	})
}
