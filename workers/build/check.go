// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	builder "github.com/spokelet/spokelet/workers/api/builder/v1alpha1"
)

const (
	defaultTimeout = 20 * time.Second
	defaultBudget  = time.Minute
	defaultMemory  = 768 << 20
	defaultWorkerd = "/usr/bin/workerd"
)

// ErrCannotCheck is returned when the environment keeps workerd from checking any script.
var ErrCannotCheck = errors.New("workerd cannot check scripts here now")

// CheckConfig configures the second step.
type CheckConfig struct {
	// Input is the file with the JSON of the bundle.Input.
	Input string
	// Work is the folder of the steps. It is not written to.
	Work string
	// Temp is a folder that can be written to. Default: the system's.
	Temp string
	// Workerd is the path of the program. Default /usr/bin/workerd.
	Workerd string
	// Confine is a command that hands the argument after it to Confine.
	Confine []string
	// Timeout is how long workerd may take to load one script. Default 20 s.
	Timeout time.Duration
	// Budget is how long the step goes on once a script was rejected. Default 1 min.
	Budget time.Duration
	// Memory that workerd may be able to write to, in bytes. V8 sets 512 MiB aside for code,
	// of which it uses little. Default 768 MiB, which leaves a script some 200 MiB; what is
	// used, and the container has to have, is less than 512 MiB.
	Memory uint64
}

func (c *CheckConfig) setDefaults() {
	if c.Temp == "" {
		c.Temp = os.TempDir()
	}
	if c.Workerd == "" {
		c.Workerd = defaultWorkerd
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Budget == 0 {
		c.Budget = defaultBudget
	}
	if c.Memory == 0 {
		c.Memory = defaultMemory
	}
}

// Check has workerd load each script alone, and returns those that it rejects: of a syntax
// error, a module that is missing, an error while the module is run, a date or a flag that
// it does not know, or because it takes too long or needs too much memory. Whether a script
// handles an event is not looked at.
//
// A rejection is permanent, so an empty script has to load first: that proves that the
// environment is not the cause.
func Check(ctx context.Context, config CheckConfig) ([]builder.Rejection, error) {
	config.setDefaults()
	in, err := readInput(config.Input)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	var rejected []builder.Rejection
	for i, worker := range in.Workers {
		if len(rejected) > 0 && time.Since(begin) > config.Budget {
			break
		}
		message, err := config.probe(ctx, filepath.Join(config.Work, probeFile(i)))
		if err != nil {
			return nil, fmt.Errorf("check script %s: %w", worker.Name, err)
		}
		if message == "" {
			continue
		}
		if len(rejected) == 0 {
			if err := config.probeBlank(ctx); err != nil {
				return nil, fmt.Errorf("check script %s: %w", worker.Name, err)
			}
		}
		rejected = append(rejected, builder.Rejection{ScriptName: worker.Name, Message: message})
	}
	return rejected, nil
}

// blankConfig serves an empty script.
const blankConfig = `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "blank", worker = (
    modules = [(name = "blank.js", esModule = "export default {};")],
    compatibilityDate = "2023-02-28",
  ))],
  sockets = [(name = "blank", address = "unix:` + socketName + `", http = (), service = "blank")],
);
`

// probeBlank returns an error if workerd does not load an empty script.
func (c *CheckConfig) probeBlank(ctx context.Context) error {
	dir, err := os.MkdirTemp(c.Temp, "blank-")
	if err != nil {
		return fmt.Errorf("temporary folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "blank.capnp")
	if err := os.WriteFile(file, []byte(blankConfig), fileMode); err != nil {
		return fmt.Errorf("temporary file: %w", err)
	}
	message, err := c.probe(ctx, file)
	if err == nil && message != "" {
		return fmt.Errorf("%w: of an empty script it says: %s", ErrCannotCheck, message)
	}
	return err
}
