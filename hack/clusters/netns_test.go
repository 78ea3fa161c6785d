// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spokelet/spokelet/hack/clusters/internal/process"
)

// needsNetns skips a test that this machine cannot run, or not soon.
func needsNetns(t *testing.T) *slog.Logger {
	t.Helper()
	if lacking := lacksForNetns(); lacking != "" {
		t.Skipf("makes network namespaces, which need %s", lacking)
	}
	return needsKubernetes(t)
}

// TestNetnsSetBehavesAsItPromises is one test because the set takes most of its
// time; the parts run in order and leave the set as they found it.
func TestNetnsSetBehavesAsItPromises(t *testing.T) {
	b := newBench(t, Config{Name: "clusters-test", Spokes: 1, Provider: Netns, Log: needsNetns(t)})
	b.testPromises(b.set.Hub(), b.set.Spokes()[0])
	t.Run("down leaves nothing", func(t *testing.T) { b.on(t).testDown() })
}

func (b *bench) testDown() {
	strays := newNetns(b.set, nil).strays()
	if len(strays) < 4 { // for each cluster's pod: a log, a network and a loopback
		b.Errorf("found only %v of what pods leave", strays)
	}
	if err := b.set.Down(b.Context()); err != nil {
		b.Fatal(err)
	}
	for _, path := range strays {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			b.Errorf("%s is still there: %v", path, err)
		}
	}
	checkGone(b.T, newNetns(b.set, nil).resources)
}

func TestNetnsDownRemovesAHalfMadeSet(t *testing.T) {
	log := needsNetns(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	config := Config{
		Name: "clusters-half", Spokes: 1, Provider: Netns,
		Log: slog.New(doAt{log.Handler(), "API server is ready", cancel}),
	}
	if _, err := Up(ctx, config); !errors.Is(err, context.Canceled) {
		t.Fatalf("up ended with %v, want it to be cancelled", err)
	}
	half := halfMade(t, config)
	driver := newNetns(half, nil).resources
	if len(driver.processes()) == 0 {
		t.Error("nothing was made that down could remove")
	}
	if err := Down(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	checkGone(t, driver)
}

func TestControlPlaneSetServesItsAPI(t *testing.T) {
	b := newBench(t, Config{
		Name: "x", Spokes: 1, Provider: ControlPlane, StateDir: t.TempDir(), Log: needsKubernetes(t),
	})
	for _, c := range append(b.set.Spokes(), b.set.Hub()) {
		b.kubectl(c, "", "create", "configmap", "here", "--from-literal=cluster="+c.Name)
	}
	hub := b.set.Hub()
	if got := b.kubectl(hub, "", "get", "configmap", "here", "--output=jsonpath={.data.cluster}"); got != "hub" {
		b.Errorf("the hub holds what was written to %q", got)
	}
	b.testAPIServer(hub)
	b.testAudit(hub)
	if err := hub.LoadImage(b.Context(), "/image.tar"); !errors.Is(err, ErrUnsupported) {
		b.Errorf("loading an image without nodes: %v, want %v", err, ErrUnsupported)
	}
	if err := b.set.Cut(b.Context(), b.set.Spokes()[0], Drop); !errors.Is(err, ErrUnsupported) {
		b.Errorf("a cut on loopback: %v, want %v", err, ErrUnsupported)
	}
	if err := b.set.Down(b.Context()); err != nil {
		b.Fatal(err)
	}
	if left := process.Marked(b.set.state.dir(b.set.config.StateDir)); len(left) != 0 {
		b.Errorf("processes: %v", left)
	}
}

func TestAProcessThatEndsIsNamedWithItsLog(t *testing.T) {
	root := t.TempDir()
	set := &Set{config: Config{StateDir: root, ReadyTimeout: time.Minute}, state: state{Name: "x"}}
	p := &plane{cluster: &Cluster{Name: "spoke1", set: set, dir: filepath.Join(root, "x", "spoke1")}}
	for _, dir := range []string{"logs", "run"} {
		if err := os.MkdirAll(p.path(dir), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	record, err := p.startPath("etcd", "/bin/sh", "-c", "echo the disk is full; exit 1")
	if err != nil {
		t.Fatal(err)
	}
	errBoom := errors.New("boom")
	err = p.await(t.Context(), readyProcess{record, func(context.Context) error { return errBoom }})
	if err == nil {
		t.Fatal("a process that has ended is called ready")
	}
	for _, want := range []string{"spoke1", "etcd", "the disk is full"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
}
