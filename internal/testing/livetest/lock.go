// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package livetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// A Use is how a test uses something of a cluster that tests of other packages, which are
// other processes, use as well.
type Use int

const (
	// Shared is the use beside others who share it.
	Shared Use = syscall.LOCK_SH
	// Exclusive is the use by one test, with nobody beside it.
	Exclusive Use = syscall.LOCK_EX
)

// Lock waits until the test may use what of the cluster whose kubeconfig a variable names,
// and holds it until the test and the cleanups that it registers later have ended. Where the
// variable names no cluster the test is skipped. The lock is one on a file beside the
// kubeconfig: it ends with the process, however that ends.
func Lock(t testing.TB, variable, what string, use Use) {
	t.Helper()
	file, err := os.OpenFile(filepath.Clean(kubeconfig(t, variable)+"."+what+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	if err := acquire(t.Context(), file, use); err != nil {
		t.Fatal(err)
	}
}

// acquire waits for a lock on a file, until ctx ends.
func acquire(ctx context.Context, file *os.File, use Use) error {
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
		err := syscall.Flock(int(file.Fd()), int(use)|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	return nil
}
