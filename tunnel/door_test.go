// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"strings"
	"testing"
)

func FuzzParseDoor(f *testing.F) {
	for _, s := range []string{"kube", "KUBE", "kube:443", "kube.", "-kube", "ku-be", "", "k\x00", "κ"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, authority string) {
		door, err := ParseDoor(authority)
		if err != nil {
			if !errors.Is(err, ErrDoor) || len(err.Error()) > 400 {
				t.Fatalf("error %q", err)
			}
			return
		}
		if door != authority || len(door) > maxDoorName || strings.ContainsAny(door, ":.@/ \\%") {
			t.Fatalf("%q names door %q", authority, door)
		}
	})
}
