// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/workers/spoke"
)

// Limits bound the tails of a process. They are a part of the operator's file.
type Limits struct {
	// MaxTails bounds the tails at a time, MaxPerAccount those of one account, MaxPerUser those
	// of one user and MaxPerToken those of one token, those included that nobody opened yet.
	// Default 200, 50, 10 and 5.
	MaxTails      int `json:"maxTails,omitempty"`
	MaxPerAccount int `json:"maxPerAccount,omitempty"`
	MaxPerUser    int `json:"maxPerUser,omitempty"`
	MaxPerToken   int `json:"maxPerToken,omitempty"`
	// MaxPods bounds the pods of one cluster that one tail follows. Default 32.
	MaxPods int `json:"maxPods,omitempty"`
	// MaxFollowed bounds the clusters and pods that all tails follow together. One account may
	// have a quarter of them, one tail and one cluster an eighth. Each takes 100 KiB of memory at
	// most. Default 2048.
	MaxFollowed int `json:"maxFollowed,omitempty"`
}

const (
	defaultLifetime    = 6 * time.Hour
	defaultOpenTimeout = time.Minute
)

// Config configures the tails.
type Config struct {
	// Kube is the hub, as the process's own identity: it reads WorkerBundles there, and by
	// the live API pods, their logs and their port TailPort in the clusters.
	Kube *rest.Config
	// Limits of what there is at a time.
	Limits
	// Lifetime of a tail, from its creation. Default 6 h.
	Lifetime time.Duration
	// OpenTimeout is how long a tail waits for its WebSocket. Default 1 min.
	OpenTimeout time.Duration
}

// Default fills what was left empty.
func (l *Limits) Default() {
	for _, limit := range l.limits() {
		if *limit.value == 0 {
			*limit.value = limit.defaultValue
		}
	}
}

// Validate says what is wrong.
func (l *Limits) Validate() error {
	var errs []error
	for _, limit := range l.limits() {
		if *limit.value < 1 {
			errs = append(errs, fmt.Errorf("%s: %d is less than 1", limit.name, *limit.value))
		}
	}
	return errors.Join(errs...)
}

type limit struct {
	name         string
	value        *int
	defaultValue int
}

func (l *Limits) limits() []limit {
	return []limit{
		{"maxTails", &l.MaxTails, 200},
		{"maxPerAccount", &l.MaxPerAccount, 50},
		{"maxPerUser", &l.MaxPerUser, 10},
		{"maxPerToken", &l.MaxPerToken, 5},
		{"maxPods", &l.MaxPods, 32},
		{"maxFollowed", &l.MaxFollowed, 2048},
	}
}

// Default fills what was left empty.
func (c *Config) Default() {
	c.Limits.Default()
	if c.Lifetime == 0 {
		c.Lifetime = defaultLifetime
	}
	if c.OpenTimeout == 0 {
		c.OpenTimeout = defaultOpenTimeout
	}
}

// Validate says what is wrong.
func (c *Config) Validate() error {
	errs := []error{c.Limits.Validate()}
	if c.Kube == nil {
		errs = append(errs, errors.New("the hub is missing"))
	}
	if c.Lifetime <= 0 || c.OpenTimeout <= 0 {
		errs = append(errs, fmt.Errorf("the times %s and %s are not both above 0", c.Lifetime, c.OpenTimeout))
	}
	return errors.Join(errs...)
}

// New returns the tails of a process. The caller closes them.
func New(c Config) (*Tails, error) {
	c.Default()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("configuration of tails: %w", err)
	}
	clusters, err := spoke.New(c.Kube)
	if err != nil {
		return nil, fmt.Errorf("client of the hub: %w", err)
	}
	t := &Tails{
		config: c, clusters: clusters, all: map[string]*session{}, slots: newFollowSlots(c.MaxFollowed),
		frames: quota.NewGuaranteedMemory(accountFrames, allFrames, guaranteedFrames),
	}
	t.upgrader.ReadBufferSize = readBuffer // not the server's reader, which would bypass firstFrame
	t.upgrader.WriteBufferSize = writeBuffer
	t.upgrader.Subprotocols = []string{Subprotocol}
	t.upgrader.Error = func(w http.ResponseWriter, _ *http.Request, status int, _ error) {
		writeError(w, status, http.StatusText(status))
	}
	return t, nil
}
