// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/work/manifest"
)

// ResourceKind is how a kind is addressed.
type ResourceKind struct {
	Resource   string
	Namespaced bool
}

// discoverer reads one document of discovery; client-go's clients do.
type discoverer interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
	RESTClient() rest.Interface
}

// KindResolver maps kinds to resources. A manifest names its version, so one document
// of discovery answers; it is read when a kind is first asked for, and again
// when a kind is not in it. A full REST mapper would read and keep all of them.
type KindResolver struct {
	discovery discoverer

	mu     sync.Mutex
	groups map[schema.GroupVersion]map[string]ResourceKind
}

// NewKindResolver returns a resolver that has read nothing yet.
func NewKindResolver(d discoverer) *KindResolver {
	return &KindResolver{discovery: d, groups: map[schema.GroupVersion]map[string]ResourceKind{}}
}

// Resolve returns how gvk is addressed; UnknownKindError when it is not served.
func (k *KindResolver) Resolve(ctx context.Context, gvk schema.GroupVersionKind) (ResourceKind, error) {
	k.mu.Lock()
	known, ok := k.groups[gvk.GroupVersion()][gvk.Kind]
	k.mu.Unlock()
	if ok {
		return known, nil
	}
	list, err := k.discovery.ServerResourcesForGroupVersionWithContext(ctx, gvk.GroupVersion().String())
	if err != nil && !apierrors.IsNotFound(err) {
		return ResourceKind{}, fmt.Errorf("discover %s: %w", gvk.GroupVersion(), err)
	}
	served := indexResources(list)
	k.mu.Lock()
	k.groups[gvk.GroupVersion()] = served
	k.mu.Unlock()
	if known, ok = served[gvk.Kind]; !ok {
		return ResourceKind{}, &manifest.UnknownKindError{Kind: gvk, Served: k.servedVersions(ctx, gvk)}
	}
	return known, nil
}

// servedVersions are the other versions in which a kind is served, for people; none when that
// cannot be found out.
func (k *KindResolver) servedVersions(ctx context.Context, gvk schema.GroupVersionKind) []string {
	var group metav1.APIGroup
	if gvk.Group == "" {
		group.Versions = []metav1.GroupVersionForDiscovery{{GroupVersion: "v1"}}
	} else if err := k.discovery.RESTClient().Get().AbsPath("/apis", gvk.Group).Do(ctx).Into(&group); err != nil {
		return nil
	}
	var served []string
	for _, v := range group.Versions {
		if v.GroupVersion == gvk.GroupVersion().String() {
			continue
		}
		list, err := k.discovery.ServerResourcesForGroupVersionWithContext(ctx, v.GroupVersion)
		if _, ok := indexResources(list)[gvk.Kind]; ok && err == nil {
			served = append(served, v.GroupVersion)
		}
	}
	return served
}

// Invalidate makes the next resolve of the group read it anew.
func (k *KindResolver) Invalidate(gv schema.GroupVersion) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.groups, gv)
}

func indexResources(list *metav1.APIResourceList) map[string]ResourceKind {
	out := map[string]ResourceKind{}
	if list == nil {
		return out
	}
	for _, r := range list.APIResources {
		if strings.Contains(r.Name, "/") {
			continue // a subresource
		}
		out[r.Kind] = ResourceKind{Resource: r.Name, Namespaced: r.Namespaced}
	}
	return out
}

// InvalidateGroup does the same for every version of a group.
func (k *KindResolver) InvalidateGroup(group string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for gv := range k.groups {
		if gv.Group == group {
			delete(k.groups, gv)
		}
	}
}
