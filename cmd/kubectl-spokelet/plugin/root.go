// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
)

// Exit codes, as main documents them.
const (
	exitDone     = 0
	exitFailed   = 1
	exitUsage    = 2
	exitTimeout  = 3
	exitNotFound = 4
)

var (
	// errUsage says that the command line is wrong.
	errUsage = errors.New("wrong usage")
	// errTimeout says that what was waited for did not happen in time.
	errTimeout = errors.New("gave up waiting")
)

// session is what all commands share: where they print, and the hub.
type session struct {
	genericiooptions.IOStreams
	// connect opens the hub's API server. Called by commands, not before: help
	// and completion of flags need no cluster.
	connect func() (client.WithWatch, error)
	// terminal: people see what is written to ErrOut as it is written.
	terminal bool
}

// New returns the command tree, for the cluster that the usual flags of kubectl
// select.
func New(streams genericiooptions.IOStreams) *cobra.Command {
	flags := genericclioptions.NewConfigFlags(true)
	s := &session{
		IOStreams: streams, terminal: isTerminal(streams.ErrOut),
		connect: func() (client.WithWatch, error) { return connect(flags) },
	}
	root := s.root()
	flags.AddFlags(root.PersistentFlags())
	return root
}

func connect(flags *genericclioptions.ConfigFlags) (client.WithWatch, error) {
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	// The API server is fair to all by itself. A limit here, of 5 a second by default,
	// would have a fleet wait for nothing.
	config.QPS = -1
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.Install, livev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

func (s *session) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-spokelet",
		Short: "Manage the clusters of a Spokelet hub",
		Long: `Manage the clusters of a Spokelet hub.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 gave up waiting, 4 not found.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl spokelet"},
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          usage(cobra.NoArgs),
		// A bare "kubectl spokelet" asks what there is.
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.ErrOut)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	get := &cobra.Command{Use: "get", Short: "Show what the hub knows", Args: usage(cobra.NoArgs), RunE: needsSubcommand}
	get.AddCommand(s.getClusters())
	root.AddCommand(s.join(), get, s.detach())
	return root
}

func needsSubcommand(cmd *cobra.Command, _ []string) error {
	return fmt.Errorf("%w: %q needs a subcommand, see its --help", errUsage, cmd.CommandPath())
}

// usage marks the errors of a check of arguments as wrong usage.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
		return nil
	}
}

// Run executes the tree and returns the exit code of the process. The error, if
// any, has been printed.
func Run(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil {
		printError(root.ErrOrStderr(), err)
	}
	return exitCode(err)
}

func printError(w io.Writer, err error) { _, _ = fmt.Fprintf(w, "error: %v\n", err) }

func exitCode(err error) int {
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, errTimeout):
		return exitTimeout
	case apierrors.IsNotFound(err):
		return exitNotFound
	default:
		return exitFailed
	}
}

// completeClusters completes the names of the hub's clusters, without those that are typed
// already: commands refuse a name that is there twice.
func (s *session) completeClusters(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	hub, err := s.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	clusters, err := listClusters(cmd.Context(), hub, nil)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []cobra.Completion
	for _, cluster := range clusters {
		if !slices.Contains(args, cluster.Name) {
			names = append(names, cluster.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
