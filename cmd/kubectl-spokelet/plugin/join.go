// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/hub/registration/token"
	"github.com/spokelet/spokelet/internal/clustername"
	"github.com/spokelet/spokelet/internal/managedcluster"
	"github.com/spokelet/spokelet/tunnel/identity"
)

const (
	defaultChart = "oci://ghcr.io/spokelet/charts/spokelet-agent"
	maxExpiry    = 30 * 24 * time.Hour
	joinPage     = "spokelet-hub"
)

// joinOptions are the flags of join.
type joinOptions struct {
	selection

	accept       bool
	acceptGiven  bool
	expires      time.Duration
	timeout      time.Duration
	splitLabel   string
	chart        string
	output       string
	hubNamespace string
}

func (s *session) join() *cobra.Command {
	var o joinOptions
	file := ""
	cmd := &cobra.Command{
		Use:   "join NAME...",
		Short: "Let clusters join the hub",
		Long: `Let clusters join the hub under the given names, DNS labels.

The record of the cluster is made, and a join token, which is shown only now. What
is printed is to be run against the cluster that joins. A cluster that is known
already gets a new token; the one before is worthless then.

Of many clusters the lines are printed in the order of the names. Each line is for
another cluster and names no kube context: run it with that of its cluster, never
with the hub's. With -o json it is an object a line, also for a file of one name.
All names are looked at before anything is made. A cluster that fails does not stop
the others, unless what is printed cannot be written: why it failed is printed, and
the exit code is 1.

The hash of the token is kept in a Secret of the hub's namespace (--hub-namespace):
whoever may write there decides which clusters join.`,
		Example: `  # accepted at once; the token is good for one hour
  kubectl spokelet join store1

  # someone else will accept it
  kubectl spokelet join store1 --accept=false --expires 24h

  # many, by the shell's braces or from a file with a name a line
  kubectl spokelet join store-{1..1000} --expires 24h -o json > stores.json
  kubectl spokelet join -f stores.txt -o json > stores.json`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			selected, err := s.selectClusters(args, file)
			if err != nil {
				return err
			}
			o.selection, o.acceptGiven = selected, cmd.Flags().Changed("accept")
			return s.runJoin(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "File with names of clusters, a line each; - is stdin")
	cmd.Flags().BoolVar(&o.accept, "accept", true, "Accept the cluster; needs the right to update managedclusters/accept")
	cmd.Flags().DurationVar(&o.expires, "expires", time.Hour, "How long the token can be used, at most 720h")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 30*time.Second, "How long to wait for the hub to make the cluster's namespace")
	cmd.Flags().StringVar(&o.splitLabel, "split-label", "", "Consent to show the cluster in groups of its nodes by this label (node.splitLabel of its agent); pods that select by it go to these nodes")
	cmd.Flags().StringVar(&o.chart, "agent-chart", defaultChart, "Chart of the agent: a reference, an archive or a directory")
	cmd.Flags().StringVar(&o.hubNamespace, "hub-namespace", "spokelet-system", "Namespace of the hub")
	cmd.Flags().StringVarP(&o.output, "output", "o", outputHelm, "What to print: helm (one command line), values (of the chart), json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]cobra.Completion{outputHelm, outputValues, outputJSON}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *joinOptions) validate() error {
	for _, name := range o.names {
		// The hub refuses the same names, but only the agent would hear of it.
		if err := clustername.Check(name, o.hubNamespace); err != nil {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
	}
	if o.expires < time.Minute || o.expires > maxExpiry {
		return fmt.Errorf("%w: --expires %s is not between 1m and %s", errUsage, o.expires, maxExpiry)
	}
	if o.splitLabel != "" {
		if err := wire.CheckSplitLabel(o.splitLabel); err != nil {
			return fmt.Errorf("%w: --split-label: %w", errUsage, err)
		}
	}
	if o.timeout <= 0 {
		return fmt.Errorf("%w: --timeout %s is not positive", errUsage, o.timeout)
	}
	if _, ok := joinPrinters[o.output]; !ok {
		return fmt.Errorf("%w: --output %q is none of helm, values, json", errUsage, o.output)
	}
	return nil
}

func (s *session) runJoin(ctx context.Context, o joinOptions) error {
	if err := o.validate(); err != nil {
		return err
	}
	hub, err := s.connect()
	if err != nil {
		return err
	}
	page, err := readPage(ctx, hub, o.hubNamespace)
	if err != nil {
		return err
	}
	return s.forEachCluster(ctx, "joined", o.selection, func(ctx context.Context, s *session, name string) error {
		return s.joinOne(ctx, hub, page, name, o)
	})
}

// joinOne prints what one cluster needs to join.
func (s *session) joinOne(ctx context.Context, hub client.WithWatch, page hubPage, name string, o joinOptions) error {
	record, err := s.ensureRecord(ctx, hub, name, o)
	if err != nil {
		return err
	}
	if err := awaitNamespace(ctx, hub, name, o); err != nil {
		return err
	}
	secret, expires := token.New(), time.Now().Add(o.expires).Truncate(time.Second)
	if err := writeToken(ctx, hub, o.hubNamespace, record, token.Record{Hash: secret.Hash(), Expires: expires}); err != nil {
		return err
	}
	// An enrolment that waits for acceptance has the token before this one: it must be
	// worthless by then.
	if o.acceptGiven && o.accept {
		if err := change(ctx, hub, record, func() { record.Spec.HubAcceptsClient = true }); err != nil {
			return err
		}
	}
	if !record.Spec.HubAcceptsClient {
		_, _ = fmt.Fprintf(s.ErrOut, "cluster %q is not accepted yet: its agent waits until hubAcceptsClient of its ManagedCluster is true\n", name)
	}
	return o.printer()(s.Out, invitation{
		Cluster: name, Hub: page, Token: secret.Reveal(), Expires: metav1.NewTime(expires.UTC()), Chart: o.chart,
	})
}

// printer prints one cluster. What reads those of a file reads them by lines, also where
// there is one.
func (o *joinOptions) printer() func(io.Writer, invitation) error {
	if printer, ok := manyPrinters[o.output]; ok && o.many {
		return printer
	}
	return joinPrinters[o.output]
}

// annotations are those of the record: a label that is not given is left as it is.
func (o *joinOptions) annotations() map[string]string {
	annotations := map[string]string{managedcluster.AnnotationManaged: "true"}
	if o.splitLabel != "" {
		annotations[wire.AnnotationSplitLabel] = o.splitLabel
	}
	return annotations
}

// readPage reads what the hub publishes for those who join.
func readPage(ctx context.Context, hub client.Reader, namespace string) (hubPage, error) {
	config := &corev1.ConfigMap{}
	if err := hub.Get(ctx, client.ObjectKey{Namespace: namespace, Name: joinPage}, config); err != nil {
		return hubPage{}, fmt.Errorf("hub's join page (is Spokelet installed in namespace %q?): %w", namespace, err)
	}
	page := hubPage{Address: config.Data["address"], CAFingerprint: config.Data["caFingerprint"]}
	if page.Address == "" || page.CAFingerprint == "" {
		return hubPage{}, fmt.Errorf("configmap %s/%s: the hub has not published its address and CA fingerprint", namespace, joinPage)
	}
	return page, nil
}

// ensureRecord makes the record of a cluster, or takes the one that is there. A
// cluster that someone has refused is accepted only on demand, and not yet: a new
// record has no token that could be used, one that is there may have.
func (s *session) ensureRecord(ctx context.Context, hub client.Client, name string, o joinOptions) (*clusterv1.ManagedCluster, error) {
	record := &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: o.annotations()},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: o.accept},
	}
	err := hub.Create(ctx, record)
	if !apierrors.IsAlreadyExists(err) {
		return record, err
	}
	if err := hub.Get(ctx, client.ObjectKey{Name: name}, record); err != nil {
		return nil, err
	}
	if err := checkOurs(record); err != nil {
		return nil, err
	}
	if !record.DeletionTimestamp.IsZero() {
		return nil, fmt.Errorf("managed cluster %q is being deleted", name)
	}
	if id, ok := record.Annotations[managedcluster.AnnotationClusterID]; ok {
		if err := identity.ValidateID(id); err != nil {
			return nil, fmt.Errorf("managed cluster %q: %w", name, err)
		}
	}
	_, _ = fmt.Fprintf(s.ErrOut, "cluster %q is known to the hub: it gets a new join token\n", name)
	return record, change(ctx, hub, record, func() {
		maps.Copy(record.Annotations, o.annotations())
		if o.acceptGiven && !o.accept {
			record.Spec.HubAcceptsClient = false
		}
	})
}

// change writes what the function changes of a record, if it does.
func change(ctx context.Context, hub client.Client, record *clusterv1.ManagedCluster, changes func()) error {
	before := record.DeepCopy()
	changes()
	if equality.Semantic.DeepEqual(before, record) {
		return nil
	}
	return hub.Patch(ctx, record, client.MergeFrom(before))
}

func checkOurs(record *clusterv1.ManagedCluster) error {
	if !managedcluster.IsManaged(record) {
		return fmt.Errorf("managed cluster %q is not Spokelet's: it lacks the annotation %s=true", record.Name, managedcluster.AnnotationManaged)
	}
	return nil
}

// awaitNamespace waits for the sign that the hub has taken the record on.
func awaitNamespace(ctx context.Context, hub client.WithWatch, name string, o joinOptions) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	err := await(ctx, hub, &corev1.NamespaceList{}, func(present map[string]client.Object) bool {
		namespace, ok := present[name].(*corev1.Namespace)
		return ok && namespace.DeletionTimestamp.IsZero()
	}, client.MatchingFields{metav1.ObjectNameField: name})
	if err != nil {
		return fmt.Errorf("namespace %q, which the hub makes (is it running in %q?): %w", name, o.hubNamespace, err)
	}
	return nil
}

// writeToken replaces the cluster's token, if there is one: also the key that it
// was bound to.
func writeToken(ctx context.Context, hub client.Client, namespace string, record *clusterv1.ManagedCluster, r token.Record) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      token.SecretName(record.Name),
			// It goes with the record.
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: clusterv1.GroupVersion.String(), Kind: "ManagedCluster", Name: record.Name, UID: record.UID,
			}},
		},
		Type: token.SecretType,
		Data: r.Encode(),
	}
	err := hub.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		// A Secret's type cannot change, and whatever was there is void.
		if err := client.IgnoreNotFound(hub.Delete(ctx, secret)); err != nil {
			return fmt.Errorf("join token: %w", err)
		}
		secret.ResourceVersion = ""
		err = hub.Create(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("join token: %w", err)
	}
	return nil
}
