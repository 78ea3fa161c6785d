// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"bufio"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/spokelet/spokelet/agent/lease"
)

// argument is one of OCM's.
type argument struct{ name, value string }

// arguments reads the table; the files that it names are made.
func arguments(t *testing.T) []argument {
	t.Helper()
	dir := filepath.Dir(kubeconfig(t, "https://hub"))
	files := strings.NewReplacer("$spoke", kubeconfig(t, "https://spoke"), "$hub", kubeconfig(t, "https://hub"), "$dir", dir,
		"$config", configFile(t, "{kind: GenericOperatorConfig, apiVersion: operator.openshift.io/v1alpha1}"))
	table, err := os.Open(filepath.Join("testdata", "ocm-arguments.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = table.Close() }()
	var out []argument
	for lines := bufio.NewScanner(table); lines.Scan(); {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(line, "\t")
		if len(columns) != 3 {
			t.Fatalf("%q has %d columns", line, len(columns))
		}
		out = append(out, argument{name: columns[0], value: files.Replace(columns[1])})
	}
	return out
}

func configFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, text)
	return file
}

func TestAllFlagsOfOCMAgentAreAccepted(t *testing.T) {
	table := arguments(t)
	if len(table) < 40 {
		t.Fatalf("the table has %d arguments", len(table))
	}
	needed := []string{"--workload-source-config=" + kubeconfig(t, "https://hub"), "--kubeconfig=" + kubeconfig(t, "https://spoke"), "--spoke-cluster-name=c1"}
	all := needed
	for _, a := range table {
		t.Run(a.name, func(t *testing.T) {
			cfg, err := parse(t, append(slices.Clone(needed), "--"+a.name+"="+a.value)...)
			if err != nil {
				t.Fatal(err)
			}
			if err := cfg.Validate(); err != nil {
				t.Error(err)
			}
		})
		all = append(all, "--"+a.name+"="+a.value)
	}
	if _, err := parse(t, all...); err != nil {
		t.Errorf("all at once: %v", err)
	}
}

func TestOwnFlagsAreListed(t *testing.T) {
	ours := map[string]bool{}
	fs := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	(&Flags{}).Bind(fs)
	fs.VisitAll(func(f *pflag.Flag) { ours[f.Name] = true })
	for _, a := range arguments(t) {
		delete(ours, strings.ReplaceAll(a.name, "_", "-"))
	}
	// The last two are of the version of klog that is linked.
	want := []string{"alsologtostderrthreshold", "legacy-stderr-threshold-behavior", "work-namespace"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(ours))); diff != "" {
		t.Errorf("arguments that OCM has not (-want +got):\n%s", diff)
	}
}

func TestHubKubeconfigFlagPrecedence(t *testing.T) {
	first, second, third := kubeconfig(t, "https://first"), kubeconfig(t, "https://second"), kubeconfig(t, "https://third")
	cases := map[string][]string{
		"https://first":  {"--workload-source-config=" + first, "--hub-kubeconfig=" + second, "--hub-kubeconfig-dir=" + filepath.Dir(third)},
		"https://second": {"--hub-kubeconfig=" + second, "--hub-kubeconfig-dir=" + filepath.Dir(third)},
		"https://third":  {"--hub-kubeconfig-dir=" + filepath.Dir(third)},
	}
	for want, args := range cases {
		cfg, err := parse(t, append(args, "--kubeconfig="+first)...)
		if err != nil || cfg.Hub.Host != want {
			t.Errorf("hub %v, %v, want %s", cfg.Hub, err, want)
		}
	}
}

func TestLeaseTimingFollowsFlags(t *testing.T) {
	seconds := func(duration, renewal, retry int) lease.Timing {
		return lease.Timing{Duration: time.Duration(duration) * time.Second, Renewal: time.Duration(renewal) * time.Second, Retry: time.Duration(retry) * time.Second}
	}
	cases := map[string]struct {
		reason string
		args   []string
		want   lease.Timing
	}{
		"none":        {"a successor begins soon", nil, lease.DefaultTiming()},
		"all":         {"they are what was asked for", []string{"--leader-election-lease-duration=60s", "--leader-election-renew-deadline=40s", "--leader-election-retry-period=5s"}, seconds(60, 40, 5)},
		"one of them": {"the others are those beside which OCM takes it", []string{"--leader-election-renew-deadline=60s"}, seconds(137, 60, 26)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cfg, err := parse(t, append(c.args, "--workload-source-config="+kubeconfig(t, "https://hub"), "--kubeconfig="+kubeconfig(t, "https://spoke"))...)
			if err != nil || cfg.Lease != c.want {
				t.Errorf("%s: %v, %v, want %v", c.reason, cfg.Lease, err, c.want)
			}
		})
	}
}

func TestFlagsOverrideConfigFile(t *testing.T) {
	file := configFile(t, `
apiVersion: operator.openshift.io/v1alpha1
kind: GenericOperatorConfig
servingInfo: {bindAddress: "127.0.0.1:1", minTLSVersion: VersionTLS13, cipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]}
leaderElection: {disable: true, leaseDuration: 60s, renewDeadline: 40s, retryPeriod: 5s}
authentication: {disabled: true}
authorization: {disabled: true}
`)
	needed := []string{"--config=" + file, "--workload-source-config=" + kubeconfig(t, "https://hub"), "--kubeconfig=" + kubeconfig(t, "https://spoke")}
	cfg, err := parse(t, needed...)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Listen != "127.0.0.1:1" || cfg.TLS.MinVersion != 0x304 || len(cfg.TLS.CipherSuites) != 1 || cfg.LeaderElection || cfg.Lease.Duration != time.Minute {
		t.Errorf("of the file: %+v", cfg)
	}
	if !slices.Contains(cfg.TerminateOnFiles, file) {
		t.Error("a file that changes would be heeded by the next process alone")
	}
	cfg, err = parse(t, append(needed, "--listen=127.0.0.1:2", "--tls-min-version=VersionTLS12", "--disable-leader-election=false", "--leader-election-lease-duration=90s")...)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Listen != "127.0.0.1:2" || cfg.TLS.MinVersion != 0x303 || !cfg.LeaderElection || cfg.Lease.Duration != 90*time.Second || cfg.Lease.Retry != 5*time.Second {
		t.Errorf("of flags and file: %+v", cfg)
	}
}
