// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(confinedVariable) != "" {
		os.Exit(runRestricted(os.Stdout))
	}
	goleak.VerifyTestMain(m)
}
