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
	// DefaultMemory is the memory limit of a process, in bytes. One with a chart of 40
	// objects uses 100 MiB, of which 70 MiB are resident.
	DefaultMemory = 192 << 20
	// uncountedMemory is the memory of a Go program that GOMEMLIMIT does not count: tables of
	// its heap, most of which are never written, and memory that was returned.
	uncountedMemory = 80 << 20
	// extraTime is added to the timeout of a request: for the process to start, to read a
	// chart and values, and to send its answer.
	extraTime = 3 * time.Minute
)

// Door authorizes users of the hub.
type Door interface {
	// Config returns a configuration that acts as the requester. The error refuses it.
	Config(r wire.Requester) (*rest.Config, error)
}

// Config configures a runner.
type Config struct {
	// Binary is the path of spokelet-helm. Required.
	Binary string
	// Door is required.
	Door Door
	// Guard wraps the transports that act as a requester; it may be nil.
	Guard func(http.RoundTripper) http.RoundTripper
	// Allowed are the URLs that charts and values may be read from; see
	// AgentConfiguration.
	Allowed []string
	// Memory of a process, in bytes. DefaultMemory if zero.
	Memory int64
	Logger logr.Logger

	extraTime time.Duration // shorter in tests
}

// Default sets empty fields.
func (c *Config) Default() {
	if c.Memory == 0 {
		c.Memory = DefaultMemory
	}
	if c.extraTime == 0 {
		c.extraTime = extraTime
	}
}

// Validate returns an error if a required field is missing.
func (c *Config) Validate() error {
	if c.Binary == "" || c.Door == nil {
		return errors.New("helm needs a binary and a door")
	}
	return nil
}
