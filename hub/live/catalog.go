// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/api/principal"
)

// maxDiscovery bounds each document of a cluster's discovery.
const maxDiscovery = 16 << 20

// errTooLarge is what reading an answer ends with at its bound.
var errTooLarge = errors.New("answer is too large")

// resource is one resource of a cluster, as far as views need it.
type resource struct {
	gv         schema.GroupVersion
	plural     string
	singular   string
	kind       string
	shortNames []string
	namespaced bool
}

// catalog is what one session's cluster serves, in the order in which names
// are looked up: groups as the cluster lists them, preferred versions first.
type catalog struct {
	session   Session
	resources []resource
}

// find returns the resource that arg means: by name or kind first, then by
// short name, as kubectl does.
func (c *catalog) find(arg resourceArg) (resource, bool) {
	for _, match := range []func(resource) bool{
		func(r resource) bool {
			return arg.name == r.plural || arg.name == r.singular || strings.EqualFold(arg.name, r.kind)
		},
		func(r resource) bool { return slices.Contains(r.shortNames, arg.name) },
	} {
		for _, within := range arg.readings() {
			for _, r := range c.resources {
				if within(r.gv) && match(r) {
					return r, true
				}
			}
		}
	}
	return resource{}, false
}

// readings are the group versions that the argument may mean, the most
// specific first.
func (a resourceArg) readings() []func(schema.GroupVersion) bool {
	if !a.qualified {
		return []func(schema.GroupVersion) bool{func(schema.GroupVersion) bool { return true }}
	}
	return []func(schema.GroupVersion) bool{
		func(gv schema.GroupVersion) bool { return a.versioned != nil && gv == *a.versioned },
		func(gv schema.GroupVersion) bool { return gv.Group == a.group },
	}
}

// catalogs keeps the catalog of each session that was asked.
type catalogs struct {
	mu        sync.Mutex
	byCluster map[string]*catalog // guarded by mu
}

func newCatalogs() *catalogs { return &catalogs{byCluster: map[string]*catalog{}} }

// get returns the catalog of a session. One that is stale, being the one that
// the caller already looked in, is read anew.
func (c *catalogs) get(ctx context.Context, cluster string, s Session, caller principal.Principal, stale *catalog) (*catalog, error) {
	c.mu.Lock()
	known := c.byCluster[cluster]
	c.mu.Unlock()
	if known != nil && known.session == s && known != stale {
		return known, nil
	}
	fresh, err := discover(ctx, s, caller)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byCluster[cluster] = fresh
	return fresh, nil
}

// forget drops the catalog of a cluster whose session has changed.
func (c *catalogs) forget(cluster string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byCluster, cluster)
}

// discover reads what a cluster serves, as the caller. Groups that cannot be
// read, as those of an extension that is down, are left out.
func discover(ctx context.Context, s Session, caller principal.Principal) (*catalog, error) {
	client, err := discovery.NewDiscoveryClientForConfigAndClient(
		&rest.Config{Host: "http://" + kubeDoor, QPS: -1},
		&http.Client{Transport: &asCaller{ctx: ctx, session: s, caller: caller}})
	if err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	groups, lists, err := client.ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	byVersion := make(map[string]*metav1.APIResourceList, len(lists))
	for _, l := range lists {
		byVersion[l.GroupVersion] = l
	}
	c := &catalog{session: s}
	for _, g := range groups {
		c.add(byVersion[g.PreferredVersion.GroupVersion])
		for _, v := range g.Versions {
			if v.GroupVersion != g.PreferredVersion.GroupVersion {
				c.add(byVersion[v.GroupVersion])
			}
		}
	}
	return c, nil
}

// add takes in the resources of one group version that can be read.
func (c *catalog) add(l *metav1.APIResourceList) {
	if l == nil {
		return
	}
	gv, err := schema.ParseGroupVersion(l.GroupVersion)
	if err != nil {
		return
	}
	for _, r := range l.APIResources {
		if strings.Contains(r.Name, "/") || !slices.Contains([]string(r.Verbs), "get") && !slices.Contains([]string(r.Verbs), "list") {
			continue
		}
		c.resources = append(c.resources, resource{
			gv: gv, plural: r.Name, singular: r.SingularName, kind: r.Kind,
			shortNames: r.ShortNames, namespaced: r.Namespaced,
		})
	}
}

// asCaller sends requests through a session as the caller, within a context
// and a bound.
type asCaller struct {
	ctx     context.Context //nolint:containedctx // the discovery client takes none.
	session Session
	caller  principal.Principal
}

// RoundTrip implements http.RoundTripper.
func (a *asCaller) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(a.ctx)
	assert(a.ctx, r.Header, a.caller)
	res, err := a.session.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	res.Body = &bounded{ReadCloser: res.Body, left: maxDiscovery}
	return res, nil
}
