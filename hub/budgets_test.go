// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr/funcr"

	"github.com/spokelet/spokelet/api/config/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/tunnel/resource"
)

func TestNewBudgetsFollowConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := v1alpha1.HubConfiguration{}
		config.Default()
		memory, shared, writes := newBudgets(&config.Budget)
		if err := shared.Account("c1").Grow(64<<20 + 1); !errors.Is(err, quota.ErrTooLarge) {
			t.Errorf("a byte more than a cluster may have kept of shared objects: got %v, want %v", err, quota.ErrTooLarge)
		}
		if err := memory.Account("c1").Grow(32<<20 + 1); !errors.Is(err, quota.ErrTooLarge) {
			t.Errorf("a byte more than a cluster's memory: got %v, want %v", err, quota.ErrTooLarge)
		}
		writes.Spend("c1", 64<<20)
		if wait := writes.Wait("c1"); wait != 0 {
			t.Errorf("within the burst: c1 waits %s, want 0", wait)
		}
		writes.Spend("c1", 256<<10)
		if wait := writes.Wait("c1").Seconds(); wait < 0.9 || wait > 1.1 {
			t.Errorf("a second's bytes later: c1 waits %f s, want 1", wait)
		}
	})
}

func TestInvalidSummariesAreLoggedAtLimitedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := 0
		h := &hub{opts: Options{Logger: funcr.New(func(string, string) { lines++ }, funcr.Options{})}}
		for range 1000 {
			h.handleNodeSummary("c1", resource.Resource{Key: wire.NodeSummaryKey, Body: []byte("{")})
			h.handleNodeGroup("c1", resource.Resource{Key: "zone-a", Body: []byte("{")})
		}
		if lines == 0 || lines > 20 {
			t.Errorf("2000 summaries that are none are %d lines, want a few", lines)
		}
	})
}
