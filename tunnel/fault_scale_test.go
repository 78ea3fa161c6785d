// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/spokelet/spokelet/internal/testing/tunneltest"
	"github.com/spokelet/spokelet/tunnel/identity"
)

// lastingHub is a hub whose certificates outlive every test, so that no renewal
// comes between.
func lastingHub(t *testing.T) *tunneltest.Hub {
	t.Helper()
	hub := tunneltest.NewHub(t, nil)
	hub.Authority.Lifetime = 10000 * time.Hour
	hub.UseCertificate(hub.Authority.Issue(t, identity.Hub{ID: hub.Authority.HubID}.URI()))
	return hub
}

// memory is what the process holds on its heap and stacks, in bytes.
func memory() int {
	runtime.GC()
	runtime.GC() // what finalizers and pools let go of
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// processor is the processor time that this process has used.
func processor(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
