// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/workconvert"
)

// kind is an API whose works are served, in one namespace of the hub.
type kind struct {
	workconvert.Kind

	namespace string
	resource  schema.GroupVersionResource
	client    rest.Interface
}

// kinds returns what a configuration asks for.
func kinds(cfg Config) ([]*kind, error) {
	all := []*kind{{
		Kind: workconvert.ManifestWorks(workconvert.HubHash(cfg.Hub.Host), false), namespace: cfg.Cluster,
		resource: schema.GroupVersion(workv1.GroupVersion).WithResource("manifestworks"),
	}}
	if cfg.WorkNamespace != "" {
		all = append(all, &kind{
			Kind: workconvert.MulticlusterWorks(), namespace: cfg.WorkNamespace, resource: v1alpha1.GroupVersion.WithResource("works"),
		})
	}
	scheme := runtime.NewScheme()
	if err := workv1.Install(scheme); err != nil {
		return nil, fmt.Errorf("types of works: %w", err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("types of works: %w", err)
	}
	return all, connect(cfg.Hub, scheme, all)
}

// connect gives every kind its client, over one pool of connections.
func connect(cfg *rest.Config, scheme *runtime.Scheme, all []*kind) error {
	pool, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return fmt.Errorf("client of the hub: %w", err)
	}
	for _, k := range all {
		c := rest.CopyConfig(cfg)
		gv := k.resource.GroupVersion()
		c.GroupVersion, c.APIPath = &gv, "/apis"
		c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		if k.client, err = rest.RESTClientForConfigAndClient(c, pool); err != nil {
			return fmt.Errorf("client of the hub: %w", err)
		}
	}
	return nil
}

func (k *kind) key(name string) wire.WorkKey {
	return wire.WorkKey{Dialect: k.Name, Namespace: k.namespace, Name: name}
}

// wrap returns the work that a client of the kind has read.
func (k *kind) wrap(obj any) (workconvert.Work, bool) {
	o, ok := obj.(client.Object)
	if !ok {
		return nil, false
	}
	return k.Wrap(o)
}
