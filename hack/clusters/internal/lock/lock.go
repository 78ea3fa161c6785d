// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lock serialises processes of one machine by advisory file locks. A
// lock ends with the process that holds it, however that dies, so nothing has
// to be cleaned up after a kill.
package lock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Lock is a held lock.
type Lock struct{ file *os.File }

// Release gives the lock back.
func (l *Lock) Release() { _ = l.file.Close() }

// Remove removes the lock's file and gives the lock back. Whoever waits for it
// notices and makes a new one.
func (l *Lock) Remove() error {
	err := os.Remove(l.file.Name())
	l.Release()
	return err
}

// Acquire takes the lock of that path, making the file and its directory when
// missing. It calls wait (when not nil) if another process holds it, then
// blocks until that one lets go or ctx ends.
func Acquire(ctx context.Context, path string, wait func()) (*Lock, error) {
	for {
		file, err := acquire(ctx, path, wait)
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if current(file) {
			return &Lock{file}, nil
		}
		_ = file.Close() // its last holder removed it
	}
}

// current tells whether the locked file is still the one of that name.
func current(file *os.File) bool {
	have, err := file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(file.Name())
	return err == nil && os.SameFile(have, named)
}

func acquire(ctx context.Context, path string, wait func()) (*os.File, error) {
	file, err := open(path)
	if err != nil {
		return nil, err
	}
	fd := int(file.Fd())
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil {
		return file, nil
	}
	if wait != nil {
		wait()
	}
	// In a goroutine of its own because flock cannot be cancelled: when ctx ends
	// first, the file is closed as soon as the lock is got.
	locked := make(chan error, 1)
	go func() { locked <- flock(fd) }()
	select {
	case err := <-locked:
		if err != nil {
			_ = file.Close()
		}
		return file, err
	case <-ctx.Done():
		go func() { _ = errors.Join(<-locked, file.Close()) }()
		return nil, context.Cause(ctx)
	}
}

// open opens the file of a lock. Whoever removed the last one may remove its directory,
// too, at any moment of this.
func open(path string) (file *os.File, err error) {
	const tries = 100 // the directory may be one that cannot be made
	for range tries {
		err = os.MkdirAll(filepath.Dir(path), 0o755) //nolint:gosec // holds what others may read
		if err == nil {
			file, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the caller's choice
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return file, err
}

func flock(fd int) error {
	for {
		if err := unix.Flock(fd, unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
