// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package spoke

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestAHostileSpokeIsStartedOnceItSaysSo(t *testing.T) {
	for text, want := range map[string]error{ready: nil, "7 changes": errNotReady} {
		binary := filepath.Join(t.TempDir(), "hostile")
		script := `#!/bin/sh` + "\n" + `read invitation && echo '{"text":"` + text + `"}' && cat`
		if err := os.WriteFile(binary, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		p, err := Start(t.Context(), binary, "{}")
		if !errors.Is(err, want) {
			t.Errorf("a process that answers %q: got %v, want %v", text, err, want)
		}
		if err != nil {
			continue
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}
