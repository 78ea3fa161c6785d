// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"
)

// errNoResources is returned by an API server that has just started: every other serves some.
var errNoResources = errors.New("the API server names no resources")

// resources are what the cluster served at one time. client-go's own cache is not used: its
// mapper reads discovery with every call while one group is unavailable, and recurses
// without end if there are no groups.
type resources struct {
	mapper meta.RESTMapper
	// readAt is the time before the API server was asked.
	readAt time.Time
	// failed has the groups and versions whose discovery failed, and why: most often those
	// of an aggregated API server that is down.
	failed map[schema.GroupVersion]error
}

// discover reads what the cluster serves. That the discovery of some groups fails is no error.
func discover(client discovery.DiscoveryInterface) (*resources, error) {
	begin := time.Now()
	groups, lists, err := client.ServerGroupsAndResources()
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	switch {
	case err != nil && !partial:
		return nil, err
	case len(lists) == 0 && len(failed) == 0:
		return nil, errNoResources
	}
	known := cachedDiscovery{DiscoveryInterface: client, groups: groups, lists: sortByGroup(groups, lists)}
	groupResources, err := restmapper.GetAPIGroupResources(known)
	if err != nil {
		return nil, err
	}
	mapper := restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(groupResources), known, nil)
	return &resources{mapper: mapper, readAt: begin, failed: failed}, nil
}

// sortByGroup sorts resources in the order of their groups, in which short names are resolved:
// aggregated discovery returns them in any order.
func sortByGroup(groups []*metav1.APIGroup, lists []*metav1.APIResourceList) []*metav1.APIResourceList {
	places := map[string]int{}
	for _, group := range groups {
		for _, version := range group.Versions {
			places[version.GroupVersion] = len(places)
		}
	}
	return slices.SortedStableFunc(slices.Values(lists), func(a, b *metav1.APIResourceList) int {
		return cmp.Compare(places[a.GroupVersion], places[b.GroupVersion])
	})
}

// cachedDiscovery is a client that returns to the mappers of client-go what was read before.
type cachedDiscovery struct {
	discovery.DiscoveryInterface

	groups []*metav1.APIGroup
	lists  []*metav1.APIResourceList
}

func (d cachedDiscovery) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	return d.groups, d.lists, nil
}
