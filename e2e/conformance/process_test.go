// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/spokelet/spokelet/api/crds"
	"github.com/spokelet/spokelet/e2e/env"
)

// The clusters that the agent process is tried on. With hack/clusters:
//
//	clusters up --provider controlplane --spokes 1
//	export SPOKELET_HUB_KUBECONFIG=$(clusters kubeconfig hub)
//	export SPOKELET_SPOKE_KUBECONFIGS=$(clusters kubeconfig spoke1)
const (
	hubVariable    = "SPOKELET_HUB_KUBECONFIG"
	spokesVariable = "SPOKELET_SPOKE_KUBECONFIGS"
)

// pair is a hub with the namespace of one cluster, and its spoke.
type pair struct {
	hubFile, spokeFile string
	hub, spoke         *rest.Config
	namespace          string
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{namespace: "cluster-" + rand.String(5)}
	p.hubFile = os.Getenv(hubVariable)
	p.spokeFile, _, _ = strings.Cut(os.Getenv(spokesVariable), ":")
	if p.hubFile == "" || p.spokeFile == "" {
		t.Skipf("needs two API servers: %s and %s do not name their kubeconfigs", hubVariable, spokesVariable)
	}
	p.hub, p.spoke = load(t, p.hubFile), load(t, p.spokeFile)
	p.prepare(t)
	return p
}

func load(t *testing.T, file string) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// prepare makes what the installation makes for an agent process: the hub's
// definitions and the cluster's namespace. The spoke's definitions are the agent's.
func (p *pair) prepare(t *testing.T) {
	t.Helper()
	dialed := &connections{}
	t.Cleanup(dialed.close)
	hub := client(t, dialed, p.hub)
	if err := crds.Install(t.Context(), hub, crds.Hub()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []dynamic.Interface{hub, client(t, dialed, p.spoke)} {
		s := &stage{field: &field{spoke: c, run: p.namespace}, t: t, ctx: t.Context(), ns: p.namespace}
		if p.hubFile != p.spokeFile || c == hub {
			s.namespace(p.namespace)
		}
	}
}

// target with an agent ID, or none.
func (p *pair) target(agentID string) Target {
	sum := sha256.Sum256([]byte(p.hub.Host))
	return Target{Hub: p.hub, Spoke: p.spoke, Namespace: p.namespace, HubHash: hex.EncodeToString(sum[:]), AgentID: agentID}
}

// stage to play on outside of Run.
func (p *pair) stage(t *testing.T) *stage {
	t.Helper()
	target := p.target("")
	target.AgentID = target.HubHash
	return newStage(t, newField(t, target))
}

// binary builds the agent; the go command's own cache makes a repetition cheap.
func binary(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	path, err := env.Build{Root: root, Version: "conformance"}.Binary(t.Context(), "spokelet-agent")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// process is an agent that runs.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// start runs the agent as Open Cluster Management's operator runs its work agent.
func (p *pair) start(t *testing.T, args ...string) *process {
	t.Helper()
	path := binary(t)
	args = append([]string{
		"work", "agent", "--kubeconfig", p.spokeFile, "--workload-source-driver=kube", "--workload-source-config", p.hubFile,
		"--spoke-cluster-name", p.namespace, "--namespace", p.namespace, "--disable-leader-election", "--listen", "127.0.0.1:0",
	}, args...)
	a := &process{t: t, cmd: exec.CommandContext(context.WithoutCancel(t.Context()), path, args...), done: make(chan struct{})}
	a.cmd.Stdout, a.cmd.Stderr = t.Output(), t.Output()
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		a.err = a.cmd.Wait()
		close(a.done)
	}()
	t.Cleanup(a.stop)
	return a
}

// stop ends the agent as its operator does: it leaves cleanly, and fast.
func (a *process) stop() {
	a.t.Helper()
	select {
	case <-a.done:
		return
	default:
	}
	start := time.Now()
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		a.t.Error(err)
	}
	select {
	case <-a.done:
		if a.err != nil {
			a.t.Errorf("the agent ended with: %v", a.err)
		}
		a.t.Logf("the agent stopped within %s", time.Since(start).Round(time.Millisecond))
	case <-time.After(30 * time.Second): // as long as a pod has
		a.t.Error("the agent does not stop within 30 s")
		a.kill()
	}
}

// kill ends the agent without a word.
func (a *process) kill() {
	a.t.Helper()
	if err := a.cmd.Process.Kill(); err != nil {
		a.t.Error(err)
	}
	<-a.done
}

// The agent as a process passes the whole suite, started as by OCM's operator.
func TestTheProcessConforms(t *testing.T) {
	p := newPair(t)
	p.start(t, "--status-sync-interval=10s", "--appliedmanifestwork-eviction-grace-period=1h", "--kube-api-qps=50", "--kube-api-burst=100",
		"--hub-kube-api-qps=50", "--hub-kube-api-burst=100", "--max-json-raw-length=1024")
	Run(t, p.target(""))
}

// What only the gates and an agent ID change: the rest is as without them.
func TestTheProcessConformsWithItsGates(t *testing.T) {
	p := newPair(t)
	id := "agent-" + rand.String(5)
	p.start(t, "--agent-id", id, "--feature-gates=RawFeedbackJsonString=true,ExecutorValidatingCaches=true", "--appliedmanifestwork-eviction-grace-period=10s")
	target := p.target(id)
	// The case makes an anchor, and what it lists, within that time.
	target.RawFeedback, target.ExecutorCaches, target.EvictionGrace = true, true, 10*time.Second
	target.Sections = []string{"raw", "caches", "eviction", "anchor"}
	Run(t, target)
}

// Hub and spoke may be one API server (facts 4.4), whose works may be the objects of works.
func TestTheProcessConformsWithinOneCluster(t *testing.T) {
	p := newPair(t)
	p.spokeFile, p.spoke = p.hubFile, p.hub
	p.start(t, "--appliedmanifestwork-eviction-grace-period=876000h")
	target := p.target("")
	target.Sections = []string{"nested"}
	Run(t, target)
}

// There is a work that nothing happens to, one whose object is changed while no
// agent runs, and one that is deleted then.
func TestASuccessorTakesOverAfterSIGKILL(t *testing.T) {
	p := newPair(t)
	agent := p.start(t)
	s := p.stage(t)
	defer t.Cleanup(s.leave)
	s.create("$w-calm", spec("", cm("calm", "1"), deployment("calm", "replicas: 0,")))
	s.create("$w-drift", spec("", cm("drift", "1"), cm("lost", "1")))
	s.create("$w-leaves", spec("", cm("leaves", "1"), thing("t", "spec: {}")))
	s.create("$w-changes", spec("", cm("changes", "1"), cm("goes", "1")))
	calm := s.told("$w-calm")
	s.good("$w-drift")
	s.good("$w-leaves")
	s.good("$w-changes")
	s.lists("$w-calm", "configmaps/calm", "deployments/calm")
	objects := s.versions("ConfigMap/calm", "Deployment/calm")
	agent.kill()

	s.patch("ConfigMap", "drift", "data: {k: theirs}")
	s.remove("ConfigMap", "lost")
	s.delete("$w-leaves")
	s.update("$w-changes", spec("", cm("changes", "2")))
	s.create("$w-new", spec("", cm("new", "1")))
	p.start(t)

	s.has("ConfigMap", "drift", "data: {k: '1'}")
	s.has("ConfigMap", "lost", "data: {k: '1'}")
	s.gone("the work that was deleted", s.onHub(), "$w-leaves")
	s.absent("ConfigMap", "leaves")
	s.absent("Thing", "t")
	s.good("$w-changes")
	s.has("ConfigMap", "changes", "data: {k: '2'}")
	s.gone("what the work no longer has", s.on("ConfigMap"), "goes")
	s.good("$w-new")
	s.later()
	if after := s.versions("ConfigMap/calm", "Deployment/calm"); after != objects {
		t.Errorf("applied twice: versions were %s, are %s", objects, after)
	}
	if after := s.good("$w-calm"); after.ResourceVersion != calm.ResourceVersion {
		t.Errorf("the status was written again: %v, then %v", render(calm.Status), render(after.Status))
	}
}
