// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package toolchain builds the programs that clusters for tests are made of, and those
// that tests run beside them (Kubernetes, etcd, helm, kind, an object store, a registry),
// from Go modules and keeps them in a cache outside the checkout. Every tool is a module of its own under hack/clusters/tools,
// so that their dependencies neither meet each other nor the product's.
// What else is made once for a machine is kept beside them.
//
// An entry of the cache is named by a hash over everything that decides its
// content, is written under a lock and appears by a rename: it is whole or absent.
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
	"runtime"
	"slices"
	"strings"
	"sync"
)

// CacheEnv names the environment variable that moves the cache away from
// os.UserCacheDir()/spokelet.
const CacheEnv = "SPOKELET_CACHE"

// module is the import path of hack/clusters; its sources are found by it.
const module = "github.com/spokelet/spokelet/hack/clusters"

// ErrUnknown is returned for a program that no tool provides.
var ErrUnknown = errors.New("unknown program")

// tool is one build: a package that gives one binary, known by one or more names.
type tool struct {
	name     string   // of the binary and of its directory under tools/
	pkg      string   // what go build is given, in that directory
	programs []string // names it runs under; symbolic links when they differ from name
	version  string   // module whose version is stamped as Kubernetes' gitVersion; v0.N of a part is v1.N of the whole
}

func tools() []tool {
	return []tool{
		{name: "kube", pkg: ".", version: "k8s.io/kubernetes", programs: []string{
			"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubeadm",
		}},
		{name: "kubectl", pkg: ".", version: "k8s.io/kubectl", programs: []string{"kubectl"}},
		{name: "kubectl129", pkg: ".", version: "k8s.io/kubectl", programs: []string{"kubectl129"}},
		{name: "etcd", pkg: "go.etcd.io/etcd/server/v3", programs: []string{"etcd"}},
		{name: "coredns", pkg: ".", programs: []string{"coredns"}},
		{name: "helm", pkg: "helm.sh/helm/v4/cmd/helm", programs: []string{"helm"}},
		{name: "kind", pkg: "sigs.k8s.io/kind", programs: []string{"kind"}},
		{name: "metrics-server", pkg: "sigs.k8s.io/metrics-server/cmd/metrics-server", programs: []string{"metrics-server"}},
		{name: "oci-runtime", pkg: ".", programs: []string{"oci-runtime"}},
		{name: "pause", pkg: ".", programs: []string{"pause"}},
		{name: "versitygw", pkg: ".", programs: []string{"versitygw"}},
		{name: "registry", pkg: ".", programs: []string{"registry"}},
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
	log *slog.Logger

	mu   sync.Mutex
	dirs map[string]string // by tool: what was found or built before
}

// New makes a Toolchain. Nothing is looked for before a program is asked for.
func New(log *slog.Logger) *Toolchain {
	return &Toolchain{log: log, dirs: make(map[string]string)}
}

// sourceDir finds the directory of hack/clusters: where this file was compiled
// from, or, where the paths were trimmed from the binary, through the go command
// in a module that requires it.
func sourceDir(ctx context.Context) (string, error) {
	if _, file, _, ok := runtime.Caller(0); ok {
		dir := filepath.Dir(filepath.Dir(file))
		if exists(filepath.Join(dir, "tools")) {
			return dir, nil
		}
	}
	dir, err := output(ctx, "", "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return "", fmt.Errorf("sources of %s: %w", module, err)
	}
	return dir, nil
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
	tool, err := toolOf(name)
	if err != nil {
		return "", err
	}
	dir, err := t.ensure(ctx, tool)
	if err != nil {
		return "", fmt.Errorf("tool %s: %w", tool.name, err)
	}
	return filepath.Join(dir, name), nil
}

// toolOf finds the tool that provides a program.
func toolOf(program string) (tool, error) {
	for _, tool := range tools() {
		if slices.Contains(tool.programs, program) {
			return tool, nil
		}
	}
	return tool{}, fmt.Errorf("%q: %w (there are %s)", program, ErrUnknown, strings.Join(Programs(), ", "))
}

// Module gives the version of the module that a program is built from, and the
// directory of its files: some carry a chart beside the program.
func (t *Toolchain) Module(ctx context.Context, name string) (version, dir string, err error) {
	tool, err := toolOf(name)
	if err != nil {
		return "", "", err
	}
	b, err := t.build(ctx, tool)
	if err != nil {
		return "", "", err
	}
	out, err := output(ctx, b.source, "list", "-f", "{{.Module.Version}}\n{{.Module.Dir}}", tool.pkg)
	if err != nil {
		return "", "", fmt.Errorf("module of %s: %w", name, err)
	}
	version, dir, _ = strings.Cut(out, "\n")
	return version, dir, nil
}

// Built tells whether Program would return at once.
func (t *Toolchain) Built(ctx context.Context, name string) bool {
	tool, err := toolOf(name)
	if err != nil {
		return false
	}
	b, err := t.build(ctx, tool)
	if err != nil {
		return false
	}
	entry, _, err := b.entry(ctx)
	return err == nil && exists(entry.dir())
}

// ensure gives the directory of the tool's binaries. One at a time: a second
// build would only slow the first down.
func (t *Toolchain) ensure(ctx context.Context, tool tool) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if dir, known := t.dirs[tool.name]; known {
		return dir, nil
	}
	b, err := t.build(ctx, tool)
	if err != nil {
		return "", err
	}
	dir, err := b.ensure(ctx)
	if err == nil {
		t.dirs[tool.name] = dir
	}
	return dir, err
}

func (t *Toolchain) build(ctx context.Context, tool tool) (build, error) {
	source, err := sourceDir(ctx)
	if err != nil {
		return build{}, err
	}
	cache, err := cacheDir()
	if err != nil {
		return build{}, err
	}
	return build{tool: tool, source: filepath.Join(source, "tools", tool.name), cache: cache, log: t.log}, nil
}

// build is one tool, where its sources are and where its binaries go.
type build struct {
	tool          tool
	source, cache string
	log           *slog.Logger
}

func (b build) ensure(ctx context.Context) (string, error) {
	entry, flags, err := b.entry(ctx)
	if err != nil {
		return "", err
	}
	return entry.ensure(ctx, func(ctx context.Context, dir string) error { return b.run(ctx, flags, dir) })
}

// entry is where the binaries belong, made with those linker flags.
func (b build) entry(ctx context.Context) (e entry, flags string, err error) {
	flags, err = b.linkerFlags(ctx)
	if err != nil {
		return entry{}, "", err
	}
	key, err := b.key(ctx, flags)
	if err != nil {
		return entry{}, "", err
	}
	return entry{name: b.tool.name, key: key, cache: b.cache, log: b.log}, flags, nil
}

// run builds into a directory.
func (b build) run(ctx context.Context, flags, dir string) error {
	_, err := output(ctx, b.source, "build", "-trimpath", "-buildvcs=false", "-ldflags", flags,
		"-o", filepath.Join(dir, b.tool.name), b.tool.pkg)
	if err != nil {
		return err
	}
	for _, program := range b.tool.programs {
		if program == b.tool.name {
			continue
		}
		if err := os.Symlink(b.tool.name, filepath.Join(dir, program)); err != nil {
			return err
		}
	}
	return nil
}

// linkerFlags strips the binary and, for Kubernetes, stamps the release: a
// server without one calls itself v0.0.0, which clients refuse.
func (b build) linkerFlags(ctx context.Context) (string, error) {
	const strip = "-s -w"
	if b.tool.version == "" {
		return strip, nil
	}
	version, err := output(ctx, b.source, "list", "-m", "-f", "{{.Version}}", b.tool.version)
	if err != nil {
		return "", err
	}
	if minor, part := strings.CutPrefix(version, "v0."); part {
		version = "v1." + minor
	}
	return strip + " -X k8s.io/component-base/version.gitVersion=" + version +
		" -X k8s.io/client-go/pkg/version.gitVersion=" + version, nil
}

// key hashes what decides the binary: the module files and sources of the tool,
// the toolchain and platform, and the flags.
func (b build) key(ctx context.Context, flags string) (string, error) {
	env, err := output(ctx, b.source, "env", "GOVERSION", "GOOS", "GOARCH")
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%q %q %q\n", env, flags, b.tool.pkg)
	var files []string
	for _, pattern := range []string{"go.mod", "go.sum", "*.go"} {
		found, err := filepath.Glob(filepath.Join(b.source, pattern))
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
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // our arguments
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
