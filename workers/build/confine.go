// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// confinement is what a process gives up everything but.
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

// Confine gives up what the code of a tenant is not to have, and becomes workerd: it returns
// only if it cannot. The argument is what Check gives it.
//
// What remains: Unix sockets, of all; the files of the system's libraries and of the scripts,
// to be read; a folder of its own; its own threads. The filter of system calls is what the
// step relies on: where it cannot be installed nothing is run. Landlock is used as far as the
// kernel has it.
//
// What goes wrong is told on the control descriptor: another output is the script's, too.
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

// writeEvent writes an event. There is nobody to tell that it cannot.
func writeEvent(e event) {
	line, err := json.Marshal(e)
	if err != nil {
		return
	}
	_, _ = os.NewFile(controlFD, "control").Write(append(line, '\n'))
}
