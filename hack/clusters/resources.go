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

// resources are what a set has on the machine beside its files: processes, mounts, network
// namespaces, control groups, and kernel settings that it shares with other sets.
type resources struct {
	set   *Set
	plans []network.Plan // of the namespaces, that of the hub first
}

// destroyTimeout bounds what waits for the kernel while a set is removed.
const destroyTimeout = 30 * time.Second

// runDir holds sockets, whose paths must be short, and containerd's volatile state.
func (r *resources) runDir() string { return filepath.Join(machineDir, r.set.state.Name) }
func (r *resources) cgroup() string { return "/spokelet/" + r.set.state.Name }
func (r *resources) dir() string    { return r.set.state.dir(r.set.config.StateDir) }

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
func (r *resources) tune(ctx context.Context) error {
	machine, err := lock.Acquire(ctx, machineLock, nil)
	if err != nil {
		return err
	}
	defer machine.Release()
	if other := r.other(); other != "" {
		return fmt.Errorf("%w: the name %s is that of a set in %s: take another, or remove that one with %s=%s",
			ErrConfig, r.set.state.Name, other, StateEnv, filepath.Dir(other))
	}
	if err := os.MkdirAll(r.runDir(), 0o711); err != nil { //nolint:gosec // containers' users pass through it
		return err
	}
	if err := os.WriteFile(filepath.Join(r.runDir(), ownerFile), []byte(r.dir()), 0o600); err != nil {
		return err
	}
	return host.Tune(savedSettings)
}

// other gives the directory of another set that has this one's name on the machine, or
// nothing.
func (r *resources) other() string {
	owner, err := os.ReadFile(filepath.Join(r.runDir(), ownerFile))
	if err != nil || string(owner) == r.dir() {
		return ""
	}
	if _, err := os.Stat(string(owner)); err != nil {
		return "" // somebody has deleted its files alone: what is left of it is nobody's
	}
	return string(owner)
}

// untune removes the set's directory and, after the last set's, puts the
// kernel's settings back.
func (r *resources) untune(ctx context.Context) error {
	machine, err := lock.Acquire(ctx, machineLock, nil)
	if err != nil {
		return err
	}
	defer machine.Release()
	if err := os.RemoveAll(r.runDir()); err != nil {
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
func (r *resources) clear(ctx context.Context, strays func() []string) error {
	if r.other() != "" {
		return nil // this one has got no further than to its name
	}
	ctx, cancel := context.WithTimeout(ctx, destroyTimeout)
	defer cancel()
	if err := process.KillAll(ctx, r.processes); err != nil {
		return err
	}
	files := strays()
	steps := []error{
		host.Unmount(r.runDir()),
		host.Unmount(r.dir()),
		network.Remove(ctx, r.plans),
		cgroup.Remove(ctx, r.cgroup()),
	}
	cgroup.RemoveEmpty("/spokelet")
	for _, path := range files {
		steps = append(steps, os.RemoveAll(path))
	}
	if err := errors.Join(steps...); err != nil {
		return err
	}
	return r.untune(ctx)
}

// processes lists everything of the set: what runs in its namespaces, in its
// control groups (pods, with namespaces of their own), or bears its mark.
func (r *resources) processes() []int {
	pids := process.Marked(r.dir())
	for _, plan := range r.plans {
		pids = append(pids, process.InNamespace(plan.Path())...)
	}
	if inGroups, err := cgroup.Processes(r.cgroup()); err == nil {
		pids = append(pids, inGroups...)
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}
