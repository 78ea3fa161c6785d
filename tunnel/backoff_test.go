// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	b := Backoff{}.Default()
	for failures, want := range []time.Duration{0, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second} {
		if got := b.limit(failures); got != want {
			t.Errorf("limit(%d) = %v, want %v", failures, got, want)
		}
		for range 100 {
			if got := b.wait(failures); got > want {
				t.Fatalf("wait(%d) = %v, want at most %v", failures, got, want)
			}
		}
	}
	if got := b.limit(1000); got != b.Cap {
		t.Errorf("limit(1000) = %v, want the cap", got)
	}
}
