// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/internal/managedcluster"
)

// workKinds are the APIs by which work is sent to a cluster. A hub serves some.
var workKinds = []schema.GroupVersionKind{
	{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Kind: "Work"},
	{Group: "work.open-cluster-management.io", Version: "v1", Kind: "ManifestWork"},
	{Group: "mcm.ibm.com", Version: "v1beta1", Kind: "Work"},
}

// recordResource is how the kind of a record is printed.
const recordResource = "managedcluster.cluster.open-cluster-management.io"

// detachOptions are the flags of detach.
type detachOptions struct {
	selection

	force   bool
	cancel  bool
	wait    bool
	timeout time.Duration
}

func (s *session) detach() *cobra.Command {
	var o detachOptions
	file := ""
	cmd := &cobra.Command{
		Use:   "detach NAME...",
		Short: "Take clusters off the hub",
		Long: `Take clusters off the hub.

The record of a cluster says first that it leaves, by the taint
spokelet.io/detaching: from then on nothing new is made for it. Then its works are
deleted, and with them what they applied in the cluster; then the pods that run on
its node, which is cordoned; then its record, and with that its node, its
certificate's worth and the namespace that the hub made for it. If that does not end
in time, what holds it up is named; detach again goes on, and --cancel takes the
taint away.

A cluster that is not connected cannot clean up: --force takes it off all the same,
and names the works and pods that were left there.

Of many clusters one that fails does not stop the others: why it did is printed, and
the exit code is 1.`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: s.completeClusters,
		RunE: func(cmd *cobra.Command, args []string) error {
			selected, err := s.selectClusters(args, file)
			if err != nil {
				return err
			}
			o.selection = selected
			return s.runDetach(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "File with names of clusters, a line each; - is stdin")
	cmd.Flags().BoolVar(&o.force, "force", false, "Leave what is applied in the cluster as it is")
	cmd.Flags().BoolVar(&o.cancel, "cancel", false, "Keep clusters whose detaching has not ended: what was not deleted stays, and new works may come")
	cmd.Flags().BoolVar(&o.wait, "wait", true, "Wait until the record is gone")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "How long to wait for each cluster")
	return cmd
}

func (s *session) runDetach(ctx context.Context, o detachOptions) error {
	if o.timeout <= 0 {
		return fmt.Errorf("%w: --timeout %s is not positive", errUsage, o.timeout)
	}
	if o.cancel && o.force {
		return fmt.Errorf("%w: --cancel goes without --force", errUsage)
	}
	hub, err := s.connect()
	if err != nil {
		return err
	}
	return s.forEachCluster(ctx, o.done(), o.selection, func(ctx context.Context, s *session, name string) error {
		ctx, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		return s.detachOne(ctx, hub, name, o)
	})
}

// done is what clusters are when the command has ended.
func (o *detachOptions) done() string {
	if o.cancel {
		return "retained"
	}
	return "detached"
}

func (s *session) detachOne(ctx context.Context, hub client.WithWatch, name string, o detachOptions) error {
	record := &clusterv1.ManagedCluster{}
	if err := hub.Get(ctx, client.ObjectKey{Name: name}, record); err != nil {
		return err
	}
	if err := checkOurs(record); err != nil {
		return err
	}
	if o.cancel {
		return s.retain(ctx, hub, record)
	}
	err := s.takeApart(ctx, hub, record, o)
	if errors.Is(err, errTimeout) {
		s.printHeld(context.WithoutCancel(ctx), hub, record)
	}
	if err == nil {
		_, _ = fmt.Fprintf(s.Out, "%s/%s detached\n", recordResource, name)
	}
	return err
}

// takeApart ends what there is of a cluster, and at last its record. What is ended stays
// so: nothing new is made for a cluster whose record says that it leaves.
func (s *session) takeApart(ctx context.Context, hub client.WithWatch, record *clusterv1.ManagedCluster, o detachOptions) error {
	name := record.Name
	if !served(record) {
		return s.deleteRecord(ctx, hub, record, o)
	}
	if !o.force && record.DeletionTimestamp.IsZero() {
		if err := announce(ctx, hub, record); err != nil {
			return err
		}
	}
	if err := s.endWorks(ctx, hub, name, o.force); err != nil {
		return err
	}
	if err := s.endPods(ctx, hub, name, o.force); err != nil {
		return err
	}
	return s.deleteRecord(ctx, hub, record, o)
}

// served tells whether a record can have works, pods and a namespace. Those of the name
// of one that the hub refuses are somebody else's.
func served(record *clusterv1.ManagedCluster) bool {
	accepted := meta.FindStatusCondition(record.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted)
	return accepted == nil || accepted.Reason != managedcluster.ReasonInvalidName
}

// deleteRecord deletes the record that was looked at, and no other that took its name
// since.
func (s *session) deleteRecord(ctx context.Context, hub client.WithWatch, record *clusterv1.ManagedCluster, o detachOptions) error {
	err := hub.Delete(ctx, record, client.Preconditions{UID: &record.UID})
	if client.IgnoreNotFound(err) != nil || !o.wait {
		return client.IgnoreNotFound(err)
	}
	if err := awaitGone(ctx, hub, &clusterv1.ManagedClusterList{}, record); err != nil {
		return fmt.Errorf("managed cluster %q: %w until it is gone", record.Name, err)
	}
	return nil
}

// announce says on the record of a cluster that it leaves, and waits until the hub knows.
func announce(ctx context.Context, hub client.WithWatch, record *clusterv1.ManagedCluster) error {
	if err := change(ctx, hub, record, func() { managedcluster.MarkDetaching(record, time.Now()) }); err != nil {
		return err
	}
	err := await(ctx, hub, &clusterv1.ManagedClusterList{}, func(present map[string]client.Object) bool {
		now, ok := present[record.Name].(*clusterv1.ManagedCluster)
		return !ok || now.UID != record.UID || meta.IsStatusConditionTrue(now.Status.Conditions, managedcluster.ConditionDetaching)
	}, client.MatchingFields{metav1.ObjectNameField: record.Name})
	if err != nil {
		return fmt.Errorf("managed cluster %q: %w until the hub knows that it is detached: is the hub running?", record.Name, err)
	}
	return nil
}

// retain takes back what announce has said.
func (s *session) retain(ctx context.Context, hub client.Client, record *clusterv1.ManagedCluster) error {
	if err := change(ctx, hub, record, func() { managedcluster.UnmarkDetaching(record) }); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(s.Out, "%s/%s retained\n", recordResource, record.Name)
	return nil
}

// endWorks deletes the cluster's works and waits until they are gone; with
// --force it only says which there are.
func (s *session) endWorks(ctx context.Context, hub client.WithWatch, name string, force bool) error {
	for {
		left, err := listAllWorks(ctx, hub, name)
		if err != nil || len(left) == 0 {
			return err
		}
		if force {
			s.printOrphans(left)
			return nil
		}
		// Again until there are none: one may have been made while the hub was told.
		if err := deleteWorks(ctx, hub, left, name); err != nil {
			return err
		}
	}
}

// listAllWorks returns the works in the namespace of a cluster by kind. A kind without
// works, or that the hub does not serve, is not among them.
func listAllWorks(ctx context.Context, hub client.Reader, cluster string) (map[schema.GroupVersionKind][]metav1.PartialObjectMetadata, error) {
	left := map[schema.GroupVersionKind][]metav1.PartialObjectMetadata{}
	for _, kind := range workKinds {
		works, err := listWorks(ctx, hub, kind, cluster)
		if err != nil {
			return nil, fmt.Errorf("works of kind %s: %w", kind.GroupKind(), err)
		}
		if len(works) > 0 {
			left[kind] = works
		}
	}
	return left, nil
}

func listWorks(ctx context.Context, hub client.Reader, kind schema.GroupVersionKind, namespace string) ([]metav1.PartialObjectMetadata, error) {
	list := metadataList(kind)
	err := hub.List(ctx, list, client.InNamespace(namespace))
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	return list.Items, err
}

// deleteWorks deletes all works of all kinds before it waits for any.
func deleteWorks(ctx context.Context, hub client.WithWatch, works map[schema.GroupVersionKind][]metav1.PartialObjectMetadata, namespace string) error {
	for kind := range works {
		work := &metav1.PartialObjectMetadata{}
		work.SetGroupVersionKind(kind)
		if err := hub.DeleteAllOf(ctx, work, client.InNamespace(namespace)); err != nil {
			return fmt.Errorf("works of kind %s: %w", kind.GroupKind(), err)
		}
	}
	for kind := range works {
		err := await(ctx, hub, metadataList(kind), func(present map[string]client.Object) bool { return len(present) == 0 }, client.InNamespace(namespace))
		if err != nil {
			return fmt.Errorf("works of kind %s: %w until they are gone", kind.GroupKind(), err)
		}
	}
	return nil
}

func (s *session) printOrphans(left map[schema.GroupVersionKind][]metav1.PartialObjectMetadata) {
	for _, kind := range workKinds {
		for i := range left[kind] {
			_, _ = fmt.Fprintf(s.ErrOut, "left applied in the cluster: %s/%s\n", kind.GroupKind(), left[kind][i].Name)
		}
	}
}

func metadataList(kind schema.GroupVersionKind) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return list
}

// awaitGone waits until the object with this UID is no more.
func awaitGone(ctx context.Context, hub client.WithWatch, list client.ObjectList, object client.Object) error {
	return await(ctx, hub, list, func(present map[string]client.Object) bool {
		found, ok := present[object.GetName()]
		return !ok || found.GetUID() != object.GetUID()
	}, client.MatchingFields{metav1.ObjectNameField: object.GetName()})
}
