// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spokelet/spokelet/hack/clusters/internal/cgroup"
	"github.com/spokelet/spokelet/hack/clusters/internal/engine"
	"github.com/spokelet/spokelet/hack/clusters/internal/process"
	"github.com/spokelet/spokelet/hack/clusters/toolchain"
)

// needsKind skips a test that this machine cannot run, or not soon.
func needsKind(t *testing.T) *slog.Logger {
	t.Helper()
	own, err := suits(t.Context(), Config{Provider: Kind}, Kind)
	if err != nil {
		t.Skip(err)
	}
	log := needsKubernetes(t)
	if program := map[bool]string{true: "coredns", false: "kind"}[own]; !toolchain.New(log).Built(t.Context(), program) {
		t.Skip("needs what kind's nodes are made of; build it with: go run ./cmd/clusters prepare --provider kind")
	}
	return log
}

func TestKindSetBehavesAsItPromises(t *testing.T) {
	b := newBench(t, Config{Name: "clusters-kind", Spokes: 1, Provider: Kind, Log: needsKind(t)})
	hub, spoke := b.set.Hub(), b.set.Spokes()[0]
	b.testPromises(hub, spoke)
	t.Run("pods find services by their names", func(t *testing.T) { b.on(t).testDNS(spoke) })
	t.Run("down leaves nothing", func(t *testing.T) { b.on(t).testKindDown() })
}

func (b *bench) testKindDown() {
	driver := newKind(b.set, nil)
	if driver.engine == nil {
		if err := b.set.Down(b.Context()); err != nil {
			b.Fatal(err)
		}
		for _, c := range b.set.clusters {
			if found, err := driver.ask(b.Context(), "ps", "--all", "--quiet", "--filter=name="+driver.container(c)); err != nil || found != "" {
				b.Errorf("containers: %q, %v", found, err)
			}
		}
		return
	}
	sockets := driver.engine.Strays()
	if len(sockets) < len(b.set.clusters) {
		b.Errorf("found only %v of the sockets of shims", sockets)
	}
	if err := b.set.Down(b.Context()); err != nil {
		b.Fatal(err)
	}
	for _, socket := range sockets {
		if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
			b.Errorf("%s is still there: %v", socket, err)
		}
	}
	checkGone(b.T, driver.resources)
}

// testDNS uses the pod and the service of testPods.
func (b *bench) testDNS(c *Cluster) {
	script := "until timeout 5 wget -q -O - http://echo.default.svc.cluster.local/index.html; do sleep 0.1; done"
	if got := b.kubectl(c, "", "exec", "echo", "--", "timeout", "20", "sh", "-c", script); got != "hello\n" {
		b.Errorf("a service answers by its name %q", got)
	}
}

func TestKindDownRemovesAHalfMadeSet(t *testing.T) {
	log := needsOwnEngine(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	config := Config{Name: "clusters-half", Spokes: 1, Provider: Kind}
	removeAtEnd(t, config)
	watched := config
	watched.Log = slog.New(doAt{log.Handler(), "node image is imported", func() {
		// Until its nodes have begun to boot.
		go untilProcesses(ctx, newKind(halfMade(t, config), nil).cgroup(), 10, cancel)
	}})
	if _, err := Up(ctx, watched); !errors.Is(err, context.Canceled) {
		t.Fatalf("up ended with %v, want it to be cancelled", err)
	}
	driver := newKind(halfMade(t, config), nil).resources
	if len(driver.processes()) == 0 {
		t.Error("nothing was made that down could remove")
	}
	if err := Down(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	checkGone(t, driver)
}

// untilProcesses does something as soon as there are so many processes in a control group.
func untilProcesses(ctx context.Context, group string, enough int, do func()) {
	for {
		if pids, err := cgroup.Processes(group); err == nil && len(pids) >= enough {
			do()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(50 * time.Millisecond): // a control group tells nobody
		}
	}
}

// needsOwnEngine skips a test where a Docker engine answers: beside it, a set starts none.
func needsOwnEngine(t *testing.T) *slog.Logger {
	t.Helper()
	if dockerAnswers(t.Context()) {
		t.Skip("starts an engine, which a set does only where none answers")
	}
	return needsKind(t)
}

func TestKindUpSaysThatItsEngineHasEnded(t *testing.T) {
	log := needsOwnEngine(t)
	config := Config{Name: "clusters-ended", Spokes: 1, Provider: Kind}
	removeAtEnd(t, config)
	killed := config
	killed.Log = slog.New(doAt{log.Handler(), "container engine is ready", func() {
		started, err := process.Load(filepath.Join(newKind(halfMade(t, config), nil).engine.Dir, "engine.json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := started.Stop(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}})
	if _, err := Up(t.Context(), killed); !errors.Is(err, engine.ErrEnded) {
		t.Errorf("up ended with %v, want it to say that the engine has ended", err)
	}
}
