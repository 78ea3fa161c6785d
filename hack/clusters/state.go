// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// state is what is kept of a set: enough to find and remove all of it. It is
// written before anything else of the set exists, and removed last.
type state struct {
	Name      string
	Provider  Provider
	Clusters  []string // the hub first
	OwnEngine bool     // whether Kind runs on an engine of the set's own
	Slot      int      // of the network, for what uses network namespaces
	Complete  bool     // whether Up got to its end
}

// slotted tells whether the set has a network slot.
func (s state) slotted() bool { return s.Provider == Netns || s.OwnEngine }

const stateFile = "state.json"

func (s state) dir(root string) string { return filepath.Join(root, s.Name) }

// save replaces the file as a whole, so that a kill leaves the old or the new.
func (s state) save(root string) error {
	dir := s.dir(root)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // private files inside have their own modes
		return fmt.Errorf("state of set %s: %w", s.Name, err)
	}
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("state of set %s: %w", s.Name, err)
	}
	path := filepath.Join(dir, stateFile)
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return fmt.Errorf("state of set %s: %w", s.Name, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("state of set %s: %w", s.Name, err)
	}
	return nil
}

// load reads the state of a set; the error is ErrNotFound when there is none.
func load(root, name string) (state, error) {
	content, err := os.ReadFile(filepath.Join(root, name, stateFile)) //nolint:gosec // validated name
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, fmt.Errorf("%s: %w", name, ErrNotFound)
	}
	if err != nil {
		return state{}, fmt.Errorf("state of set %s: %w", name, err)
	}
	var s state
	if err := json.Unmarshal(content, &s); err != nil {
		return state{}, fmt.Errorf("state of set %s: %w", name, err)
	}
	return s, nil
}

// list reads the states of all sets, sorted by name.
func list(root string) ([]state, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("sets of clusters: %w", err)
	}
	var states []state
	for _, entry := range entries {
		if !entry.IsDir() {
			continue // a lock
		}
		s, err := load(root, entry.Name())
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		states = append(states, s)
	}
	return states, nil
}

// slots lists the network slots that sets hold, without those of that name.
func slots(states []state, without string) []int {
	var used []int
	for _, s := range states {
		if s.slotted() && s.Name != without {
			used = append(used, s.Slot)
		}
	}
	slices.Sort(used)
	return used
}
