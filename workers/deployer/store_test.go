// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package deployer

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/spokelet/spokelet/workers/store"
)

// fakeStore is an object store that is a map.
type fakeStore struct {
	mu      sync.Mutex
	objects map[string]string
	// away are parts of keys that cannot be written.
	away []string
	// puts counts what was written, and read the bytes that were read.
	puts, read int
}

func (f *fakeStore) Put(_ context.Context, _, key, _ string, content []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.away, func(part string) bool { return strings.Contains(key, part) }) {
		return store.ErrUnavailable
	}
	f.objects[key] = string(content)
	f.puts++
	return nil
}

func (f *fakeStore) Read(_ context.Context, _, key string, limit int64) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	content, ok := f.objects[key]
	if !ok {
		return nil, store.ErrMissing
	}
	content = content[:min(int64(len(content)), limit)]
	f.read += len(content)
	return []byte(content), nil
}

func (f *fakeStore) Names(_ context.Context, _, folder string, most int) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := sets.New[string]()
	for key := range f.objects {
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

func (f *fakeStore) Delete(_ context.Context, _ string, keys ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, key := range keys {
		delete(f.objects, key)
	}
	return nil
}

func (f *fakeStore) DeleteFolder(_ context.Context, _, folder string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.objects, func(key, _ string) bool { return strings.HasPrefix(key, folder+"/") })
	return nil
}

// keys are all that is stored, sorted.
func (f *fakeStore) keys() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.objects))
}
