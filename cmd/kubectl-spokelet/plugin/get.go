// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
	"github.com/spokelet/spokelet/internal/managedcluster"
)

const outputWide = "wide"

func (s *session) getClusters() *cobra.Command {
	output, noHeaders := "", false
	cmd := &cobra.Command{
		Use:     "clusters [NAME...]",
		Aliases: []string{"cluster"},
		Short:   "List the clusters of the hub",
		Long: `List the clusters of the hub.

CONNECTED and SINCE are those of the live session where the hub serves its live
API, and else those of the record's condition.`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: s.completeClusters,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.runGetClusters(cmd.Context(), args, output, noHeaders)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "Output format: wide, json, yaml, name; default a table")
	cmd.Flags().BoolVar(&noHeaders, "no-headers", false, "Leave out the headers of a table")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]cobra.Completion{"wide", "json", "yaml", "name"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (s *session) runGetClusters(ctx context.Context, names []string, output string, noHeaders bool) error {
	printer, err := newPrinter(output, noHeaders)
	if err != nil {
		return err
	}
	hub, err := s.connect()
	if err != nil {
		return err
	}
	clusters, err := listClusters(ctx, hub, names)
	if err != nil {
		return err
	}
	if output != "" && output != outputWide {
		return printRecords(s, printer, clusters, output == "name" || len(names) == 1)
	}
	if len(clusters) == 0 {
		_, _ = fmt.Fprintln(s.ErrOut, "no clusters: let one join with \"kubectl spokelet join NAME\"")
		return nil
	}
	return printer.PrintObj(clusterTable(clusters, s.liveClusters(ctx, hub), time.Now()), s.Out)
}

func newPrinter(output string, noHeaders bool) (printers.ResourcePrinter, error) {
	if output == "" || output == outputWide {
		return printers.NewTablePrinter(printers.PrintOptions{Wide: output == outputWide, NoHeaders: noHeaders}), nil
	}
	flags := genericclioptions.NewPrintFlags("")
	flags.OutputFormat = &output
	printer, err := flags.ToPrinter()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	return printer, nil
}

// listClusters returns our clusters in order of name: all, or the named ones,
// each of which must exist.
func listClusters(ctx context.Context, hub client.Reader, names []string) ([]clusterv1.ManagedCluster, error) {
	if len(names) > 0 {
		return namedClusters(ctx, hub, names)
	}
	list := &clusterv1.ManagedClusterList{}
	if err := hub.List(ctx, list); err != nil {
		return nil, err
	}
	ours := slices.DeleteFunc(list.Items, func(c clusterv1.ManagedCluster) bool { return checkOurs(&c) != nil })
	slices.SortFunc(ours, func(a, b clusterv1.ManagedCluster) int { return cmp.Compare(a.Name, b.Name) })
	return ours, nil
}

func namedClusters(ctx context.Context, hub client.Reader, names []string) ([]clusterv1.ManagedCluster, error) {
	var clusters []clusterv1.ManagedCluster
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		cluster := clusterv1.ManagedCluster{}
		if err := hub.Get(ctx, client.ObjectKey{Name: name}, &cluster); err != nil {
			return nil, err
		}
		if err := checkOurs(&cluster); err != nil {
			return nil, err
		}
		clusters = append(clusters, cluster)
	}
	return clusters, nil
}

// printRecords prints ManagedClusters as kubectl does: each by itself, or all as
// a List.
func printRecords(s *session, printer printers.ResourcePrinter, clusters []clusterv1.ManagedCluster, single bool) error {
	kind := schema.GroupVersionKind{Group: clusterv1.GroupName, Version: "v1", Kind: "ManagedCluster"}
	list := &metav1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []runtime.RawExtension{}}
	for i := range clusters {
		clusters[i].SetGroupVersionKind(kind)
		clusters[i].ManagedFields = nil
		list.Items = append(list.Items, runtime.RawExtension{Object: &clusters[i]})
	}
	if !single {
		return printer.PrintObj(list, s.Out)
	}
	for i := range clusters {
		if err := printer.PrintObj(&clusters[i], s.Out); err != nil {
			return err
		}
	}
	return nil
}

// liveClusters returns what the live API says, nothing where it is not served.
func (s *session) liveClusters(ctx context.Context, hub client.Reader) map[string]livev1alpha1.ClusterStatus {
	list := &livev1alpha1.ClusterList{}
	err := hub.List(ctx, list)
	if err != nil {
		// Missing, it is a choice; in any other case it is worth a word.
		if !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
			_, _ = fmt.Fprintf(s.ErrOut, "live API cannot be asked, so the table shows the records: %v\n", err)
		}
		return nil
	}
	live := make(map[string]livev1alpha1.ClusterStatus, len(list.Items))
	for _, cluster := range list.Items {
		live[cluster.Name] = cluster.Status
	}
	return live
}

func clusterTable(clusters []clusterv1.ManagedCluster, live map[string]livev1alpha1.ClusterStatus, now time.Time) *metav1.Table {
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name"},
		{Name: "Accepted", Type: "string"},
		{Name: "Connected", Type: "string"},
		{Name: "Since", Type: "string"},
		{Name: "Version", Type: "string"},
		{Name: "Age", Type: "string"},
		{Name: "RTT", Type: "string", Priority: 1},
		{Name: "Agent", Type: "string", Priority: 1},
		{Name: "Cluster ID", Type: "string", Priority: 1},
	}}
	for i := range clusters {
		cluster := &clusters[i]
		status, ok := live[cluster.Name]
		if !ok {
			status = statusOfRecord(cluster)
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{
			cluster.Name, yesNo(cluster.Spec.HubAcceptsClient), yesNo(status.Connected), ago(since(status), now),
			orNone(cluster.Status.Version.Kubernetes), ago(&cluster.CreationTimestamp, now),
			rtt(status), orNone(status.AgentVersion), orNone(cluster.Annotations[managedcluster.AnnotationClusterID]),
		}})
	}
	return table
}

// statusOfRecord is what the record's condition says of the session.
func statusOfRecord(cluster *clusterv1.ManagedCluster) livev1alpha1.ClusterStatus {
	condition := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionAvailable)
	switch {
	case condition == nil:
		return livev1alpha1.ClusterStatus{}
	case condition.Status == metav1.ConditionTrue:
		return livev1alpha1.ClusterStatus{Connected: true, ConnectedSince: &condition.LastTransitionTime}
	default:
		return livev1alpha1.ClusterStatus{DisconnectedSince: &condition.LastTransitionTime}
	}
}

func since(status livev1alpha1.ClusterStatus) *metav1.Time {
	if status.Connected {
		return status.ConnectedSince
	}
	return status.DisconnectedSince
}

func ago(t *metav1.Time, now time.Time) string {
	if t.IsZero() {
		return "<none>"
	}
	return duration.HumanDuration(now.Sub(t.Time))
}

func rtt(status livev1alpha1.ClusterStatus) string {
	if status.RTT == nil {
		return "<none>"
	}
	return status.RTT.Round(10 * time.Microsecond).String()
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}
