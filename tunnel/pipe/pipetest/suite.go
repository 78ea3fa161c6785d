// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pipetest

import (
	"testing"
	"time"
)

// patience is how long the suite waits for what must happen; nothing waits
// that long when all is well.
const patience = 10 * time.Second

// Run runs the contract of package pipe against a kind of pipe.
func Run(t *testing.T, kind Kind) {
	for name, check := range map[string]func(*testing.T, Kind){
		"bytes travel both ways": checkBytes,
	} {
		t.Run(name, func(t *testing.T) { check(t, kind) })
	}
}
