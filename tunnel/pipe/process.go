// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pipe

import "fmt"

const maxProcessLength = 63

// ValidateProcess returns an error wrapping ErrProcess when the name of an
// agent process is not 1 to 63 of a-z, 0-9 and '-'. UUIDs and names of pods
// pass (those of at most 63 bytes, without dots).
func ValidateProcess(process string) error {
	if process == "" || len(process) > maxProcessLength {
		return fmt.Errorf("process %.80q: %w", process, ErrProcess)
	}
	for i := range len(process) {
		c := process[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return fmt.Errorf("process %q: %w", process, ErrProcess)
		}
	}
	return nil
}

// Addr is the address of one end of a pipe's stream.
type Addr string

// Network returns "pipe".
func (Addr) Network() string { return "pipe" }

// String returns the name of the end.
func (a Addr) String() string { return string(a) }
