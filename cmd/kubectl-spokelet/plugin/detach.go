// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// workKinds are the APIs by which work is sent to a cluster. A hub serves some.
var workKinds = []schema.GroupVersionKind{
	{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Kind: "Work"},
	{Group: "work.open-cluster-management.io", Version: "v1", Kind: "ManifestWork"},
	{Group: "mcm.ibm.com", Version: "v1beta1", Kind: "Work"},
}

// detachOptions are the flags of detach.
type detachOptions struct {
	selection

	force   bool
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

A cluster's works are deleted first, and with them what they applied in the cluster;
then the pods that run on its node, which is cordoned; then its record, and with
that its node, its certificate's worth and the namespace that the hub made for it.
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
	cmd.Flags().BoolVar(&o.wait, "wait", true, "Wait until the record is gone")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "How long to wait for each cluster")
	return cmd
}

func (s *session) runDetach(ctx context.Context, o detachOptions) error {
	if o.timeout <= 0 {
		return fmt.Errorf("%w: --timeout %s is not positive", errUsage, o.timeout)
	}
	hub, err := s.connect()
	if err != nil {
		return err
	}
	return s.forEachCluster(ctx, "detached", o.selection, func(ctx context.Context, s *session, name string) error {
		ctx, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		return s.detachOne(ctx, hub, name, o)
	})
}

func (s *session) detachOne(ctx context.Context, hub client.WithWatch, name string, o detachOptions) error {
	record := &clusterv1.ManagedCluster{}
	if err := hub.Get(ctx, client.ObjectKey{Name: name}, record); err != nil {
		return err
	}
	if err := checkOurs(record); err != nil {
		return err
	}
	if err := s.endWorks(ctx, hub, name, o.force); err != nil {
		return err
	}
	if err := s.endPods(ctx, hub, name, o.force); err != nil {
		return err
	}
	// The record that was looked at, and no other that took its name since.
	err := hub.Delete(ctx, record, client.Preconditions{UID: &record.UID})
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if o.wait {
		if err := awaitGone(ctx, hub, &clusterv1.ManagedClusterList{}, record); err != nil {
			return fmt.Errorf("managed cluster %q: %w until it is gone: its conditions say what remains", name, err)
		}
	}
	_, _ = fmt.Fprintf(s.Out, "managedcluster.cluster.open-cluster-management.io/%s detached\n", name)
	return nil
}

// endWorks deletes the cluster's works and waits until they are gone; with
// --force it only says which there are.
func (s *session) endWorks(ctx context.Context, hub client.WithWatch, name string, force bool) error {
	for _, kind := range workKinds {
		works, err := listWorks(ctx, hub, kind, name)
		if err != nil {
			return fmt.Errorf("works of kind %s: %w", kind.GroupKind(), err)
		}
		if len(works) == 0 {
			continue
		}
		if force {
			s.printOrphans(kind, works)
			continue
		}
		if err := deleteWorks(ctx, hub, kind, name); err != nil {
			return fmt.Errorf("works of kind %s: %w", kind.GroupKind(), err)
		}
	}
	return nil
}

func listWorks(ctx context.Context, hub client.Reader, kind schema.GroupVersionKind, namespace string) ([]string, error) {
	list := metadataList(kind)
	err := hub.List(ctx, list, client.InNamespace(namespace))
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, work := range list.Items {
		names = append(names, work.Name)
	}
	slices.Sort(names)
	return names, nil
}

func deleteWorks(ctx context.Context, hub client.WithWatch, kind schema.GroupVersionKind, namespace string) error {
	work := &metav1.PartialObjectMetadata{}
	work.SetGroupVersionKind(kind)
	if err := hub.DeleteAllOf(ctx, work, client.InNamespace(namespace)); err != nil {
		return err
	}
	err := await(ctx, hub, metadataList(kind), func(present map[string]client.Object) bool { return len(present) == 0 }, client.InNamespace(namespace))
	if errors.Is(err, errTimeout) {
		return fmt.Errorf("%w until they are gone: is cluster %q connected? --force leaves them applied", err, namespace)
	}
	return err
}

func (s *session) printOrphans(kind schema.GroupVersionKind, works []string) {
	for _, work := range works {
		_, _ = fmt.Fprintf(s.ErrOut, "left applied in the cluster: %s/%s\n", kind.GroupKind(), work)
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
