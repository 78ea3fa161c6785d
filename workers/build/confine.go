// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// confinement lists what a process may still use.
type confinement struct {
	// Command that the process becomes.
	Command []string `json:"command"`
	// Read are folders that it may read, besides the system's libraries.
	Read []string `json:"read"`
	// Write is a folder that it may write to.
	Write string `json:"write"`
	// Memory that it may write to.
	Memory uint64 `json:"memory"`
}

// Confine restricts this process and executes workerd in it: it returns only an error. The
// argument is the one that Check passes.
//
// The process keeps Unix sockets, read access to the libraries of the system and to the scripts,
// one folder of its own, and its own threads. The seccomp filter is required: without it nothing
// runs. Landlock is used as far as the kernel supports it.
//
// Errors are written to the control descriptor, because scripts write to the other outputs.
func Confine(args []string) error {
	err := confine(args)
	writeEvent(event{Event: eventFailed, Error: err.Error()})
	return err
}

func confine(args []string) error {
	var c confinement
	if len(args) != 1 {
		return errors.New("confine: takes one argument")
	}
	if err := json.Unmarshal([]byte(args[0]), &c); err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	if len(c.Command) == 0 {
		return errors.New("confine: has no command")
	}
	return c.applyAndExec()
}

// writeEvent writes an event to the control descriptor. Errors have no other reader.
func writeEvent(e event) {
	line, err := json.Marshal(e)
	if err != nil {
		return
	}
	_, _ = os.NewFile(controlFD, "control").Write(append(line, '\n'))
}
