// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/spokelet/spokelet/hack/clusters"
)

func TestADemoThatIsThereIsNotRemoved(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		state  string
		want   error
	}{
		"none":          {reason: "there is room"},
		"a finished":    {reason: "somebody may use it", state: `{"Name":"demo","Provider":"controlplane","Clusters":["hub","spoke1"],"Complete":true}`, want: errThere},
		"an unfinished": {reason: "the next one takes its place", state: `{"Name":"demo","Provider":"controlplane","Clusters":["hub","spoke1"]}`},
		"one of no use": {reason: "what it is is not known", state: `{"Name":"demo","Provider":"other","Complete":true}`, want: errThere},
	} {
		t.Run(name, func(t *testing.T) {
			c := config()
			c.StateDir, c.Provider = t.TempDir(), clusters.ControlPlane
			file := filepath.Join(c.StateDir, setName, "state.json")
			if tc.state != "" {
				if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(tc.state), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			if err := vacant(t.Context(), c); !errors.Is(err, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
			}
			if _, err := os.Stat(file); tc.state != "" && err != nil {
				t.Errorf("its state: %v", err)
			}
		})
	}
}
