// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Arguments that make the test binary another program.
const (
	// confined hands the argument behind it to Confine, confinedArguments all of them.
	confined          = "confine"
	confinedArguments = "confine-arguments"
	// unfiltered does so where no filter can be installed.
	unfiltered = "unfiltered"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case confined, confinedArguments:
			if Confine(os.Args[2:]) != nil {
				os.Exit(1)
			}
		case unfiltered:
			if confineWithoutFilter(os.Args[2:]) != nil {
				os.Exit(1)
			}
		case attempt:
			os.Exit(attemptAll(os.Args[2:]))
		}
	}
	goleak.VerifyTestMain(m)
}
