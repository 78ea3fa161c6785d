// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"io"
	"testing"

	"github.com/spokelet/spokelet/e2e/env"
)

func TestAFleetIsConnectedOnceItSaysSo(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		script string
		want   error
	}{
		"ready":          {"it has read all invitations", "read one && read two && read start && echo ready && cat", nil},
		"something else": {"only one word means that all agents are connected", "read one && echo warning && cat", errFleet},
		"no answer":      {"a fleet that has ended is none", "read one", io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			fleet, err := env.Command{Path: "sh", Args: []string{"-c", tc.script}}.StartChild(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := connect(fleet, []string{"one", "two"}); !errors.Is(err, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
			}
			_ = fleet.Close()
		})
	}
}
