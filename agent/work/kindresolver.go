// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

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

// resourceKind is how a kind is addressed.
type resourceKind struct {
	resource   string
	namespaced bool
}

// discoverer reads one document of discovery; client-go's clients do.
type discoverer interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
	RESTClient() rest.Interface
}

// kindResolver maps kinds to resources. A manifest names its version, so one document
// of discovery answers; it is read when a kind is first asked for, and again
// when a kind is not in it. A full REST mapper would read and keep all of them.
type kindResolver struct {
	discovery discoverer

	mu     sync.Mutex
	groups map[schema.GroupVersion]map[string]resourceKind
}

func newKindResolver(d discoverer) *kindResolver {
	return &kindResolver{discovery: d, groups: map[schema.GroupVersion]map[string]resourceKind{}}
}

// resolve returns how gvk is addressed; UnknownKindError when it is not served.
func (k *kindResolver) resolve(ctx context.Context, gvk schema.GroupVersionKind) (resourceKind, error) {
	k.mu.Lock()
	known, ok := k.groups[gvk.GroupVersion()][gvk.Kind]
	k.mu.Unlock()
	if ok {
		return known, nil
	}
	list, err := k.discovery.ServerResourcesForGroupVersionWithContext(ctx, gvk.GroupVersion().String())
	if err != nil && !apierrors.IsNotFound(err) {
		return resourceKind{}, fmt.Errorf("discover %s: %w", gvk.GroupVersion(), err)
	}
	served := indexResources(list)
	k.mu.Lock()
	k.groups[gvk.GroupVersion()] = served
	k.mu.Unlock()
	if known, ok = served[gvk.Kind]; !ok {
		return resourceKind{}, &manifest.UnknownKindError{Kind: gvk, Served: k.servedVersions(ctx, gvk)}
	}
	return known, nil
}

// servedVersions are the other versions in which a kind is served, for people; none when that
// cannot be found out.
func (k *kindResolver) servedVersions(ctx context.Context, gvk schema.GroupVersionKind) []string {
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

// forget makes the next resolve of the group read it anew.
func (k *kindResolver) forget(gv schema.GroupVersion) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.groups, gv)
}

func indexResources(list *metav1.APIResourceList) map[string]resourceKind {
	out := map[string]resourceKind{}
	if list == nil {
		return out
	}
	for _, r := range list.APIResources {
		if strings.Contains(r.Name, "/") {
			continue // a subresource
		}
		out[r.Kind] = resourceKind{resource: r.Name, namespaced: r.Namespaced}
	}
	return out
}

// forgetGroup does the same for every version of a group.
func (k *kindResolver) forgetGroup(group string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for gv := range k.groups {
		if gv.Group == group {
			delete(k.groups, gv)
		}
	}
}
