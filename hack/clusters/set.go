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
	"strconv"

	"github.com/spokelet/spokelet/hack/clusters/internal/host"
	"github.com/spokelet/spokelet/hack/clusters/internal/lock"
	"github.com/spokelet/spokelet/hack/clusters/internal/network"
	"github.com/spokelet/spokelet/hack/clusters/toolchain"
)

const hubName = "hub"

// driver makes and removes the clusters of one provider.
type driver interface {
	// create makes all clusters and waits until they work.
	create(ctx context.Context) error
	// destroy removes whatever exists of them.
	destroy(ctx context.Context) error
	// healthy returns an error unless all clusters work.
	healthy(ctx context.Context) error
	// describe fills in the cluster's address and audit log.
	describe(ctx context.Context, c *Cluster) error
}

// Set is a hub and its spokes.
type Set struct {
	config   Config
	state    state
	driver   driver
	clusters []*Cluster // the hub first
}

// Prepare installs the packages and builds the programs that a set, and what tests do
// with it, needs on this machine. Up and Program do so themselves where it was not called.
func Prepare(ctx context.Context, config Config) error {
	config.Default()
	if err := config.Validate(); err != nil {
		return err
	}
	chosen, why := choose(ctx, config)
	config.Log.Info("provider chosen", "provider", chosen, "because", why)
	own, err := suits(ctx, config, chosen)
	if err != nil {
		return err
	}
	if chosen == Netns {
		if err := host.Require(ctx, config.Log); err != nil {
			return err
		}
	}
	tools := toolchain.New(config.Log)
	for _, program := range programs(chosen, own) {
		if _, err := tools.Program(ctx, program); err != nil {
			return err
		}
	}
	if !own {
		return nil
	}
	_, err = prepareEngine(ctx, tools, config.Log)
	return err
}

// programs are all that are built here, less those of clusters that are not chosen: of
// kind on an engine of the set's own, or on one of the machine, whose node image has them.
func programs(chosen Provider, own bool) []string {
	unused := []string{"kind", "coredns", "oci-runtime"}
	switch {
	case own:
		unused = nil
	case chosen == Kind:
		unused = []string{
			"coredns", "oci-runtime", "pause", "etcd", "kubeadm", "kubelet",
			"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy",
		}
	}
	return slices.DeleteFunc(toolchain.Programs(), func(name string) bool { return slices.Contains(unused, name) })
}

// Up makes the set, or returns it as it is when it exists, works and has the
// number of spokes asked for; faults left from earlier tests are healed then. A
// set that does not is removed first. On an error what was made stays, for its
// logs, until Down or the next Up.
func Up(ctx context.Context, config Config) (*Set, error) {
	config.Default()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	chosen, why := choose(ctx, config)
	config.Log.Info("provider chosen", "provider", chosen, "because", why)
	if chosen == Existing {
		return existing(config), nil
	}
	own, err := suits(ctx, config, chosen)
	if err != nil {
		return nil, err
	}
	held, err := hold(ctx, config)
	if err != nil {
		return nil, err
	}
	defer held.Release()
	set, err := reuse(ctx, config, chosen)
	if err != nil || set != nil {
		return set, err
	}
	set, err = reserve(ctx, config, chosen, own)
	if err != nil {
		return nil, err
	}
	err = set.driver.create(ctx)
	if ctx.Err() != nil {
		// What failed then failed because of it, whatever it says.
		return nil, fmt.Errorf("set %s: %w", config.Name, context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("set %s: %w", config.Name, err)
	}
	set.state.Complete = true
	if err := set.state.save(config.StateDir); err != nil {
		return nil, err
	}
	return set, set.describe(ctx)
}

// Open attaches to a set that Up finished, in this process or another.
func Open(ctx context.Context, config Config) (*Set, error) {
	config.Default()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if config.Provider == Existing || (config.Provider == Auto && config.HubKubeconfig != "") {
		return existing(config), nil
	}
	found, err := load(config.StateDir, config.Name)
	if err != nil {
		return nil, err
	}
	if !found.Complete {
		return nil, fmt.Errorf("%s: %w", config.Name, ErrIncomplete)
	}
	set, err := attach(config, found)
	if err != nil {
		return nil, err
	}
	return set, set.describe(ctx)
}

// Down removes the set of that name, finished or not. A set that does not exist
// is down already.
func Down(ctx context.Context, config Config) error {
	config.Default()
	if err := config.Validate(); err != nil {
		return err
	}
	held, err := hold(ctx, config)
	if err != nil {
		return err
	}
	found, err := load(config.StateDir, config.Name)
	if err == nil {
		err = remove(ctx, config, found)
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		held.Release()
		return err
	}
	return errors.Join(held.Remove(), prune(config.StateDir))
}

// Names lists the sets in the configuration's state directory.
func Names(config Config) ([]string, error) {
	config.Default()
	states, err := list(config.StateDir)
	var names []string
	for _, s := range states {
		names = append(names, s.Name)
	}
	return names, err
}

// Down removes the set. Existing clusters are left alone.
func (s *Set) Down(ctx context.Context) error {
	if s.state.Provider == Existing {
		return nil
	}
	return Down(ctx, s.config)
}

// Name tells sets apart on a machine.
func (s *Set) Name() string { return s.config.Name }

// Hub is the cluster that the others connect to.
func (s *Set) Hub() *Cluster { return s.clusters[0] }

// Spokes are the other clusters, in order.
func (s *Set) Spokes() []*Cluster { return slices.Clone(s.clusters[1:]) }

// Cluster gives the cluster of that name.
func (s *Set) Cluster(name string) (*Cluster, error) {
	for _, c := range s.clusters {
		if c.Name == name {
			return c, nil
		}
	}
	return nil, fmt.Errorf("cluster %q of set %s: %w", name, s.config.Name, ErrNotFound)
}

// Provider tells where the clusters come from.
func (s *Set) Provider() Provider { return s.state.Provider }

// Healthy returns an error that says what does not work, or nil.
func (s *Set) Healthy(ctx context.Context) error {
	if s.state.Provider == Existing {
		return nil
	}
	return s.driver.healthy(ctx)
}

// Program gives the path of a program that fits the clusters (kubectl, helm),
// building it when this machine has not done so yet.
func (s *Set) Program(ctx context.Context, name string) (string, error) {
	return toolchain.New(s.config.Log).Program(ctx, name)
}

// Module gives the version and the directory of the module that a program is
// built from.
func (s *Set) Module(ctx context.Context, program string) (version, dir string, err error) {
	return toolchain.New(s.config.Log).Module(ctx, program)
}

// hold takes the set's lock: one Up or Down of a set at a time.
func hold(ctx context.Context, config Config) (*lock.Lock, error) {
	return lock.Acquire(ctx, filepath.Join(config.StateDir, config.Name+".lock"), func() {
		config.Log.Info("waiting for another process that works on the set", "set", config.Name)
	})
}

// reuse returns the set if it is there and works. If it is there and does not,
// it removes it; then, and when there is none, it returns nil.
func reuse(ctx context.Context, config Config, chosen Provider) (*Set, error) {
	found, err := load(config.StateDir, config.Name)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	set, err := attach(config, found)
	if err != nil {
		return nil, err
	}
	reason := set.unfit(ctx, chosen)
	if reason == nil {
		config.Log.Info("set is up already", "set", config.Name)
		return set, errors.Join(set.healAll(ctx), set.describe(ctx))
	}
	config.Log.Info("removing what is left of the set", "set", config.Name, "because", reason)
	return nil, remove(ctx, config, found)
}

// unfit says why the set cannot serve as what the configuration asks for.
func (s *Set) unfit(ctx context.Context, chosen Provider) error {
	switch {
	case !s.state.Complete:
		return ErrIncomplete
	case s.state.Provider != chosen:
		return fmt.Errorf("it is of provider %s", s.state.Provider)
	case len(s.state.Clusters) != s.config.Spokes+1:
		return fmt.Errorf("it has %d spokes", len(s.state.Clusters)-1)
	}
	return s.driver.healthy(ctx)
}

// reserve gives the set its network slot and writes its first state, under a
// lock of all sets, so that two new ones do not get the same slot.
func reserve(ctx context.Context, config Config, provider Provider, ownEngine bool) (*Set, error) {
	all, err := lock.Acquire(ctx, filepath.Join(config.StateDir, allLock), nil)
	if err != nil {
		return nil, err
	}
	defer all.Release()
	fresh := state{Name: config.Name, Provider: provider, Clusters: clusterNames(config.Spokes), OwnEngine: ownEngine}
	if fresh.slotted() {
		if fresh.Slot, err = freeSlot(config); err != nil {
			return nil, err
		}
	}
	if err := fresh.save(config.StateDir); err != nil {
		return nil, err
	}
	return attach(config, fresh)
}

// allLock names the lock of all sets; no set can have that name.
const allLock = ".lock"

func freeSlot(config Config) (int, error) {
	states, err := list(config.StateDir)
	if err != nil {
		return 0, err
	}
	taken, err := network.Taken()
	if err != nil {
		return 0, err
	}
	return network.Allocate(slots(states, config.Name), taken)
}

// attach builds the set's representation; it touches no cluster.
func attach(config Config, found state) (*Set, error) {
	set := &Set{config: config, state: found}
	for i, name := range found.Clusters {
		dir := filepath.Join(found.dir(config.StateDir), name)
		set.clusters = append(set.clusters, &Cluster{
			Name: name, Kubeconfig: filepath.Join(dir, "kubeconfig"), set: set, index: i, dir: dir,
		})
	}
	tools := toolchain.New(config.Log)
	switch found.Provider {
	case Netns:
		set.driver = newNetns(set, tools)
	case ControlPlane:
		set.driver = &loopback{set: set, tools: tools}
	case Kind:
		set.driver = newKind(set, tools)
	default:
		return nil, fmt.Errorf("set %s: %w: provider %q", config.Name, ErrConfig, found.Provider)
	}
	return set, nil
}

func (s *Set) describe(ctx context.Context) error {
	for _, c := range s.clusters {
		if err := s.driver.describe(ctx, c); err != nil {
			return fmt.Errorf("cluster %s: %w", c.Name, err)
		}
	}
	return nil
}

// remove removes the clusters, then the files, the state among them last.
func remove(ctx context.Context, config Config, found state) error {
	set, err := attach(config, found)
	if err != nil {
		return err
	}
	if err := set.driver.destroy(ctx); err != nil {
		return fmt.Errorf("set %s: %w", config.Name, err)
	}
	if err := removeFiles(found.dir(config.StateDir)); err != nil {
		return fmt.Errorf("set %s: %w", config.Name, err)
	}
	return nil
}

// removeFiles removes a set's directory, the state last: without it nobody would know of
// the rest.
func removeFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		if entry.Name() == stateFile {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}

// prune removes the state directory when nothing but the lock of all is in it. Another
// process may do the same, or make its own set there just now.
func prune(root string) error {
	entries, err := os.ReadDir(root)
	for _, entry := range entries {
		if entry.Name() != allLock {
			return nil
		}
	}
	if err == nil {
		err = os.Remove(filepath.Join(root, allLock))
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.Remove(root)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) { // it is gone, or not empty any more
		return nil
	}
	return err
}

// existing wraps clusters that are given by their kubeconfigs.
func existing(config Config) *Set {
	set := &Set{config: config, state: state{Name: config.Name, Provider: Existing}}
	set.clusters = []*Cluster{{Name: hubName, Kubeconfig: config.HubKubeconfig, set: set}}
	for i, kubeconfig := range config.SpokeKubeconfigs {
		set.clusters = append(set.clusters, &Cluster{
			Name: "spoke" + strconv.Itoa(i+1), Kubeconfig: kubeconfig, set: set, index: i + 1,
		})
	}
	return set
}
