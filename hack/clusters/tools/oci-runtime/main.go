// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command oci-runtime is runc for a machine whose root lacks capabilities. A privileged
// container is given all that the kernel knows, by Docker before version 23, and runc starts
// none with more than it has itself. It takes those that this process lacks out of the
// configuration of the container ("config.json" of the OCI Runtime Specification) or, when
// a process is to run in one, out of that process's, and becomes runc. Where nothing is
// lacking it changes nothing.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/moby/sys/capability"
)

func main() {
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "oci-runtime:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	runc, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	lacking, err := lacking()
	if err != nil {
		return err
	}
	if len(lacking) > 0 {
		if err := rewrite(args, lacking); err != nil {
			return err
		}
	}
	return syscall.Exec(runc, append([]string{"runc"}, args[1:]...), os.Environ()) //nolint:gosec // what it was called with
}

// rewrite changes the files that the arguments name.
func rewrite(args, lacking []string) error {
	if bundle := value(args, "bundle"); bundle != "" {
		err := edit(filepath.Join(bundle, "config.json"), func(config map[string]any) {
			if process, ok := config["process"].(map[string]any); ok {
				reduce(process, lacking)
			}
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // of a container that is gone
			return err
		}
	}
	if process := value(args, "process"); process != "" {
		return edit(process, func(process map[string]any) { reduce(process, lacking) })
	}
	return nil
}

// value gives that of a flag, which follows it, or an equals sign.
func value(args []string, name string) string {
	for i, arg := range args {
		if arg == "--"+name && i+1 < len(args) {
			return args[i+1]
		}
		if v, found := strings.CutPrefix(arg, "--"+name+"="); found {
			return v
		}
	}
	return ""
}

// edit changes a JSON object in a file. Numbers stay as they are.
func edit(path string, change func(map[string]any)) error {
	content, err := os.ReadFile(path) //nolint:gosec // what the engine names
	if err != nil {
		return err
	}
	var object map[string]any
	decoder := json.NewDecoder(strings.NewReader(string(content)))
	decoder.UseNumber()
	if err := decoder.Decode(&object); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	change(object)
	if content, err = json.Marshal(object); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, content, 0o600)
}

// reduce takes capabilities out of all sets of a process.
func reduce(process map[string]any, lacking []string) {
	sets, _ := process["capabilities"].(map[string]any)
	for name, set := range sets {
		if list, ok := set.([]any); ok {
			sets[name] = slices.DeleteFunc(list, func(capability any) bool {
				text, _ := capability.(string)
				return slices.Contains(lacking, text)
			})
		}
	}
}

// lacking names the capabilities that the kernel knows and this process has not.
func lacking() ([]string, error) {
	process, err := capability.NewPid2(0)
	if err != nil {
		return nil, fmt.Errorf("capabilities: %w", err)
	}
	if err := process.Load(); err != nil {
		return nil, fmt.Errorf("capabilities: %w", err)
	}
	known, err := capability.ListSupported()
	if err != nil {
		return nil, fmt.Errorf("capabilities: %w", err)
	}
	var names []string
	for _, c := range known {
		if !process.Get(capability.PERMITTED, c) {
			names = append(names, "CAP_"+strings.ToUpper(c.String()))
		}
	}
	return names, nil
}
