// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storetest has an object store for tests.
package storetest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/spokelet/spokelet/workers/store"
)

// Memory is an object store in memory.
type Memory struct {
	mu sync.Mutex
	// Objects are the stored objects by key.
	Objects map[string]string
	// FailPuts are parts of keys that cannot be written.
	FailPuts []string
	// Puts counts the written objects, ReadBytes the bytes that were read.
	Puts, ReadBytes int
}

// NewMemory returns an empty store.
func NewMemory() *Memory { return &Memory{Objects: map[string]string{}} }

// Put stores an object.
func (m *Memory) Put(ctx context.Context, _, key, _ string, content []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if slices.ContainsFunc(m.FailPuts, func(part string) bool { return strings.Contains(key, part) }) {
		return store.ErrUnavailable
	}
	m.Objects[key] = string(content)
	m.Puts++
	return nil
}

// Read returns the first bytes of an object.
func (m *Memory) Read(_ context.Context, _, key string, limit int64) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	content, ok := m.Objects[key]
	if !ok {
		return nil, store.ErrMissing
	}
	content = content[:min(int64(len(content)), limit)]
	m.ReadBytes += len(content)
	return []byte(content), nil
}

// Names returns the last names directly below a folder.
func (m *Memory) Names(_ context.Context, _, folder string, most int) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := sets.New[string]()
	for key := range m.Objects {
		if rest, below := strings.CutPrefix(key, folder+"/"); below {
			name, _, deeper := strings.Cut(rest, "/")
			if deeper {
				name += "/"
			}
			names.Insert(name)
		}
	}
	all := sets.List(names)
	return all[max(0, len(all)-most):], nil
}

// Delete deletes objects.
func (m *Memory) Delete(_ context.Context, _ string, keys ...string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		delete(m.Objects, key)
	}
	return nil
}

// DeleteFolder deletes the objects below a folder.
func (m *Memory) DeleteFolder(_ context.Context, _, folder string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.Objects, func(key, _ string) bool { return strings.HasPrefix(key, folder+"/") })
	return nil
}

// Keys returns the keys of all objects, sorted.
func (m *Memory) Keys() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.Objects))
}
