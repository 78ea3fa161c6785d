// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spokelet/spokelet/hack/clusters/internal/lock"
)

// progressEvery is how often a running build reports that it is alive.
const progressEvery = 15 * time.Second

// Keep gives the directory of something that is made once for a machine and is not a
// program. The name is its own in the cache; the key, from Key, is over all that decides
// its content. Where there is none, build fills a directory, which then appears whole.
func (t *Toolchain) Keep(ctx context.Context, name, key string, build func(ctx context.Context, dir string) error) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir, err := entry{name: name, key: key, cache: cache, log: t.log}.ensure(ctx, build)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return dir, nil
}

// Key hashes what decides the content of an entry.
func Key(parts ...string) string {
	hash := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(hash, "%q\n", part)
	}
	return hex.EncodeToString(hash.Sum(nil))[:16]
}

// entry is one directory of the cache.
type entry struct {
	name, key, cache string
	log              *slog.Logger
}

func (e entry) dir() string { return filepath.Join(e.cache, e.name+"-"+e.key) }

// ensure makes the directory where it is not there.
func (e entry) ensure(ctx context.Context, build func(ctx context.Context, dir string) error) (string, error) {
	dir := e.dir()
	if exists(dir) {
		return dir, nil
	}
	held, err := lock.Acquire(ctx, filepath.Join(e.cache, e.name+".lock"), func() {
		e.log.Info("waiting for another process that builds", "tool", e.name)
	})
	if err != nil {
		return "", err
	}
	defer held.Release()
	if exists(dir) { // the one we waited for has built it
		return dir, nil
	}
	if err := e.sweep(); err != nil {
		return "", err
	}
	return dir, e.make(ctx, build)
}

// staging is the pattern of the directories that builds happen in.
func (e entry) staging() string { return "." + e.name + "-*" }

// sweep removes what builds that were killed left; with the lock held, none runs.
func (e entry) sweep() error {
	left, err := filepath.Glob(filepath.Join(e.cache, e.staging()))
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// make has the directory appear whole: everything happens beside it, then it is renamed.
func (e entry) make(ctx context.Context, build func(ctx context.Context, dir string) error) error {
	staging, err := os.MkdirTemp(e.cache, e.staging())
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(staging) }()     // the next build sweeps what stays
	if err := os.Chmod(staging, 0o755); err != nil { //nolint:gosec // holds programs, which others may run
		return err
	}
	stop := e.progress()
	err = build(ctx, staging)
	stop()
	if err != nil {
		return err
	}
	return os.Rename(staging, e.dir())
}

// progress reports the entry's age until the returned function is called.
func (e entry) progress() (stop func()) {
	start := time.Now()
	e.log.Info("building, kept for later runs", "tool", e.name)
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
				e.log.Info("still building", "tool", e.name, "elapsed", time.Since(start).Round(time.Second))
			}
		}
	}()
	return func() {
		close(done)
		<-ended
		e.log.Info("build ended", "tool", e.name, "elapsed", time.Since(start).Round(time.Second))
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
