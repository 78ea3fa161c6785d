// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package host is what a set of clusters needs of the machine as a whole:
// packages, kernel settings and mounts, and putting back what was changed.
package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// settings are the kernel settings that clusters change: forwarding and inotify
// by us, the others by every kubelet at its start.
func settings() []string {
	return []string{
		"net/ipv4/ip_forward",
		"fs/inotify/max_user_instances",
		"vm/overcommit_memory",
		"vm/panic_on_oom",
		"kernel/panic",
		"kernel/panic_on_oops",
		"kernel/keys/root_maxkeys",
		"kernel/keys/root_maxbytes",
	}
}

// inotifyInstances is enough for several sets: the kernel's default of 128 for
// all processes of a user is not.
const inotifyInstances = 1024

// Tune saves the kernel settings into the file, unless an earlier set already
// did, and sets those that clusters need before they start.
func Tune(saved string) error {
	if _, err := os.Stat(saved); errors.Is(err, fs.ErrNotExist) {
		if err := save(saved); err != nil {
			return fmt.Errorf("kernel settings: %w", err)
		}
	}
	if err := set("net/ipv4/ip_forward", "1"); err != nil {
		return fmt.Errorf("kernel settings: %w", err)
	}
	current, err := get("fs/inotify/max_user_instances")
	if err != nil {
		return fmt.Errorf("kernel settings: %w", err)
	}
	if n, err := strconv.Atoi(current); err == nil && n >= inotifyInstances {
		return nil
	}
	// Where it cannot be raised one set still fits.
	_ = set("fs/inotify/max_user_instances", strconv.Itoa(inotifyInstances))
	return nil
}

func save(path string) error {
	values := make(map[string]string)
	for _, name := range settings() {
		value, err := get(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		values[name] = value
	}
	content, err := json.MarshalIndent(values, "", "  ")
	if err != nil {
		return err
	}
	// Renamed into place: a file cut short would be taken for the whole truth.
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Restore sets back what Tune saved and forgets it. Without a file it does nothing.
func Restore(saved string) error {
	content, err := os.ReadFile(saved) //nolint:gosec // our own state
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("kernel settings: %w", err)
	}
	var values map[string]string
	if err := json.Unmarshal(content, &values); err != nil {
		return fmt.Errorf("kernel settings: %s: %w", saved, err)
	}
	var failed error
	for _, name := range settings() {
		want, known := values[name]
		if have, err := get(name); !known || err != nil || have == want {
			continue
		}
		failed = errors.Join(failed, set(name, want))
	}
	if failed != nil {
		return fmt.Errorf("kernel settings: %w", failed)
	}
	return os.Remove(saved)
}

func get(name string) (string, error) {
	content, err := os.ReadFile(filepath.Join("/proc/sys", name)) //nolint:gosec // names are ours
	return strings.TrimSpace(string(content)), err
}

func set(name, value string) error {
	return os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0)
}
