// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cgroup makes and removes the control groups under which a test
// cluster's pods run, in the unified hierarchy (v2) or in every mounted v1
// hierarchy, and tells which processes live in them.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// mountPoint is where every distribution mounts control groups.
const mountPoint = "/sys/fs/cgroup"

// Unified tells whether the machine has cgroup v2 alone, by the same test as
// the kubelet's.
func Unified() bool {
	var stat unix.Statfs_t
	return unix.Statfs(mountPoint, &stat) == nil && stat.Type == unix.CGROUP2_SUPER_MAGIC
}

// Create makes the group in every hierarchy. Path is absolute within them, like
// /spokelet/dev/hub.
func Create(path string) error {
	if Unified() {
		return createUnified(path)
	}
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		if err := createV1(root, path); err != nil {
			return fmt.Errorf("cgroup %s: %w", path, err)
		}
	}
	return nil
}

// createUnified makes each level and hands all controllers down to it: a group
// has only the controllers that its parent enables.
func createUnified(path string) error {
	dir := mountPoint
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
		if err != nil {
			return fmt.Errorf("cgroup %s: %w", path, err)
		}
		for controller := range strings.FieldsSeq(string(controllers)) {
			// One at a time, and best effort: a controller that is in use by a
			// threaded or real-time group stays off, and the kubelet does without.
			_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0)
		}
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // as all groups are
			return fmt.Errorf("cgroup %s: %w", path, err)
		}
	}
	return nil
}

// createV1 makes each level and fills in the CPUs and memory nodes, which a new
// v1 cpuset lacks: nothing can run in it before.
func createV1(root, path string) error {
	dir := root
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		parent := dir
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // as all groups are
			return err
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(parent, file)) //nolint:gosec // below /sys/fs/cgroup
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, file), value, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// hierarchies lists the directories in which groups can be made.
func hierarchies() ([]string, error) {
	if Unified() {
		return []string{mountPoint}, nil
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("cgroup hierarchies: %w", err)
	}
	return parseMounts(string(mounts)), nil
}

func parseMounts(mounts string) []string {
	var roots []string
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) >= 3 && (fields[2] == "cgroup" || fields[2] == "cgroup2") {
			roots = append(roots, fields[1])
		}
	}
	return roots
}

// Processes lists the processes in the group and below, in any hierarchy.
func Processes(path string) ([]int, error) {
	roots, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, root := range roots {
		for _, dir := range tree(filepath.Join(root, path)) {
			content, err := os.ReadFile(filepath.Join(dir, "cgroup.procs")) //nolint:gosec // below /sys/fs/cgroup
			if err != nil {
				continue // it has just gone
			}
			for field := range strings.FieldsSeq(string(content)) {
				if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
					pids = append(pids, pid)
				}
			}
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// Remove removes the group and all below from every hierarchy. The processes
// must have ended; the kernel lets go of a group a moment later, so that a busy
// one is tried again until ctx ends.
func Remove(ctx context.Context, path string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		for _, dir := range tree(filepath.Join(root, path)) {
			if err := remove(ctx, dir); err != nil {
				return fmt.Errorf("cgroup %s: %w", path, err)
			}
		}
	}
	return nil
}

// RemoveEmpty removes the group from every hierarchy where nothing is in it.
func RemoveEmpty(path string) {
	roots, err := hierarchies()
	if err != nil {
		return
	}
	for _, root := range roots {
		_ = unix.Rmdir(filepath.Join(root, path))
	}
}

func remove(ctx context.Context, dir string) error {
	for {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
		}
		select {
		case <-ctx.Done():
			return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
		case <-time.After(50 * time.Millisecond): // rmdir has no event to wait for
		}
	}
}

// tree lists dir and the directories below it, children first.
func tree(dir string) []string {
	var dirs []string
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return nil // what vanishes while we look is what we want to vanish
	})
	slices.Reverse(dirs)
	return dirs
}
