// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
)

const (
	clustersResource  = "clusters"
	viewWorksResource = "viewworks"
)

// clusterStorage serves clusters from the clusterStore.
type clusterStorage struct{ store *clusterStore }

var (
	_ rest.Getter               = &clusterStorage{}
	_ rest.Lister               = &clusterStorage{}
	_ rest.Watcher              = &clusterStorage{}
	_ rest.Scoper               = &clusterStorage{}
	_ rest.SingularNameProvider = &clusterStorage{}
)

func (*clusterStorage) New() runtime.Object { return &livev1alpha1.Cluster{} }

func (*clusterStorage) NewList() runtime.Object { return &livev1alpha1.ClusterList{} }

func (*clusterStorage) Destroy() {}

func (*clusterStorage) NamespaceScoped() bool { return false }

func (*clusterStorage) GetSingularName() string { return "cluster" }

func (s *clusterStorage) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	c, ok := s.store.get(name)
	if !ok {
		return nil, newClusterNotFound(name)
	}
	return c, nil
}

// List implements rest.Lister. All items come at once, whatever the limit.
func (s *clusterStorage) List(_ context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	match, err := parseSelection(options)
	if err != nil {
		return nil, err
	}
	return s.store.list(match), nil
}

func (s *clusterStorage) Watch(_ context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	match, err := parseSelection(options)
	if err != nil {
		return nil, err
	}
	var version uint64
	if options != nil && options.ResourceVersion != "" {
		version, err = strconv.ParseUint(options.ResourceVersion, 10, 64)
		if err != nil {
			return nil, apierrors.NewBadRequest("resourceVersion: not a version of this server")
		}
	}
	// The machinery asks for initial events on behalf of old clients too; they
	// get the bookmark that ends them only if they know bookmarks.
	streamed := options != nil && options.SendInitialEvents != nil && *options.SendInitialEvents && options.AllowWatchBookmarks
	return s.store.watch(match, version, streamed)
}

func parseSelection(options *internalversion.ListOptions) (selection, error) {
	match := selection{labels: labels.Everything(), fields: fields.Everything()}
	if options == nil {
		return match, nil
	}
	if options.LabelSelector != nil {
		match.labels = options.LabelSelector
	}
	if options.FieldSelector == nil {
		return match, nil
	}
	for _, r := range options.FieldSelector.Requirements() {
		if r.Field != "metadata.name" {
			return match, apierrors.NewBadRequest("fieldSelector: clusters know metadata.name alone, not " + strconv.Quote(r.Field))
		}
	}
	match.fields = options.FieldSelector
	return match, nil
}

func newClusterNotFound(name string) error {
	return apierrors.NewNotFound(livev1alpha1.Resource(clustersResource), name)
}

func (*clusterStorage) ConvertToTable(_ context.Context, object, options runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{}
	if o, ok := options.(*metav1.TableOptions); !ok || !o.NoHeaders {
		table.ColumnDefinitions = clusterColumns()
	}
	if list, err := meta.ListAccessor(object); err == nil {
		table.ResourceVersion = list.GetResourceVersion()
	} else if single, err := meta.CommonAccessor(object); err == nil {
		table.ResourceVersion = single.GetResourceVersion()
	}
	var err error
	table.Rows, err = metatable.MetaToTableRow(object, clusterCells)
	return table, err
}

func clusterColumns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: "Name of the cluster"},
		{Name: "Connected", Type: "string", Description: "Whether a session of the cluster is live"},
		{Name: "Since", Type: "string", Description: "How long the session has lived, or how long ago the last one ended"},
		{Name: "RTT", Type: "string", Description: "Latest round trip through the session"},
		{Name: "Version", Type: "string", Description: "Version of the cluster's API server"},
		{Name: "Agent", Type: "string", Description: "Version of the agent"},
		{Name: "Reason", Type: "string", Priority: 1, Description: "Why the last session ended"},
		{Name: "Process", Type: "string", Priority: 1, Description: "Agent process that the session leads to"},
	}
}

func clusterCells(obj runtime.Object, _ metav1.Object, _, _ string) ([]any, error) {
	c, ok := obj.(*livev1alpha1.Cluster)
	if !ok {
		return nil, apierrors.NewInternalError(errNotCluster)
	}
	connected, since := "False", c.Status.DisconnectedSince
	if c.Status.Connected {
		connected, since = "True", c.Status.ConnectedSince
	}
	age, rtt := "<unknown>", ""
	if since != nil {
		age = metatable.ConvertToHumanReadableDateType(*since)
	}
	if c.Status.RTT != nil {
		rtt = c.Status.RTT.Round(10 * time.Microsecond).String()
	}
	return []any{
		c.Name, connected, age, rtt, c.Status.KubernetesVersion, c.Status.AgentVersion,
		c.Status.Reason, c.Status.ProcessID,
	}, nil
}
