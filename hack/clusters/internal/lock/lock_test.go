// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package lock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestAcquireGivesALockToOneHolderAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "lock")
	first, err := Acquire(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	waiting, second := make(chan struct{}), make(chan error, 1)
	go func() {
		lock, err := Acquire(t.Context(), path, func() { close(waiting) })
		if err == nil {
			lock.Release()
		}
		second <- err
	}()
	<-waiting
	select {
	case err := <-second:
		t.Fatalf("the second holder did not wait: %v", err)
	default:
	}
	first.Release()
	if err := <-second; err != nil {
		t.Errorf("the second holder: %v", err)
	}
}

func TestAcquireAfterRemoveHoldsTheNewFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Acquire(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	waiting, second := make(chan struct{}, 2), make(chan *Lock, 1)
	go func() {
		lock, err := Acquire(t.Context(), path, func() { waiting <- struct{}{} })
		if err != nil {
			t.Error(err)
		}
		second <- lock
	}()
	<-waiting
	if err := first.Remove(); err != nil {
		t.Fatal(err)
	}
	lock := <-second
	defer lock.Release()
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the second holder holds a file that nobody else can find: %v", err)
	}
}

func TestAcquireEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Acquire(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Release()
	errBoom := errors.New("boom")
	ctx, cancel := context.WithCancelCause(t.Context())
	if _, err := Acquire(ctx, path, func() { cancel(errBoom) }); !errors.Is(err, errBoom) {
		t.Errorf("error %v, want the cause of the end", err)
	}
}
