// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"errors"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/api/wire"
)

const (
	// DefaultMemory is what a process may use, in bytes. One with a chart of 40 objects
	// uses 100 MiB, of which 70 MiB are in memory.
	DefaultMemory = 192 << 20
	// uncountedMemory is what a program in Go uses that its memory limit does not count: tables
	// for its heap, most of which are never written, and what was given back.
	uncountedMemory = 80 << 20
	// extraTime is how long a process may take besides what its request says: to start, to
	// read a chart and values, and to say what came of it.
	extraTime = 3 * time.Minute
)

// Door lets users of the hub in.
type Door interface {
	// Config reaches the cluster as the requester. The error refuses it.
	Config(r wire.Requester) (*rest.Config, error)
}

// Config is what a runner is made of.
type Config struct {
	// Binary is the path of spokelet-helm. Required.
	Binary string
	// Door is required.
	Door Door
	// Guard wraps what reaches the cluster as a requester; nil does not.
	Guard func(http.RoundTripper) http.RoundTripper
	// Allowed are the URLs that charts and values may be read from; see
	// AgentConfiguration.
	Allowed []string
	// Memory of a process, in bytes. DefaultMemory if zero.
	Memory int64
	Logger logr.Logger

	extraTime time.Duration // tests have less
}

// Default fills what was left empty.
func (c *Config) Default() {
	if c.Memory == 0 {
		c.Memory = DefaultMemory
	}
	if c.extraTime == 0 {
		c.extraTime = extraTime
	}
}

// Validate says what is missing.
func (c *Config) Validate() error {
	if c.Binary == "" || c.Door == nil {
		return errors.New("helm needs a binary and a door")
	}
	return nil
}
