// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMountsBelowFindsTheLatestFirst(t *testing.T) {
	const table = `22 1 0:20 / /proc rw - proc proc rw
30 1 0:30 / /var/lib/sets/dev rw - tmpfs tmpfs rw
31 30 0:31 / /var/lib/sets/dev/hub/pods/a\040b rw - tmpfs tmpfs rw
32 1 0:32 / /var/lib/sets/dev2 rw - tmpfs tmpfs rw
short line
`
	cases := map[string]struct {
		reason string
		dir    string
		want   []string
	}{
		"a directory with mounts": {
			reason: "inner mounts keep outer ones busy; a name that only begins alike is another's",
			dir:    "/var/lib/sets/dev",
			want:   []string{"/var/lib/sets/dev/hub/pods/a b", "/var/lib/sets/dev"},
		},
		"a directory without": {
			reason: "nothing to do is not an error",
			dir:    "/var/lib/sets/dev3",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, mountsBelow(table, tc.dir)); diff != "" {
				t.Errorf("mounts (-want +got): %s\n%s", tc.reason, diff)
			}
		})
	}
}

func TestUnescapeUndoesOctalEscapes(t *testing.T) {
	for escaped, want := range map[string]string{
		`plain`: "plain", `a\040b`: "a b", `back\134slash`: `back\slash`, `cut\04`: `cut\04`, `bad\999`: `bad\999`,
	} {
		if got := unescape(escaped); got != want {
			t.Errorf("%q became %q, want %q", escaped, got, want)
		}
	}
}

func TestSaveAndRestoreLeaveTheMachineAsItWas(t *testing.T) {
	saved := filepath.Join(t.TempDir(), "settings.json")
	if err := save(saved); err != nil {
		t.Fatal(err)
	}
	// Nothing was changed since, so that nothing has to be written: this works
	// without root.
	if err := Restore(saved); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(saved); !os.IsNotExist(err) {
		t.Errorf("what was restored is still remembered: %v", err)
	}
	if err := Restore(saved); err != nil {
		t.Errorf("without anything saved: %v", err)
	}
}
