// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e runs Spokelet as its users do: charts, kubectl and real
// clusters, with a hub that cannot open a connection to a spoke. The steps of
// TestEndToEnd build on each other and run in order; everything they touch in
// a cluster is made by them.
package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/hack/clusters"
)

// settle bounds what takes a controller or a kubelet some time.
const settle = 90 * time.Second

// setName keeps the tests' clusters apart from the demo's, and from those of
// another run on the same machine, if that has a name of its own.
func setName() string { return cmp.Or(os.Getenv("SPOKELET_E2E_SET"), "e2e") }

// site is one cluster with its clients.
type site struct {
	*clusters.Cluster
	rest *rest.Config
	kube kubernetes.Interface
	dyn  dynamic.Interface
	ctl  env.Command
}

// suite is the installation that the steps share.
type suite struct {
	env    *env.Env
	hub    *site
	spokes []*site
	spdy   string // path of the kubectl that speaks SPDY
	// metrics is built before the first step: that takes minutes the first time.
	metrics *env.MetricsServer
}

func (s *suite) spoke() *site { return s.spokes[0] }

func newSuite(t *testing.T) *suite {
	t.Helper()
	ctx, config := t.Context(), clusters.Config{Name: setName(), Spokes: 2, Log: env.Progress(os.Stderr)}
	// An earlier run that was killed may have left its clusters.
	if err := clusters.Down(ctx, config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() && os.Getenv("SPOKELET_E2E_KEEP") != "" {
			t.Logf("the clusters of set %q stay up", setName())
			return
		}
		// The test's own context has ended by now.
		if err := clusters.Down(context.WithoutCancel(ctx), config); err != nil {
			t.Error(err)
		}
	})
	set, err := clusters.Up(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	// The binaries carry the race detector, and the last step looks for its
	// reports; a developer in a hurry may leave it out.
	race := os.Getenv("SPOKELET_E2E_RACE") != "off"
	e, err := env.New(ctx, set, env.Build{Version: "e2e", Race: race}, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	s := &suite{env: e, hub: newSite(t, e, set.Hub())}
	if s.spdy, err = set.Program(ctx, spdyKubectl); err != nil {
		t.Fatal(err)
	}
	if s.metrics, err = e.MetricsServer(ctx); err != nil {
		t.Fatal(err)
	}
	for _, c := range set.Spokes() {
		s.spokes = append(s.spokes, newSite(t, e, c))
	}
	return s
}

func newSite(t *testing.T, e *env.Env, c *clusters.Cluster) *site {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	cfg.Dial = closingDialer(t)
	s := &site{Cluster: c, rest: cfg, ctl: e.Kubectl(c)}
	if s.kube, err = kubernetes.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	if s.dyn, err = dynamic.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	return s
}

// closingDialer dials connections that end with the test: one with a watch that
// is just ending is not idle, and would outlive it.
func closingDialer(t *testing.T) func(context.Context, string, string) (net.Conn, error) {
	t.Helper()
	var mu sync.Mutex
	var conns []net.Conn
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for _, conn := range conns {
			_ = conn.Close()
		}
	})
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext(ctx, network, address)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, conn)
		}
		return conn, err
	}
}

// as is kubectl for somebody else.
func (s *site) as(user string, groups ...string) env.Command {
	ctl := s.ctl
	ctl.Args = append(append([]string{}, ctl.Args...), "--as", user)
	for _, group := range groups {
		ctl.Args = append(ctl.Args, "--as-group", group)
	}
	return ctl
}

// apply applies a manifest given as text.
func (s *site) apply(t *testing.T, manifest string) {
	t.Helper()
	if _, err := s.ctl.RunInput(t.Context(), strings.NewReader(manifest), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// kubectl runs a command that must succeed and returns what it printed.
func (s *site) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.ctl.Run(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// refused runs a command that must fail and checks that the error names each
// of the words.
func refused(t *testing.T, reason string, ctl env.Command, input string, args []string, words ...string) {
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

// until asks again until done says so, or fails the test with its last word.
func until(t *testing.T, what string, timeout time.Duration, done func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		err := done(ctx)
		// What was cut short by the end of the time says nothing.
		if ctx.Err() == nil || last == nil {
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: not within %s: %v", what, timeout, last)
	}
}

var (
	worksResource        = schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Resource: "works"}
	appliedWorksResource = schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Resource: "appliedworks"}
)

// condition reads one condition of an object: status, reason and message.
func condition(obj *unstructured.Unstructured, kind string) (status, reason, message string) {
	list, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, item := range list {
		c, ok := item.(map[string]any)
		if ok && c["type"] == kind {
			return fmt.Sprint(c["status"]), fmt.Sprint(c["reason"]), fmt.Sprint(c["message"])
		}
	}
	return "", "", ""
}
