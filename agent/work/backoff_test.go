// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"testing"
	"time"
)

func TestBackoffGrowsAndIsBounded(t *testing.T) {
	for failures := range 70 {
		d := backoff(failures, time.Second, time.Minute)
		if d < time.Second/2 || d > time.Minute {
			t.Errorf("after %d failures: %s", failures, d)
		}
	}
}
