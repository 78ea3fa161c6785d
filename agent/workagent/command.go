// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/spokelet/spokelet/agent/lease"
	"github.com/spokelet/spokelet/internal/command"
)

const (
	// driverKube is the one source of works that there is: a hub's API server.
	driverKube = "kube"
	// defaultNamespace is where OCM's operator runs its agents.
	defaultNamespace = "open-cluster-management-agent"
	// podNamespaceFile is the file in which a pod finds its namespace.
	podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

	ignoredPrefix = " (accepted for compatibility and ignored: "
	// leaseDefaults is the default of each of three flags.
	leaseDefaults = " (without the three flags 15s, 8s and 2s; what is left out beside another one is OCM's: 137s, 107s, 26s)"
)

// The feature gates of OCM's work agent that mean something here.
const (
	gateExecutorCaches = "ExecutorValidatingCaches"
	gateRawFeedback    = "RawFeedbackJsonString"
)

// Flags are those of OCM's work agent.
type Flags struct {
	Kubeconfig, SpokeKubeconfig string
	Driver, Hub                 string
	Cluster, AgentID            string
	WorkNamespace, Namespace    string
	EvictionGrace               time.Duration
	MaxJSONRawLength            int32
	Gates                       map[string]string
	Spoke, HubLimit             Limit
	TerminateOnFiles            []string
	Listen                      string
	DisableLeaderElection       bool
	Lease                       lease.Timing
	TLSMinVersion               string
	TLSCipherSuites             []string
	Workers                     int

	// file is the path of a GenericOperatorConfig; hubFile and hubDir lead to the
	// hub's kubeconfig where Hub does not.
	file, hubFile, hubDir string
	// Of what is ignored.
	interval, flush time.Duration
	watches         int
	client          string
	codecs          []string
}

// Command returns "work" with its one command, "agent". Process names this
// process among those that live.
func Command(process func() string) *cobra.Command {
	parent := &cobra.Command{
		Use: "work", Short: "Works without a tunnel, as Open Cluster Management runs them", Args: cobra.NoArgs,
		// The program that OCM's operator starts in the image of a work agent.
		Aliases: []string{"/work"},
	}
	parent.AddCommand(agentCommand(process))
	return parent
}

func agentCommand(process func() string) *cobra.Command {
	var flags Flags
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Apply the works of one cluster's namespace on a hub, in place of OCM's work agent",
		Long: "Applies the ManifestWorks in the namespace of this cluster on a hub, and reports on them. It takes the flags of OCM's work agent, " +
			"reads and writes the same objects, and can take its place, or give it back.",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.readConfigFile(cmd.Flags()); err != nil {
				return err
			}
			cfg, err := flags.config(process())
			if err != nil {
				return err
			}
			return Run(cmd.Context(), cfg)
		},
	}
	flags.Bind(cmd.Flags())
	return cmd
}

// Bind adds the flags to fs.
func (f *Flags) Bind(fs *pflag.FlagSet) {
	fs.StringVar(&f.Kubeconfig, "kubeconfig", "", "path of the spoke's kubeconfig; empty means the pod's own account")
	fs.StringVar(&f.SpokeKubeconfig, "spoke-kubeconfig", "", "path of the spoke's kubeconfig, before --kubeconfig: that of a hosted agent")
	fs.StringVar(&f.Driver, "workload-source-driver", driverKube, "where works come from: "+driverKube+", the hub's API server, is the one there is")
	fs.StringVar(&f.Hub, "workload-source-config", "", "path of the hub's kubeconfig")
	fs.StringVar(&f.hubFile, "hub-kubeconfig", "", "path of the hub's kubeconfig, where --workload-source-config gives none")
	fs.StringVar(&f.hubDir, "hub-kubeconfig-dir", "", "directory of the hub's kubeconfig, where the other two flags give none")
	fs.StringVar(&f.Cluster, "spoke-cluster-name", "", "name of this cluster, and of its namespace on the hub")
	fs.StringVar(&f.Cluster, "cluster-name", "", "older name of --spoke-cluster-name")
	fs.StringVar(&f.AgentID, "agent-id", "", "id of this agent in AppliedManifestWorks; empty means the hash of the hub's URL")
	fs.StringVar(&f.WorkNamespace, "work-namespace", "", "namespace on the hub whose multicluster.x-k8s.io Works are served, too; empty means none")
	fs.StringVar(&f.Namespace, "namespace", "", "namespace of the agent in the spoke, for its Lease and its copy of the works; empty means the pod's own, or "+defaultNamespace)
	fs.DurationVar(&f.EvictionGrace, "appliedmanifestwork-eviction-grace-period", time.Hour,
		"how long objects stay whose work the hub does not know; 100 years and more mean for ever")
	fs.Int32Var(&f.MaxJSONRawLength, "max-json-raw-length", 1024, "longest structure that feedback reports, in characters; at most what the hub's ManifestWork allows")
	fs.StringToStringVar(&f.Gates, "feature-gates", nil, "features by name, of which "+gateExecutorCaches+" and "+gateRawFeedback+" are known")
	fs.Float32Var(&f.Spoke.QPS, "kube-api-qps", 0, "requests per second to the spoke; 0 leaves it to the API server's priority and fairness")
	fs.IntVar(&f.Spoke.Burst, "kube-api-burst", 0, "requests to the spoke at once, where --kube-api-qps limits them")
	fs.Float32Var(&f.HubLimit.QPS, "hub-kube-api-qps", 0, "requests per second to the hub; 0 leaves it to the API server's priority and fairness")
	fs.IntVar(&f.HubLimit.Burst, "hub-kube-api-burst", 0, "requests to the hub at once, where --hub-kube-api-qps limits them")
	fs.StringArrayVar(&f.TerminateOnFiles, "terminate-on-files", nil, "file whose change ends the process; may be repeated. Files are looked at every "+fileInterval.String())
	fs.StringVar(&f.Listen, "listen", "0.0.0.0:8443", "address of /healthz and /metrics, for HTTP and HTTPS; port 0 takes a free one, which is logged; empty means none")
	fs.BoolVar(&f.DisableLeaderElection, "disable-leader-election", false, "work without holding the Lease")
	fs.IntVar(&f.Workers, "workload-agent-workers", 0, "works that are executed at once; 0 means what the agent finds right")
	f.bindServing(fs)
	f.bindIgnored(fs)
	klogFlags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(klogFlags)
	fs.AddGoFlagSet(klogFlags)
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
}

func (f *Flags) bindServing(fs *pflag.FlagSet) {
	fs.StringVar(&f.file, "config", "", "path of a GenericOperatorConfig; what flags say counts more, and its change ends the process")
	fs.StringVar(&f.TLSMinVersion, "tls-min-version", "", "lowest version that --listen serves, VersionTLS10 to VersionTLS13; empty means "+defaultTLSVersion)
	fs.StringSliceVar(&f.TLSCipherSuites, "tls-cipher-suites", nil, "cipher suites that --listen serves below TLS 1.3, by their IANA names; none means Go's choice")
	fs.DurationVar(&f.Lease.Duration, "leader-election-lease-duration", 0, "how long others wait for a holder of the Lease that is silent"+leaseDefaults)
	fs.DurationVar(&f.Lease.Renewal, "leader-election-renew-deadline", 0, "how long the holder tries to renew the Lease"+leaseDefaults)
	fs.DurationVar(&f.Lease.Retry, "leader-election-retry-period", 0, "pause between attempts to take or renew the Lease"+leaseDefaults)
}

func (f *Flags) bindIgnored(fs *pflag.FlagSet) {
	fs.DurationVar(&f.interval, "status-sync-interval", 10*time.Second, "how often status is synced"+ignoredPrefix+"it is reported on the event)")
	fs.IntVar(&f.watches, "max-feedback-watch", 50, "how many kinds are watched for feedback"+ignoredPrefix+"all are)")
	fs.StringVar(&f.client, "cloudevents-client-id", "", "name of this client at a broker of CloudEvents"+ignoredPrefix+"there is none)")
	fs.StringSliceVar(&f.codecs, "cloudevents-client-codecs", nil, "codecs of CloudEvents"+ignoredPrefix+"there are none)")
	fs.DurationVar(&f.flush, "log-flush-frequency", 5*time.Second, "how often the log is flushed"+ignoredPrefix+"each line is)")
}

// config checks the flags, and reads the kubeconfigs that they name.
func (f *Flags) config(process string) (Config, error) {
	if f.Driver != driverKube {
		return Config{}, fmt.Errorf("flag --workload-source-driver: %q is not served: works come from the hub's API server (%s), not as CloudEvents", f.Driver, driverKube)
	}
	gates, err := parseGates(f.Gates)
	if err != nil {
		return Config{}, err
	}
	secured, err := parseTLS(f.TLSMinVersion, f.TLSCipherSuites)
	if err != nil {
		return Config{}, err
	}
	spokeREST, hubREST, err := f.clients()
	if err != nil {
		return Config{}, err
	}
	return Config{
		Spoke: spokeREST, Hub: hubREST, Cluster: f.Cluster, AgentID: f.AgentID, WorkNamespace: f.WorkNamespace,
		Namespace: namespaceOf(f.Namespace), EvictionGrace: max(f.EvictionGrace, 1), MaxJSONRawLength: f.MaxJSONRawLength,
		RawFeedback: gates[gateRawFeedback], ExecutorCaches: gates[gateExecutorCaches],
		SpokeLimit: f.Spoke, HubLimit: f.HubLimit, TerminateOnFiles: f.TerminateOnFiles, Listen: f.Listen, TLS: secured,
		LeaderElection: !f.DisableLeaderElection, Lease: leaseTiming(f.Lease),
		Workers: f.Workers, Process: process, Logger: command.Logger(),
	}, nil
}

// clients reaches the two API servers by the kubeconfigs that the flags name.
func (f *Flags) clients() (spoke, hub *rest.Config, err error) {
	path := cmp.Or(f.Hub, f.hubFile)
	if path == "" && f.hubDir != "" {
		path = filepath.Join(f.hubDir, "kubeconfig")
	}
	if path == "" {
		return nil, nil, fmt.Errorf("flag --workload-source-config is required")
	}
	flags := command.Flags{Kubeconfig: cmp.Or(f.SpokeKubeconfig, f.Kubeconfig)}
	if spoke, err = flags.Client("spokelet-agent"); err != nil {
		return nil, nil, err
	}
	if hub, err = clientcmd.BuildConfigFromFlags("", path); err != nil {
		return nil, nil, fmt.Errorf("kubeconfig %q: cannot load: %w", path, err)
	}
	hub.QPS, hub.UserAgent = -1, spoke.UserAgent
	return spoke, hub, nil
}

// leaseTiming completes what the flags say of an election: nothing, or a part of
// what OCM's agent has by default.
func leaseTiming(asked lease.Timing) lease.Timing {
	if asked == (lease.Timing{}) {
		return lease.DefaultTiming()
	}
	return lease.Timing{
		Duration: cmp.Or(asked.Duration, 137*time.Second), Renewal: cmp.Or(asked.Renewal, 107*time.Second), Retry: cmp.Or(asked.Retry, 26*time.Second),
	}
}

// parseGates reads the values of feature gates. A gate that nobody knows may be
// off, and may not be on.
func parseGates(in map[string]string) (map[string]bool, error) {
	out := map[string]bool{}
	for name, text := range in {
		on, err := parseBool(text)
		if err != nil {
			return nil, fmt.Errorf("flag --feature-gates: %s: %w", name, err)
		}
		if on && name != gateExecutorCaches && name != gateRawFeedback {
			return nil, fmt.Errorf("flag --feature-gates: %s is not known: %s and %s are", name, gateExecutorCaches, gateRawFeedback)
		}
		out[name] = on
	}
	return out, nil
}

func parseBool(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, fmt.Errorf("%q is neither true nor false", text)
	}
}

// namespaceOf is the namespace that was asked for, or the pod's.
func namespaceOf(asked string) string {
	if asked != "" {
		return asked
	}
	if text, err := os.ReadFile(podNamespaceFile); err == nil && len(strings.TrimSpace(string(text))) > 0 {
		return strings.TrimSpace(string(text))
	}
	return defaultNamespace
}
