// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spokelet/spokelet/workers/bundle"
	"github.com/spokelet/spokelet/workers/script"
	"github.com/spokelet/spokelet/workers/store"
)

// fakeStore gives each module its own key as content.
type fakeStore struct {
	accounts sync.Map
	// most is how many were read at a time.
	now, most atomic.Int32
	// fail returns the error of a key.
	fail func(key string) error
}

func (f *fakeStore) Fetch(ctx context.Context, account string, m script.Module, to io.Writer) error {
	f.accounts.Store(account, true)
	now := f.now.Add(1)
	defer f.now.Add(-1)
	for most := f.most.Load(); now > most && !f.most.CompareAndSwap(most, now); most = f.most.Load() {
	}
	if f.fail != nil {
		if err := f.fail(m.Key); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(to, m.Key); err != nil {
		return err
	}
	return ctx.Err()
}

// inputOf is of some scripts with some modules each.
func inputOf(scripts, modules int) bundle.Input {
	in := bundle.Input{Account: "a1"}
	for i := range scripts {
		w := script.Worker{Name: fmt.Sprintf("s%d", i), Main: "m0.js", CompatibilityDate: "2026-01-15"}
		for j := range modules {
			key := fmt.Sprintf("a1/s%d/1/m%d.js", i, j)
			w.Modules = append(w.Modules, script.Module{Name: fmt.Sprintf("m%d.js", j), Kind: script.KindESModule, Key: key, ETag: "e", Size: int64(len(key))})
		}
		in.Workers = append(in.Workers, w)
	}
	return in
}

// tree returns the files of a folder and what is in them.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestFetchWritesModulesAndConfigs(t *testing.T) {
	in := inputOf(2, 2)
	from := &fakeStore{}
	config := FetchConfig{Input: writeInput(t, in), Work: t.TempDir(), Store: from}
	want := map[string]string{
		"config.capnp":  string(in.Config()),
		"probe-0.capnp": string(in.Probe(0, "unix:socket")),
		"probe-1.capnp": string(in.Probe(1, "unix:socket")),
		in.Path(0, 0):   "a1/s0/1/m0.js", in.Path(0, 1): "a1/s0/1/m1.js",
		in.Path(1, 0): "a1/s1/1/m0.js", in.Path(1, 1): "a1/s1/1/m1.js",
	}
	// A container that is run again finds what it left.
	write(t, filepath.Join(config.Work, in.Path(0, 0)), strings.Repeat("old", 100))
	for range 2 {
		if err := Fetch(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, tree(t, config.Work)); diff != "" {
			t.Error(diff)
		}
	}
	from.accounts.Range(func(account, _ any) bool {
		if account != "a1" {
			t.Errorf("it asked for account %v", account)
		}
		return true
	})
}

func TestFetchLimitsParallelReads(t *testing.T) {
	from := &fakeStore{}
	all := make(chan struct{})
	enough := sync.OnceFunc(func() { close(all) })
	from.fail = func(string) error {
		if from.now.Load() == maxParallelFetches {
			enough()
		}
		<-all
		return nil
	}
	if err := Fetch(t.Context(), FetchConfig{Input: writeInput(t, inputOf(1, 40)), Work: t.TempDir(), Store: from}); err != nil {
		t.Fatal(err)
	}
	if most := from.most.Load(); most != maxParallelFetches {
		t.Errorf("it read %d at a time", most)
	}
}

func TestFetchReportsErrors(t *testing.T) {
	large := inputOf(2, 2)
	large.Workers[1].Modules[0].Size = 16 << 20
	cases := map[string]struct {
		reason string
		input  bundle.Input
		fail   func(key string) error
		change func(c *FetchConfig)
		want   string
		is     error
	}{
		"for an object that was changed": {
			reason: "what is built is what was asked for",
			fail:   func(string) error { return store.ErrChanged },
			want:   "script s0: the object was changed after it was listed", is: store.ErrChanged,
		},
		"with the first of the errors": {
			reason: "the same cause has the same text",
			fail: func(key string) error {
				if strings.HasPrefix(key, "a1/s1/") {
					return errors.New(key)
				}
				return nil
			},
			want: "script s1: a1/s1/1/m0.js",
		},
		"for a script that is too large": {
			reason: "a release that somebody made by hand may say any size",
			input:  large,
			want:   "script s1: the script is too large: it has 16777229 bytes, and the limit is 16777216", is: store.ErrTooLarge,
		},
		"without an input": {
			reason: "there is nothing to read", change: func(c *FetchConfig) { c.Input = "/nowhere/input" },
			want: "input: open /nowhere/input: no such file or directory",
		},
		"without a folder": {
			reason: "there is no place", change: func(c *FetchConfig) { c.Work = "/nowhere" },
			want: "work folder: open /nowhere: no such file or directory",
		},
		"for no scripts": {
			reason: "an image of nothing is not asked for", input: bundle.Input{Account: "a1"},
			want: "input: has no account or no scripts",
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			in := inputOf(2, 1)
			if test.input.Account != "" {
				in = test.input
			}
			config := FetchConfig{Input: writeInput(t, in), Work: t.TempDir(), Store: &fakeStore{fail: test.fail}}
			if test.change != nil {
				test.change(&config)
			}
			err := Fetch(t.Context(), config)
			if err == nil || err.Error() != test.want || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("%s\n%v, not %s", test.reason, err, test.want)
			}
		})
	}
}

func TestFetchStopsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	from := &fakeStore{fail: func(string) error { cancel(); return nil }}
	err := Fetch(ctx, FetchConfig{Input: writeInput(t, inputOf(3, 3)), Work: t.TempDir(), Store: from})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it returns %v", err)
	}
}
