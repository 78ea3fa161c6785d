// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spokelet/spokelet/hack/clusters"
)

// New finds the checkout, and gathers the programs that act on the clusters in
// one directory: kubectl, helm and the plugin.
func New(ctx context.Context, set *clusters.Set, build Build, out io.Writer) (*Env, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	build.Root, build.images = root, &images{made: map[string]func() (Image, error){}}
	e := &Env{Set: set, Build: build, Bin: filepath.Join(root, "bin"), Out: out}
	for _, name := range []string{"kubectl", "helm"} {
		if err := e.link(ctx, name); err != nil {
			return nil, err
		}
	}
	// The plugin is a short-lived program of one thread of thought: it is the one that users
	// have, and the go command puts it beside the others.
	_, err = build.Released(ctx).Binary(ctx, "kubectl-spokelet")
	return e, err
}

// Progress returns a logger for people: the message and what it is about.
func Progress(out io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

func (e *Env) link(ctx context.Context, name string) error {
	path, err := e.Set.Program(ctx, name)
	if err != nil {
		return fmt.Errorf("program %s: %w", name, err)
	}
	return relink(path, filepath.Join(e.Bin, name))
}

func relink(target, link string) error {
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return fmt.Errorf("link %s: %w", link, err)
	}
	// Another process may use the link, or make it, at this moment.
	fresh := link + "." + strconv.Itoa(os.Getpid())
	if err := os.Symlink(target, fresh); err != nil {
		return fmt.Errorf("link %s: %w", link, err)
	}
	if err := os.Rename(fresh, link); err != nil {
		return fmt.Errorf("link %s: %w", link, err)
	}
	return nil
}
