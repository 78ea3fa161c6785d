// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spokelet/spokelet/hack/clusters/image"
	"github.com/spokelet/spokelet/hack/clusters/internal/engine"
	"github.com/spokelet/spokelet/hack/clusters/internal/host"
	"github.com/spokelet/spokelet/hack/clusters/internal/network"
	"github.com/spokelet/spokelet/hack/clusters/internal/nodeimage"
	"github.com/spokelet/spokelet/hack/clusters/internal/process"
	"github.com/spokelet/spokelet/hack/clusters/toolchain"
)

// prepareEngine fetches and builds what an engine of a set's own is made of, with the
// image of its nodes.
func prepareEngine(ctx context.Context, tools *toolchain.Toolchain, log *slog.Logger) (engine.Programs, error) {
	if err := host.RequireForEngine(ctx, log); err != nil {
		return engine.Programs{}, err
	}
	programs, err := engine.Find(ctx, tools, log)
	if err != nil {
		return engine.Programs{}, err
	}
	_, err = nodeimage.Ensure(ctx, tools)
	return programs, err
}

// startEngine starts the engine of a set that has its own.
func (k *kind) startEngine(ctx context.Context) error {
	if k.engine == nil {
		return nil
	}
	programs, err := prepareEngine(ctx, k.tools, k.set.config.Log)
	if err != nil {
		return err
	}
	if err := k.tune(ctx); err != nil {
		return err
	}
	if err := network.Create(ctx, k.engine.Plan, nil); err != nil {
		return err
	}
	if err := k.engine.Start(ctx, programs); err != nil {
		return err
	}
	k.set.config.Log.Info("container engine is ready", "log", k.engine.Log())
	return nil
}

// nodeImage names the image of the nodes, which the engine has then. An engine of the
// machine pulls kind's own, for which the name is empty, where it reaches a registry.
func (k *kind) nodeImage(ctx context.Context) (string, error) {
	if k.engine == nil {
		err := k.pull(ctx)
		if err == nil {
			return "", nil
		}
		k.set.config.Log.Info("kind's node image cannot be pulled; making one", "because", err)
		if lacking := lacksForNetns(); lacking != "" {
			return "", fmt.Errorf("%w; to make one needs %s", err, lacking)
		}
		if err := host.RequireForEngine(ctx, k.set.config.Log); err != nil {
			return "", err
		}
	}
	made, err := nodeimage.Ensure(ctx, k.tools)
	if err != nil {
		return "", err
	}
	if k.docker(ctx, "image", "inspect", made.Ref).Run() == nil {
		return made.Ref, nil
	}
	args := []string{"import"}
	for _, change := range made.Changes {
		args = append(args, "--change", change)
	}
	if err := process.Run(k.docker(ctx, append(args, made.Root, made.Ref)...)); err != nil {
		return "", err
	}
	k.set.config.Log.Info("node image is imported", "image", made.Ref)
	return made.Ref, nil
}

// kindImage finds the reference of the image that a release of kind was made with.
var kindImage = regexp.MustCompile(`const Image = "([^"]+)"`)

var errKindImage = errors.New("kind's module does not name its node image")

// pull has the engine of the machine hold kind's own node image.
func (k *kind) pull(ctx context.Context) error {
	_, module, err := k.tools.Module(ctx, "kind")
	if err != nil {
		return err
	}
	source, err := os.ReadFile(filepath.Join(module, "pkg", "apis", "config", "defaults", "image.go")) //nolint:gosec // of a module
	if err != nil {
		return err
	}
	found := kindImage.FindSubmatch(source)
	if found == nil {
		return errKindImage
	}
	ref := string(found[1])
	if k.docker(ctx, "image", "inspect", ref).Run() == nil {
		return nil
	}
	return process.Run(k.docker(ctx, "pull", "--quiet", ref))
}

// pulledBusybox is what the tests' image is made of where no static busybox is installed.
const pulledBusybox = "busybox:stable-musl"

// busybox gives the archive of the image that every node has.
func (k *kind) busybox(ctx context.Context) (string, error) {
	archive := filepath.Join(k.dir(), "busybox.tar")
	if host.Busybox() != "" {
		spec, err := busyboxSpec(ctx)
		if err != nil {
			return "", err
		}
		return archive, image.Write(archive, spec)
	}
	for _, args := range [][]string{
		{"pull", "--quiet", pulledBusybox}, {"tag", pulledBusybox, BusyboxImage}, {"save", "--output", archive, BusyboxImage},
	} {
		if err := process.Run(k.docker(ctx, args...)); err != nil {
			return "", fmt.Errorf("no static busybox is installed: %w", err)
		}
	}
	return archive, nil
}

// docker prepares a call of the engine's client.
func (k *kind) docker(ctx context.Context, args ...string) *exec.Cmd {
	if k.engine != nil {
		return k.engine.Command(ctx, args...)
	}
	return exec.CommandContext(ctx, "docker", args...) //nolint:gosec // ours
}

// ask gives what the engine's client answers.
func (k *kind) ask(ctx context.Context, args ...string) (string, error) {
	cmd := k.docker(ctx, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", process.Failed(cmd, err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// kind runs the program of that name. Of our environment it sees what it needs to find
// the machine's engine and to pull images; the set's own engine needs none of it.
func (k *kind) kind(ctx context.Context, args ...string) error {
	program, err := k.tools.Program(ctx, "kind")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // ours
	cmd.Env = append(os.Environ(), "KIND_EXPERIMENTAL_PROVIDER=docker", process.MarkEnv+"="+k.dir())
	if k.engine != nil {
		cmd.Env = k.engine.Environment()
	}
	return process.Run(cmd)
}
