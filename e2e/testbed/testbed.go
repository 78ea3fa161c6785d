// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/hack/clusters"
)

// shared says that suites use the same clusters, with what the first of them, join,
// has installed there: whoever runs them removes the clusters.
func shared() bool { return os.Getenv("SPOKELET_E2E_SHARED") != "" }

// setName keeps the tests' clusters apart from the demo's, and from those of
// another run on the same machine, if that has a name of its own.
func setName() string { return cmp.Or(os.Getenv("SPOKELET_E2E_SET"), "e2e") }

// Site is one cluster with its clients.
type Site struct {
	*clusters.Cluster
	REST    *rest.Config
	Kube    kubernetes.Interface
	Dyn     dynamic.Interface
	Command env.Command
}

// Testbed is the installation that the tests share.
type Testbed struct {
	Env    *env.Env
	Hub    *Site
	Spokes []*Site

	spdy string // path of the kubectl that speaks SPDY
}

// Spoke is the first of the spokes, which most tests look at.
func (s *Testbed) Spoke() *Site { return s.Spokes[0] }

// At is the testbed with another of the spokes as its first.
func (s *Testbed) At(spoke *Site) *Testbed {
	other := *s
	others := slices.DeleteFunc(slices.Clone(s.Spokes), func(site *Site) bool { return site == spoke })
	other.Spokes = append([]*Site{spoke}, others...)
	return &other
}

// Named is a name on the hub that nothing has for another spoke.
func (s *Testbed) Named(name string) string {
	if s.Spoke().Name == "spoke1" {
		return name
	}
	return name + "-" + s.Spoke().Name
}

// New returns a testbed on which nothing is installed yet, or what an earlier
// suite has left. The clusters are made for the test and go with it, unless suites share
// them.
func New(t *testing.T) *Testbed {
	t.Helper()
	ctx, config := t.Context(), clusters.Config{Name: setName(), Spokes: 2, Log: env.Progress(os.Stderr)}
	if !shared() {
		ownClusters(t, config)
	}
	up := clusters.Up
	if shared() {
		up = clusters.Open // others use them: they are not to be made anew
	}
	set, err := up(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	// The binaries carry the race detector, and some tests look for its reports; a
	// developer in a hurry may leave it out.
	race := os.Getenv("SPOKELET_E2E_RACE") != "off"
	e, err := env.New(ctx, set, env.Build{Version: "e2e", Race: race}, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	s := &Testbed{Env: e, Hub: newSite(t, e, set.Hub())}
	if s.spdy, err = set.Program(ctx, spdyKubectl); err != nil {
		t.Fatal(err)
	}
	for _, c := range set.Spokes() {
		s.Spokes = append(s.Spokes, newSite(t, e, c))
	}
	return s
}

// ownClusters has the clusters of a set go before the test and after it.
func ownClusters(t *testing.T, config clusters.Config) {
	t.Helper()
	// An earlier run that was killed may have left its clusters.
	if err := clusters.Down(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() && os.Getenv("SPOKELET_E2E_KEEP") != "" {
			t.Logf("the clusters of set %q stay up", config.Name)
			return
		}
		// The test's own context has ended by now.
		if err := clusters.Down(context.WithoutCancel(t.Context()), config); err != nil {
			t.Error(err)
		}
	})
}

// Open returns a testbed with a hub and two spokes that have joined it.
func Open(t *testing.T) *Testbed {
	t.Helper()
	s := New(t)
	if !shared() {
		s.InstallHub(t)
		if s.JoinSpokes(t); t.Failed() {
			t.FailNow()
		}
	}
	for _, spoke := range s.Spokes {
		if _, err := s.Hub.Kube.CoreV1().Nodes().Get(t.Context(), spoke.Name, metav1.GetOptions{}); err != nil {
			t.Fatalf("%s has not joined: %v", spoke.Name, err)
		}
	}
	return s
}

func newSite(t *testing.T, e *env.Env, c *clusters.Cluster) *Site {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext)
	cfg.Dial = dialer.DialContext
	// A connection with a watch that is just ending is not idle, and would outlive the test.
	t.Cleanup(dialer.CloseAll)
	s := &Site{Cluster: c, REST: cfg, Command: e.Kubectl(c)}
	if s.Kube, err = kubernetes.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	if s.Dyn, err = dynamic.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	return s
}

// As is kubectl for somebody else.
func (s *Site) As(user string, groups ...string) env.Command {
	ctl := s.Command
	ctl.Args = append(append([]string{}, ctl.Args...), "--as", user)
	for _, group := range groups {
		ctl.Args = append(ctl.Args, "--as-group", group)
	}
	return ctl
}

// Apply applies a manifest given as text.
func (s *Site) Apply(t *testing.T, manifest string) {
	t.Helper()
	if _, err := s.Command.RunInput(t.Context(), strings.NewReader(manifest), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// Kubectl runs a command that must succeed and returns what it printed.
func (s *Site) Kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.Command.Run(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Refused runs a command that must fail and checks that the error names each
// of the words.
func Refused(t *testing.T, reason string, ctl env.Command, input string, args []string, words ...string) {
	t.Helper()
	out, err := ctl.RunInput(t.Context(), strings.NewReader(input), args...)
	if err == nil {
		t.Errorf("%s: kubectl %v succeeded: %s", reason, args, out)
		return
	}
	var failed *env.Error
	if !errors.As(err, &failed) {
		t.Errorf("%s: %v", reason, err)
		return
	}
	for _, word := range words {
		if !strings.Contains(failed.Output, word) {
			t.Errorf("%s: %q does not name %q", reason, failed.Output, word)
		}
	}
}
