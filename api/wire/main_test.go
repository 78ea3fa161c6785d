// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bytesAtOnce compares bodies as a whole: one byte after the other, the largest would take half
// a minute under the race detector.
var bytesAtOnce = cmp.Comparer(func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) })
