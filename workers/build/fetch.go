// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"golang.org/x/sync/errgroup"

	"github.com/spokelet/spokelet/workers/bundle"
	"github.com/spokelet/spokelet/workers/script"
	"github.com/spokelet/spokelet/workers/store"
)

const (
	defaultScriptBytes = 16 << 20
	// maxParallelFetches is how many modules are read at a time.
	maxParallelFetches = 4

	folderMode = 0o700
	fileMode   = 0o600
)

// Store is where modules are read from.
type Store interface {
	// Fetch writes a module as it was listed.
	Fetch(ctx context.Context, account string, m script.Module, to io.Writer) error
}

// FetchConfig configures the first step.
type FetchConfig struct {
	// Input is the file with the JSON of the bundle.Input.
	Input string
	// Work is the folder of the steps.
	Work string
	// Store has the modules.
	Store Store
	// MaxBytes bounds the modules of one script. Default 16 MiB.
	MaxBytes int64
}

// Fetch reads the modules of all scripts and writes them, and the configurations, to the work
// folder.
func Fetch(ctx context.Context, config FetchConfig) error {
	if config.MaxBytes == 0 {
		config.MaxBytes = defaultScriptBytes
	}
	in, err := readInput(config.Input)
	if err != nil {
		return err
	}
	work, err := os.OpenRoot(config.Work)
	if err != nil {
		return fmt.Errorf("work folder: %w", err)
	}
	defer func() { _ = work.Close() }()
	var modules []moduleFile
	for i, worker := range in.Workers {
		var bytes int64
		for j, module := range worker.Modules {
			bytes += module.Size
			modules = append(modules, moduleFile{worker: worker.Name, module: module, path: in.Path(i, j)})
		}
		if bytes > config.MaxBytes {
			return &ScriptError{Script: worker.Name, Err: fmt.Errorf("%w: it has %d bytes, and the limit is %d", store.ErrTooLarge, bytes, config.MaxBytes)}
		}
	}
	err = forEach(ctx, len(modules), maxParallelFetches, func(ctx context.Context, i int) error {
		return modules[i].fetch(ctx, in.Account, config.Store, work)
	})
	if err != nil {
		return err
	}
	return writeConfigs(in, work)
}

// writeConfigs writes the configuration of the image, for debugging, and those of the probes.
func writeConfigs(in bundle.Input, work *os.Root) error {
	if err := work.WriteFile("config.capnp", in.Config(), fileMode); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	for i, worker := range in.Workers {
		if err := work.WriteFile(probeFile(i), in.Probe(i, "unix:"+socketName), fileMode); err != nil {
			return fmt.Errorf("write probe of script %s: %w", worker.Name, err)
		}
	}
	return nil
}

// moduleFile is a module and its path in the work folder.
type moduleFile struct {
	worker string
	module script.Module
	path   string
}

func (p moduleFile) fetch(ctx context.Context, account string, from Store, work *os.Root) error {
	if err := work.MkdirAll(path.Dir(p.path), folderMode); err != nil {
		return fmt.Errorf("script %s: %w", p.worker, err)
	}
	// A step that runs again overwrites the file.
	file, err := work.OpenFile(p.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return fmt.Errorf("script %s: %w", p.worker, err)
	}
	err = from.Fetch(ctx, account, p.module, file)
	// A full disk may be reported by Close only.
	if err = errors.Join(err, file.Close()); err != nil {
		return &ScriptError{Script: p.worker, Err: err}
	}
	return nil
}

// forEach calls a function for 0 to n-1, some at a time, until one fails. It returns the error
// with the smallest number, so that the same cause has the same text.
func forEach(ctx context.Context, n, limit int, do func(context.Context, int) error) error {
	errs := make([]error, n)
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(limit)
	for i := range n {
		if within.Err() != nil {
			break
		}
		group.Go(func() error {
			errs[i] = do(within, i)
			return errs[i]
		})
	}
	failed := group.Wait()
	for _, err := range errs {
		if err != nil && (ctx.Err() != nil || !errors.Is(err, context.Canceled)) {
			return err
		}
	}
	return cmp.Or(failed, ctx.Err())
}
