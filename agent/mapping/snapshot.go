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

// errNothing: every API server serves something, unless it has just begun.
var errNothing = errors.New("the API server names no resources")

// snapshot is what the cluster served at one time. client-go's own cache is not used: its
// mapper reads discovery with every question while one group cannot be read, and recurses
// without end if there are no groups.
type snapshot struct {
	mapper meta.RESTMapper
	// read is when, before the API server was asked.
	read time.Time
	// failed are the groups and versions that could not be read, and why: most often those
	// of an aggregated API server that is away.
	failed map[schema.GroupVersion]error
}

// takeSnapshot reads what the cluster serves. That some groups cannot be read is no error.
func takeSnapshot(client discovery.DiscoveryInterface) (*snapshot, error) {
	begin := time.Now()
	groups, lists, err := client.ServerGroupsAndResources()
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	switch {
	case err != nil && !partial:
		return nil, err
	case len(lists) == 0 && len(failed) == 0:
		return nil, errNothing
	}
	known := discovered{DiscoveryInterface: client, groups: groups, lists: inOrder(groups, lists)}
	resources, err := restmapper.GetAPIGroupResources(known)
	if err != nil {
		return nil, err
	}
	mapper := restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(resources), known, nil)
	return &snapshot{mapper: mapper, read: begin, failed: failed}, nil
}

// inOrder sorts resources as their groups are, which is the order in which short names are
// looked for: aggregated discovery returns them in any.
func inOrder(groups []*metav1.APIGroup, lists []*metav1.APIResourceList) []*metav1.APIResourceList {
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

// discovered is a client that has read already what the mappers of client-go ask it for.
type discovered struct {
	discovery.DiscoveryInterface

	groups []*metav1.APIGroup
	lists  []*metav1.APIResourceList
}

// ServerGroupsAndResources implements discovery.DiscoveryInterface.
func (d discovered) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	return d.groups, d.lists, nil
}
