// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spokelet/spokelet/hack/clusters/internal/network"
)

// Provider is where clusters come from.
type Provider string

// The providers.
const (
	// Auto takes the first of the others that the machine can run.
	Auto Provider = ""
	// Existing uses clusters that somebody else made and keeps.
	Existing Provider = "existing"
	// Kind makes clusters in Docker containers.
	Kind Provider = "kind"
	// Netns makes clusters of real components, nodes included, in network
	// namespaces. It needs root on Linux and no Docker.
	Netns Provider = "netns"
	// ControlPlane runs etcd, API server and controllers on loopback, without
	// nodes and without root.
	ControlPlane Provider = "controlplane"
)

// Environment variables that fill in a Config.
const (
	ProviderEnv         = "SPOKELET_CLUSTERS_PROVIDER"
	StateEnv            = "SPOKELET_CLUSTERS_STATE" // sets of one name clash even in different places
	HubKubeconfigEnv    = "SPOKELET_HUB_KUBECONFIG"
	SpokeKubeconfigsEnv = "SPOKELET_SPOKE_KUBECONFIGS" // separated like PATH
)

// Errors that callers may tell apart.
var (
	// ErrConfig is returned for a configuration that cannot work.
	ErrConfig = errors.New("invalid configuration")
	// ErrNotFound is returned when no set of that name exists.
	ErrNotFound = errors.New("no such set of clusters")
	// ErrIncomplete is returned when a set exists but was never finished.
	ErrIncomplete = errors.New("set of clusters is incomplete")
	// ErrUnsupported is returned for what the set's provider cannot do.
	ErrUnsupported = errors.New("not supported")
)

// Config describes a set. The zero value, after Default, is a hub and two spokes.
type Config struct {
	Name     string   // of the set: a-z, 0-9 and dashes, at most 20; default "spokelet"
	Spokes   int      // how many; default 2
	Provider Provider // default Auto
	StateDir string   // where sets keep their files; default by user

	HubKubeconfig    string   // of Existing
	SpokeKubeconfigs []string // of Existing

	ReadyTimeout time.Duration // for any one thing to come up; default 3 minutes
	Log          *slog.Logger  // progress; default discards
}

// Default fills in what is not set, from the environment and else with fixed values.
func (c *Config) Default() {
	if c.Name == "" {
		c.Name = "spokelet"
	}
	if c.Provider == Auto {
		c.Provider = Provider(os.Getenv(ProviderEnv))
	}
	if c.HubKubeconfig == "" {
		c.HubKubeconfig = os.Getenv(HubKubeconfigEnv)
	}
	if len(c.SpokeKubeconfigs) == 0 {
		c.SpokeKubeconfigs = filepath.SplitList(os.Getenv(SpokeKubeconfigsEnv))
	}
	if c.Spokes == 0 {
		c.Spokes = 2
	}
	if c.StateDir == "" {
		c.StateDir = defaultStateDir()
	}
	if c.ReadyTimeout == 0 {
		c.ReadyTimeout = 3 * time.Minute
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

func defaultStateDir() string {
	if dir := os.Getenv(StateEnv); dir != "" {
		return dir
	}
	if os.Geteuid() == 0 {
		return "/var/lib/spokelet-clusters"
	}
	if dir := os.Getenv("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "spokelet-clusters")
	}
	return filepath.Join(os.Getenv("HOME"), ".local", "state", "spokelet-clusters")
}

// names keeps what is derived from a set's name within the limits of unix
// sockets and control groups.
var names = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$`)

// Validate checks a configuration on which Default was called.
func (c *Config) Validate() error {
	if !names.MatchString(c.Name) {
		return fmt.Errorf("%w: name %q: want up to 20 of a-z, 0-9 and dashes", ErrConfig, c.Name)
	}
	if c.Spokes < 1 || c.Spokes >= network.Clusters {
		return fmt.Errorf("%w: %d spokes: want 1 to %d", ErrConfig, c.Spokes, network.Clusters-1)
	}
	switch c.Provider {
	case Auto, Kind, Netns, ControlPlane:
	case Existing:
		if c.HubKubeconfig == "" || len(c.SpokeKubeconfigs) == 0 {
			return fmt.Errorf("%w: provider %s: want kubeconfigs (%s, %s)", ErrConfig, Existing, HubKubeconfigEnv, SpokeKubeconfigsEnv)
		}
	default:
		return fmt.Errorf("%w: provider %q is unknown", ErrConfig, c.Provider)
	}
	if !filepath.IsAbs(c.StateDir) {
		return fmt.Errorf("%w: state directory %q: want an absolute path", ErrConfig, c.StateDir)
	}
	return nil
}

// clusterNames gives the names of n spokes and their hub, the hub first.
func clusterNames(spokes int) []string {
	all := []string{hubName}
	for i := range spokes {
		all = append(all, "spoke"+strconv.Itoa(i+1))
	}
	return all
}

// choose picks the provider, and says why.
func choose(ctx context.Context, config Config) (chosen Provider, why string) {
	switch {
	case config.Provider != Auto:
		return config.Provider, "asked for"
	case config.HubKubeconfig != "":
		return Existing, "kubeconfigs are given"
	case dockerAnswers(ctx):
		return Kind, "a Docker engine answers"
	}
	if lacking := lacksForNetns(); lacking != "" {
		return ControlPlane, "no Docker engine answers, and network namespaces need " + lacking
	}
	return Netns, "no Docker engine answers, and we are root"
}

func dockerAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	// The client alone succeeds without an engine unless asked for the server.
	out, err := exec.CommandContext(ctx, "docker", "info", "--format", "{{.ServerVersion}}").Output()
	return err == nil && strings.TrimSpace(string(out)) != ""
}

// suits returns an error that is ErrUnsupported unless the machine has what the provider
// needs, and whether a set has to start an engine of its own for it.
func suits(ctx context.Context, config Config, provider Provider) (ownEngine bool, err error) {
	var lacking string
	switch provider {
	case Netns:
		lacking = lacksForNetns()
	case Kind:
		if dockerAnswers(ctx) {
			return false, nil
		}
		if ctx.Err() != nil { // no answer then means nothing
			return false, context.Cause(ctx)
		}
		ownEngine, lacking = true, lacksForEngine(ctx)
		if config.Provider != Kind {
			lacking = "the Docker engine, which answered a moment ago"
		}
	case Auto, Existing, ControlPlane:
	}
	if lacking != "" {
		return false, fmt.Errorf("provider %s: %w here: it needs %s", provider, ErrUnsupported, lacking)
	}
	return ownEngine, nil
}

// dockerSocket is where an engine of a machine listens.
const dockerSocket = "/var/run/docker.sock"

// lacksForEngine names what is lacking where no Docker engine answers; empty where a set can
// start its own, which is never done beside one.
func lacksForEngine(ctx context.Context) string {
	if named := os.Getenv("DOCKER_HOST"); named != "" {
		return "an answer of the Docker engine that DOCKER_HOST names, " + named
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", dockerSocket)
	if err == nil {
		_ = conn.Close() // nothing was written
		return "a docker client that speaks to the engine at " + dockerSocket
	}
	if errors.Is(err, fs.ErrPermission) {
		return "the right to use the Docker engine at " + dockerSocket + ": be root, or in the group of that file"
	}
	if lacking := lacksForNetns(); lacking != "" {
		return "a Docker engine, or, to start one, " + lacking
	}
	return ""
}

// lacksForNetns names what the process lacks to make network namespaces, mounts
// and control groups; empty when nothing.
func lacksForNetns() string {
	if os.Geteuid() != 0 {
		return "root"
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "Linux"
	}
	return lacksCapabilities(string(status))
}

// lacksCapabilities looks for CAP_NET_ADMIN and CAP_SYS_ADMIN in the effective
// set of a /proc/self/status: root in a container often has neither.
func lacksCapabilities(status string) string {
	for line := range strings.Lines(status) {
		value, found := strings.CutPrefix(line, "CapEff:")
		if !found {
			continue
		}
		effective, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		const netAdmin, sysAdmin = 1 << 12, 1 << 21
		if err == nil && effective&netAdmin != 0 && effective&sysAdmin != 0 {
			return ""
		}
	}
	return "the capabilities NET_ADMIN and SYS_ADMIN"
}
