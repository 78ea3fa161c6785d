// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// kubeconfig writes one for a server and returns its path.
func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}]," +
		" users: [{name: u, user: {}}], clusters: [{name: c, cluster: {server: '" + server + "'}}]}"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func parse(t *testing.T, args ...string) (Config, error) {
	t.Helper()
	var flags Flags
	fs := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	flags.Bind(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := flags.readConfigFile(fs); err != nil {
		return Config{}, err
	}
	return flags.config("me")
}

func TestFlagsOfOCMOperatorAreAccepted(t *testing.T) {
	spoke, hub := kubeconfig(t, "https://spoke:6443"), kubeconfig(t, "https://hub:6443/path")
	cfg, err := parse(t, "--kubeconfig="+spoke, "--workload-source-driver=kube", "--workload-source-config="+hub, "--spoke-cluster-name=c1",
		"--agent-id=a1", "--status-sync-interval=60s", "--appliedmanifestwork-eviction-grace-period=876000h", "--max-json-raw-length=2048",
		"--feature-gates=ExecutorValidatingCaches=true,RawFeedbackJsonString=true", "--feature-gates=SomethingElse=false",
		"--kube-api-qps=5", "--kube-api-burst=10", "--hub-kube-api-qps=7.5", "--hub-kube-api-burst=15",
		"--terminate-on-files=/a", "--terminate-on-files=/b", "--namespace=n", "--listen=127.0.0.1:0", "--disable-leader-election",
		"--work-namespace=w", "--workload-agent-workers=3", "--max-feedback-watch=5", "-v=0")
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	if cfg.Spoke.Host != "https://spoke:6443" || cfg.Hub.Host != "https://hub:6443/path" {
		t.Errorf("hosts: %s, %s", cfg.Spoke.Host, cfg.Hub.Host)
	}
	want := Config{
		Cluster: "c1", AgentID: "a1", WorkNamespace: "w", Namespace: "n", EvictionGrace: 876000 * time.Hour, MaxJSONRawLength: 2048,
		RawFeedback: true, ExecutorCaches: true, SpokeLimit: Limit{QPS: 5, Burst: 10}, HubLimit: Limit{QPS: 7.5, Burst: 15},
		TerminateOnFiles: []string{"/a", "/b"}, Listen: "127.0.0.1:0", Workers: 3, Process: "me",
	}
	if diff := cmp.Diff(summarize(want), summarize(cfg)); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

// summarize is a configuration without what cannot be compared.
func summarize(c Config) map[string]any {
	return map[string]any{
		"cluster": c.Cluster, "agent": c.AgentID, "works": c.WorkNamespace, "namespace": c.Namespace, "grace": c.EvictionGrace,
		"length": c.MaxJSONRawLength, "raw": c.RawFeedback, "caches": c.ExecutorCaches, "limits": []Limit{c.SpokeLimit, c.HubLimit},
		"files": c.TerminateOnFiles, "listen": c.Listen, "election": c.LeaderElection, "workers": c.Workers, "process": c.Process,
	}
}

func TestDefaultsAreThoseOfOCM(t *testing.T) {
	cfg, err := parse(t, "--workload-source-config="+kubeconfig(t, "https://hub"), "--kubeconfig="+kubeconfig(t, "https://spoke"), "--spoke-cluster-name=c1")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.EvictionGrace != time.Hour || cfg.MaxJSONRawLength != 1024 || !cfg.LeaderElection || cfg.Listen != "0.0.0.0:8443" || cfg.AgentID != "" || cfg.RawFeedback || cfg.ExecutorCaches {
		t.Errorf("%+v", summarize(cfg))
	}
	if cfg.SpokeLimit.QPS != 0 || cfg.HubLimit.QPS != 0 {
		t.Error("the client limits itself, which is the API server's to do")
	}
	if cfg.Namespace == "" {
		t.Error("there is no namespace for the Lease")
	}
}

func TestSpokeKubeconfigOverridesKubeconfig(t *testing.T) {
	cfg, err := parse(t, "--workload-source-config="+kubeconfig(t, "https://hub"), "--kubeconfig="+kubeconfig(t, "https://here"), "--spoke-kubeconfig="+kubeconfig(t, "https://there"))
	if err != nil || cfg.Spoke.Host != "https://there" {
		t.Errorf("%v, %v", cfg.Spoke, err)
	}
}

func TestInvalidFlagsAreNamedInErrors(t *testing.T) {
	hub, spoke := "--workload-source-config="+kubeconfig(t, "https://hub"), "--kubeconfig="+kubeconfig(t, "https://spoke")
	cases := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"another driver":         {"there is one source of works", []string{hub, spoke, "--workload-source-driver=mqtt"}, "--workload-source-driver: \"mqtt\" is not served"},
		"CloudEvents":            {"what their client is called does not matter", []string{hub, spoke, "--workload-source-driver=grpc", "--cloudevents-client-id=c"}, "not as CloudEvents"},
		"a version of TLS":       {"nobody knows it", []string{hub, spoke, "--tls-min-version=1.2"}, "--tls-min-version: \"1.2\""},
		"a cipher suite":         {"nobody knows it", []string{hub, spoke, "--tls-cipher-suites=ROT13"}, "--tls-cipher-suites: \"ROT13\""},
		"a short lease":          {"it ends before it is renewed", []string{hub, spoke, "--leader-election-lease-duration=20s"}, "--leader-election-lease-duration"},
		"no such file":           {"it cannot be read", []string{hub, spoke, "--config=/does/not/exist"}, "--config: open /does/not/exist"},
		"an unknown field":       {"it would do nothing", []string{hub, spoke, "--config=" + configFile(t, "servingInfo: {clientCA: /ca}")}, "clientCA"},
		"a file that is none":    {"it says nothing", []string{hub, spoke, "--config=" + configFile(t, "[")}, "--config: file"},
		"an access check":        {"there is none", []string{hub, spoke, "--config=" + configFile(t, "authorization: {disabled: false}")}, "authorization: only disabled: true"},
		"a wrong value":          {"it is the flag's, too", []string{hub, spoke, "--config=" + configFile(t, "servingInfo: {minTLSVersion: SSL}")}, "\"SSL\""},
		"no hub":                 {"works come from somewhere", []string{spoke}, "--workload-source-config"},
		"a hub that is no file":  {"it cannot be read", []string{spoke, "--workload-source-config=/does/not/exist"}, "/does/not/exist"},
		"a spoke that is none":   {"it cannot be read", []string{hub, "--kubeconfig=/does/not/exist"}, "/does/not/exist"},
		"an unknown gate":        {"what it asks for would not happen", []string{hub, spoke, "--feature-gates=Teleport=true"}, "Teleport"},
		"a gate that is neither": {"it is a switch", []string{hub, spoke, "--feature-gates=ExecutorValidatingCaches=maybe"}, "maybe"},
		"no cluster":             {"works lie in its namespace", []string{hub, spoke}, "--spoke-cluster-name"},
		"a negative length":      {"nothing is that short", []string{hub, spoke, "--spoke-cluster-name=c", "--max-json-raw-length=-1"}, "--max-json-raw-length"},
		"negative workers":       {"nobody would work", []string{hub, spoke, "--spoke-cluster-name=c", "--workload-agent-workers=-1"}, "--workload-agent-workers"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cfg, err := parse(t, c.args...)
			if err == nil {
				err = cfg.Validate()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want something about %s", c.reason, err, c.want)
			}
		})
	}
}

func TestHelpMarksIgnoredFlags(t *testing.T) {
	cmd := Command(func() string { return "me" })
	if !cmd.HasAlias("/work") {
		t.Error("OCM's operator starts /work")
	}
	agent, _, err := cmd.Find([]string{"agent"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"status-sync-interval", "max-feedback-watch", "cloudevents-client-id", "cloudevents-client-codecs", "log-flush-frequency"} {
		if usage := agent.Flags().Lookup(name).Usage; !strings.Contains(usage, "ignored") {
			t.Errorf("--%s: %s", name, usage)
		}
	}
}

func TestHubIDFollowsAgentID(t *testing.T) {
	if hubID("a", "hash") != hubID("a", "other") {
		t.Error("an agent with an id forgets its anchors when the hub's URL changes")
	}
	if hubID("", "hash") == hubID("", "other") {
		t.Error("without an id, two hubs have one mark")
	}
	if got := hubID("a", "hash"); len(got) > 63 {
		t.Errorf("%s is no label value", got)
	}
}
