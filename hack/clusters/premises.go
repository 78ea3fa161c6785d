// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spokelet/spokelet/hack/clusters/internal/cgroup"
	"github.com/spokelet/spokelet/hack/clusters/internal/host"
	"github.com/spokelet/spokelet/hack/clusters/internal/lock"
	"github.com/spokelet/spokelet/hack/clusters/internal/network"
	"github.com/spokelet/spokelet/hack/clusters/internal/process"
)

// premises are what a set takes of the machine where nothing but the machine keeps it
// together: directories, network namespaces, control groups, and kernel settings that all
// sets share.
type premises struct {
	set   *Set
	plans []network.Plan // of the namespaces, that of the hub first
}

// destroyTimeout bounds what waits for the kernel while a set is removed.
const destroyTimeout = 30 * time.Second

// runDir holds sockets, whose paths must be short, and containerd's volatile state.
func (p *premises) runDir() string { return filepath.Join(machineDir, p.set.state.Name) }
func (p *premises) cgroup() string { return "/spokelet/" + p.set.state.Name }
func (p *premises) dir() string    { return p.set.state.dir(p.set.config.StateDir) }

// Machine-wide places. They are in /run, so that a reboot forgets the saved
// settings together with the settings themselves. No set's name has a dot.
const (
	machineDir    = "/run/spokelet"
	machineLock   = machineDir + "/.lock"
	savedSettings = machineDir + "/.kernel.json"
)

// ownerFile, in the set's directory in machineDir, holds the path of its state: what a set
// has on the machine is named by its name alone.
const ownerFile = "set"

// tune changes the kernel's settings. The set's directory in machineDir shows
// other sets that they are in use, and is made under the same lock. The error is ErrConfig
// when a set of that name has its state elsewhere.
func (p *premises) tune(ctx context.Context) error {
	machine, err := lock.Acquire(ctx, machineLock, nil)
	if err != nil {
		return err
	}
	defer machine.Release()
	if other := p.other(); other != "" {
		return fmt.Errorf("%w: the name %s is that of a set in %s: take another, or remove that one with %s=%s",
			ErrConfig, p.set.state.Name, other, StateEnv, filepath.Dir(other))
	}
	if err := os.MkdirAll(p.runDir(), 0o711); err != nil { //nolint:gosec // containers' users pass through it
		return err
	}
	if err := os.WriteFile(filepath.Join(p.runDir(), ownerFile), []byte(p.dir()), 0o600); err != nil {
		return err
	}
	return host.Tune(savedSettings)
}

// other gives the directory of another set that has this one's name on the machine, or
// nothing.
func (p *premises) other() string {
	owner, err := os.ReadFile(filepath.Join(p.runDir(), ownerFile))
	if err != nil || string(owner) == p.dir() {
		return ""
	}
	if _, err := os.Stat(string(owner)); err != nil {
		return "" // somebody has deleted its files alone: what is left of it is nobody's
	}
	return string(owner)
}

// untune removes the set's directory and, after the last set's, puts the
// kernel's settings back.
func (p *premises) untune(ctx context.Context) error {
	machine, err := lock.Acquire(ctx, machineLock, nil)
	if err != nil {
		return err
	}
	defer machine.Release()
	if err := os.RemoveAll(p.runDir()); err != nil {
		return err
	}
	entries, err := os.ReadDir(machineDir)
	if err != nil || slices.ContainsFunc(entries, fs.DirEntry.IsDir) {
		return err
	}
	if err := host.Restore(savedSettings); err != nil {
		return err
	}
	if err := machine.Remove(); err != nil {
		return err
	}
	// Another set may just be making it anew; it needs it then.
	_ = os.Remove(machineDir)
	return nil
}

// clear removes all of the set but its files, in whatever state it is: processes
// first (what runs could make more), then what they used. Strays lists files elsewhere; it
// is asked before what names them goes.
func (p *premises) clear(ctx context.Context, strays func() []string) error {
	if p.other() != "" {
		return nil // this one has got no further than to its name
	}
	ctx, cancel := context.WithTimeout(ctx, destroyTimeout)
	defer cancel()
	if err := process.KillAll(ctx, p.processes); err != nil {
		return err
	}
	files := strays()
	steps := []error{
		host.Unmount(p.runDir()),
		host.Unmount(p.dir()),
		network.Remove(ctx, p.plans),
		cgroup.Remove(ctx, p.cgroup()),
	}
	cgroup.RemoveEmpty("/spokelet")
	for _, path := range files {
		steps = append(steps, os.RemoveAll(path))
	}
	if err := errors.Join(steps...); err != nil {
		return err
	}
	return p.untune(ctx)
}

// processes lists everything of the set: what runs in its namespaces, in its
// control groups (pods, with namespaces of their own), or bears its mark.
func (p *premises) processes() []int {
	pids := process.Marked(p.dir())
	for _, plan := range p.plans {
		pids = append(pids, process.InNamespace(plan.Path())...)
	}
	if inGroups, err := cgroup.Processes(p.cgroup()); err == nil {
		pids = append(pids, inGroups...)
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}
