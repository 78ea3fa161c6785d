// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package livetest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestALockIsExclusiveOrShared(t *testing.T) {
	for name, tc := range map[string]struct {
		reason    string
		held      Use
		what      string
		asked     Use
		available bool
	}{
		"shared beside shared":          {reason: "neither minds the other", held: Shared, what: "nodes", asked: Shared, available: true},
		"exclusive beside shared":       {reason: "it waits for all who share", held: Shared, what: "nodes", asked: Exclusive},
		"shared beside exclusive":       {reason: "nobody is beside it", held: Exclusive, what: "nodes", asked: Shared},
		"exclusive beside exclusive":    {reason: "it is the use of one", held: Exclusive, what: "nodes", asked: Exclusive},
		"exclusive of something else":   {reason: "locks have names", held: Exclusive, what: "pods", asked: Exclusive, available: true},
		"exclusive after a test's end":  {reason: "a lock ends with its test", what: "nodes", asked: Exclusive, available: true},
		"shared after the end, as well": {reason: "a lock ends with its test", what: "nodes", asked: Shared, available: true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := filepath.Join(t.TempDir(), "kubeconfig")
			t.Setenv(variable, cluster)
			t.Run("a test that ends", func(t *testing.T) { Lock(t, variable, "nodes", Exclusive) })
			if tc.held != 0 {
				Lock(t, variable, "nodes", tc.held)
			}
			file, err := os.OpenFile(cluster+"."+tc.what+".lock", os.O_CREATE|os.O_RDWR, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // it is tried once
			if err := acquire(ctx, file, tc.asked); (err == nil) != tc.available {
				t.Errorf("%s: got %v", tc.reason, err)
			}
		})
	}
}

func TestWhoWaitsForALockGetsItOrEndsWithTheContext(t *testing.T) {
	cluster := filepath.Join(t.TempDir(), "kubeconfig")
	t.Setenv(variable, cluster)
	open := func() *os.File {
		t.Helper()
		file, err := os.OpenFile(cluster+".nodes.lock", os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
		return file
	}
	holder := open()
	if err := acquire(t.Context(), holder, Exclusive); err != nil {
		t.Fatal(err)
	}
	got, ended := make(chan error, 1), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	first, second := open(), open()
	go func() { ended <- acquire(ctx, first, Shared) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the end of the context", err)
	}
	go func() { got <- acquire(t.Context(), second, Shared) }()
	_ = holder.Close()
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(Patience):
		t.Error("it is free, and nobody gets it")
	}
}

func TestALockWithoutAClusterIsASkip(t *testing.T) {
	t.Setenv(variable, "")
	ran := true
	t.Run("one", func(t *testing.T) {
		defer func() { ran = !t.Skipped() }()
		Lock(t, variable, "nodes", Shared)
	})
	if ran {
		t.Error("it ran on")
	}
}
