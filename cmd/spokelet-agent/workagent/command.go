// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/spokelet/spokelet/cmd/internal/command"
)

const (
	// driverKube is the one source of works that there is: a hub's API server.
	driverKube = "kube"
	// defaultNamespace is where OCM's operator runs its agents.
	defaultNamespace = "open-cluster-management-agent"
	// podNamespace is the file in which a pod finds its namespace.
	podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

	ignored = " (accepted for compatibility and ignored: "
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
	Workers                     int

	// Of what is ignored.
	interval time.Duration
	watches  int
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
	fs.StringVar(&f.Driver, "workload-source-driver", driverKube, "where works come from: kube, the hub's API server, is the one there is")
	fs.StringVar(&f.Hub, "workload-source-config", "", "path of the hub's kubeconfig")
	fs.StringVar(&f.Cluster, "spoke-cluster-name", "", "name of this cluster, and of its namespace on the hub")
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
	f.bindIgnored(fs)
	klogFlags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(klogFlags)
	fs.AddGoFlag(klogFlags.Lookup("v"))
}

func (f *Flags) bindIgnored(fs *pflag.FlagSet) {
	fs.DurationVar(&f.interval, "status-sync-interval", 10*time.Second, "how often status is synced"+ignored+"it is reported on the event)")
	fs.IntVar(&f.watches, "max-feedback-watch", 50, "how many kinds are watched for feedback"+ignored+"all are)")
}

// config checks the flags, and reads the files that they name.
func (f *Flags) config(process string) (Config, error) {
	if f.Driver != driverKube {
		return Config{}, fmt.Errorf("flag --workload-source-driver: %q is not known, only %s is", f.Driver, driverKube)
	}
	gates, err := parseGates(f.Gates)
	if err != nil {
		return Config{}, err
	}
	if f.SpokeKubeconfig != "" {
		f.Kubeconfig = f.SpokeKubeconfig
	}
	if f.Hub == "" {
		return Config{}, fmt.Errorf("flag --workload-source-config is required")
	}
	spoke := command.Flags{Kubeconfig: f.Kubeconfig}
	spokeREST, err := spoke.Client("spokelet-agent")
	if err != nil {
		return Config{}, err
	}
	hubREST, err := clientcmd.BuildConfigFromFlags("", f.Hub)
	if err != nil {
		return Config{}, fmt.Errorf("kubeconfig %q: cannot load: %w", f.Hub, err)
	}
	hubREST.QPS, hubREST.UserAgent = -1, spokeREST.UserAgent
	return Config{
		Spoke: spokeREST, Hub: hubREST, Cluster: f.Cluster, AgentID: f.AgentID, WorkNamespace: f.WorkNamespace,
		Namespace: namespaceOf(f.Namespace), EvictionGrace: max(f.EvictionGrace, 1), MaxJSONRawLength: f.MaxJSONRawLength,
		RawFeedback: gates[gateRawFeedback], ExecutorCaches: gates[gateExecutorCaches],
		SpokeLimit: f.Spoke, HubLimit: f.HubLimit, TerminateOnFiles: f.TerminateOnFiles, Listen: f.Listen, LeaderElection: !f.DisableLeaderElection,
		Workers: f.Workers, Process: process, Logger: command.Logger(),
	}, nil
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
	if text, err := os.ReadFile(podNamespace); err == nil && len(strings.TrimSpace(string(text))) > 0 {
		return strings.TrimSpace(string(text))
	}
	return defaultNamespace
}
