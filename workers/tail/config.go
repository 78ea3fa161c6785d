// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

const (
	defaultMaxTails   = 200
	defaultMaxPerUser = 10
	defaultLifetime   = 6 * time.Hour
	defaultOpen       = time.Minute
)

// Config says whose logs are read, and how much of it at a time.
type Config struct {
	// Kube is the hub, as the process's own identity: it reads WorkerBundles there, and by
	// the live API pods, their logs and their port TailPort in the clusters.
	Kube *rest.Config
	// MaxTails bounds the tails at a time, MaxPerUser those of one user, those included that
	// nobody opened yet. Default 200 and 10.
	MaxTails, MaxPerUser int
	// Lifetime of a tail, from its creation. Default 6 h.
	Lifetime time.Duration
	// Open is how long a tail waits for its WebSocket. Default 1 min.
	Open time.Duration
}

// Default fills what was left empty.
func (c *Config) Default() {
	if c.MaxTails == 0 {
		c.MaxTails = defaultMaxTails
	}
	if c.MaxPerUser == 0 {
		c.MaxPerUser = defaultMaxPerUser
	}
	if c.Lifetime == 0 {
		c.Lifetime = defaultLifetime
	}
	if c.Open == 0 {
		c.Open = defaultOpen
	}
}

// Validate says what is wrong.
func (c *Config) Validate() error {
	var errs []error
	if c.Kube == nil {
		errs = append(errs, errors.New("the hub is missing"))
	}
	if c.MaxTails < 1 || c.MaxPerUser < 1 {
		errs = append(errs, fmt.Errorf("the limits of %d tails and %d for each user are not both above 0", c.MaxTails, c.MaxPerUser))
	}
	if c.Lifetime <= 0 || c.Open <= 0 {
		errs = append(errs, fmt.Errorf("the times %s and %s are not both above 0", c.Lifetime, c.Open))
	}
	return errors.Join(errs...)
}

// New returns the tails of a process: none yet. The error is of the configuration. Close ends
// them.
func New(c Config) (*Tails, error) {
	c.Default()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("configuration of tails: %w", err)
	}
	kube, err := newHub(c.Kube)
	if err != nil {
		return nil, fmt.Errorf("client of the hub: %w", err)
	}
	t := &Tails{config: c, hub: kube, all: map[string]*session{}}
	t.upgrader.ReadBufferSize = readBuffer // not the server's reader, which would bypass firstFrame
	t.upgrader.WriteBufferSize = writeBuffer
	t.upgrader.Subprotocols = []string{Subprotocol}
	t.upgrader.Error = func(w http.ResponseWriter, _ *http.Request, status int, _ error) {
		answer(w, status, http.StatusText(status))
	}
	return t, nil
}
