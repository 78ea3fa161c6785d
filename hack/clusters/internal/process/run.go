// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Run runs a program to its end. The error says what was run and ends with the last of what
// it wrote.
func Run(cmd *exec.Cmd) error {
	// Who is killed may have started others, which hold its output.
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	return Failed(cmd, err, string(out))
}

// Failed is the error of a program that wrote a text and failed.
func Failed(cmd *exec.Cmd, err error, text string) error {
	const words, most = 4, 4000 // some are called with all that they are to do, or explain it at length
	name := append([]string{filepath.Base(cmd.Path)}, cmd.Args[1:]...)
	text = strings.TrimSpace(text)
	return fmt.Errorf("%s: %w: %s", strings.Join(name[:min(words, len(name))], " "), err, text[max(0, len(text)-most):])
}
