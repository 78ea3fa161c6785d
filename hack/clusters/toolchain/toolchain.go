// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package toolchain builds the programs that clusters for tests are made of
// (Kubernetes, etcd, helm, kind) from Go modules and keeps them in a cache
// outside the checkout. Every tool is a module of its own under hack/clusters/tools,
// so that their dependencies neither meet each other nor the product's.
//
// An entry of the cache is named by a hash over everything that decides the
// binary, is written under a lock and appears by a rename: it is whole or absent.
package toolchain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spokelet/spokelet/hack/clusters/internal/lock"
)

// CacheEnv names the environment variable that moves the cache away from
// os.UserCacheDir()/spokelet.
const CacheEnv = "SPOKELET_CACHE"

// module is the import path of hack/clusters; its sources are found by it.
const module = "github.com/spokelet/spokelet/hack/clusters"

// progressEvery is how often a running build reports that it is alive.
const progressEvery = 15 * time.Second

// ErrUnknown is returned for a program that no tool provides.
var ErrUnknown = errors.New("unknown program")

// tool is one build: a package that gives one binary, known by one or more names.
type tool struct {
	name     string   // of the binary and of its directory under tools/
	pkg      string   // what go build is given, in that directory
	programs []string // names it runs under; symbolic links when they differ from name
	version  string   // module whose version is stamped as Kubernetes' gitVersion
}

func tools() []tool {
	return []tool{
		{name: "kube", pkg: ".", version: "k8s.io/kubernetes", programs: []string{
			"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl",
		}},
		{name: "etcd", pkg: "go.etcd.io/etcd/server/v3", programs: []string{"etcd"}},
		{name: "helm", pkg: "helm.sh/helm/v4/cmd/helm", programs: []string{"helm"}},
		{name: "kind", pkg: "sigs.k8s.io/kind", programs: []string{"kind"}},
		{name: "pause", pkg: ".", programs: []string{"pause"}},
	}
}

// Programs lists, sorted, the names that Toolchain.Program knows.
func Programs() []string {
	var names []string
	for _, t := range tools() {
		names = append(names, t.programs...)
	}
	slices.Sort(names)
	return names
}

// Toolchain finds and builds programs.
type Toolchain struct {
	source string // directory of hack/clusters
	cache  string
	log    *slog.Logger
}

// New finds the sources of hack/clusters through the go command (so it works
// for every module that requires it, from any of that module's directories)
// and the cache.
func New(ctx context.Context, log *slog.Logger) (*Toolchain, error) {
	source, err := output(ctx, "", "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return nil, fmt.Errorf("sources of %s: %w", module, err)
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	return &Toolchain{source: source, cache: cache, log: log}, nil
}

func cacheDir() (string, error) {
	if dir := os.Getenv(CacheEnv); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cache of built programs (set %s): %w", CacheEnv, err)
	}
	return filepath.Join(dir, "spokelet"), nil
}

// Program gives the path of a program, building it first when this machine has
// not done so: the first build of Kubernetes takes minutes, later calls none.
func (t *Toolchain) Program(ctx context.Context, name string) (string, error) {
	for _, tool := range tools() {
		if slices.Contains(tool.programs, name) {
			dir, err := t.ensure(ctx, tool)
			return filepath.Join(dir, name), err
		}
	}
	return "", fmt.Errorf("%q: %w (there are %s)", name, ErrUnknown, strings.Join(Programs(), ", "))
}

// ensure gives the directory of the tool's binaries.
func (t *Toolchain) ensure(ctx context.Context, tool tool) (string, error) {
	flags, err := t.linkerFlags(ctx, tool)
	if err != nil {
		return "", fmt.Errorf("tool %s: %w", tool.name, err)
	}
	key, err := t.key(ctx, tool, flags)
	if err != nil {
		return "", fmt.Errorf("tool %s: %w", tool.name, err)
	}
	dir := filepath.Join(t.cache, tool.name+"-"+key)
	if exists(dir) {
		return dir, nil
	}
	held, err := lock.Acquire(ctx, filepath.Join(t.cache, tool.name+".lock"), func() {
		t.log.Info("waiting for another process that builds", "tool", tool.name)
	})
	if err != nil {
		return "", err
	}
	defer held.Release()
	if exists(dir) { // the one we waited for has built it
		return dir, nil
	}
	if err := t.build(ctx, tool, flags, dir); err != nil {
		return "", fmt.Errorf("tool %s: %w", tool.name, err)
	}
	return dir, nil
}

// build makes dir appear whole: everything happens beside it, then it is renamed.
func (t *Toolchain) build(ctx context.Context, tool tool, flags, dir string) error {
	staging, err := os.MkdirTemp(t.cache, "."+tool.name+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(staging)
	if err := os.Chmod(staging, 0o755); err != nil { //nolint:gosec // holds programs, which others may run
		return err
	}
	stop := t.progress(tool.name)
	_, err = output(ctx, t.dir(tool), "build", "-trimpath", "-buildvcs=false", "-ldflags", flags,
		"-o", filepath.Join(staging, tool.name), tool.pkg)
	stop()
	if err != nil {
		return err
	}
	for _, program := range tool.programs {
		if program == tool.name {
			continue
		}
		if err := os.Symlink(tool.name, filepath.Join(staging, program)); err != nil {
			return err
		}
	}
	return os.Rename(staging, dir)
}

// progress reports the build's age until the returned function is called.
func (t *Toolchain) progress(name string) (stop func()) {
	start := time.Now()
	t.log.Info("building, kept for later runs", "tool", name)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				t.log.Info("still building", "tool", name, "elapsed", time.Since(start).Round(time.Second))
			}
		}
	}()
	return func() {
		close(done)
		<-ended
		t.log.Info("build ended", "tool", name, "elapsed", time.Since(start).Round(time.Second))
	}
}

func (t *Toolchain) dir(tool tool) string { return filepath.Join(t.source, "tools", tool.name) }

// linkerFlags strips the binary and, for Kubernetes, stamps the release: a
// server without one calls itself v0.0.0, which clients refuse.
func (t *Toolchain) linkerFlags(ctx context.Context, tool tool) (string, error) {
	flags := "-s -w"
	if tool.version == "" {
		return flags, nil
	}
	version, err := output(ctx, t.dir(tool), "list", "-m", "-f", "{{.Version}}", tool.version)
	if err != nil {
		return "", err
	}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags += " -X " + pkg + ".gitVersion=" + version
	}
	return flags, nil
}

// key hashes what decides the binary: the module files and sources of the tool,
// the toolchain and platform, and the flags.
func (t *Toolchain) key(ctx context.Context, tool tool, flags string) (string, error) {
	env, err := output(ctx, t.dir(tool), "env", "GOVERSION", "GOOS", "GOARCH")
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%q %q %q\n", env, flags, tool.pkg)
	var files []string
	for _, pattern := range []string{"go.mod", "go.sum", "*.go"} {
		found, err := filepath.Glob(filepath.Join(t.dir(tool), pattern))
		if err != nil {
			return "", err
		}
		files = append(files, found...)
	}
	for _, path := range files {
		content, err := os.ReadFile(path) //nolint:gosec // our own sources
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%s %x\n", filepath.Base(path), sha256.Sum256(content))
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}

// output runs the go command in dir and gives its trimmed output. CGO is off so
// that the binaries are static and no C compiler is needed.
func output(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	var stdout, stderr strings.Builder
	cmd.Stdout = &stdout
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w: %s", args[0], err, tail(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

// tail keeps the end of a long output, where compilers say what is wrong.
func tail(text string) string {
	const most = 2000
	text = strings.TrimSpace(text)
	if len(text) > most {
		text = "... " + text[len(text)-most:]
	}
	return text
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
