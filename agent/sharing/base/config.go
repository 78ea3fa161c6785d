// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"errors"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	// Label marks the Secrets of the store, with "true".
	Label = "spokelet.io/shared-state"
	// Type is theirs.
	Type corev1.SecretType = "spokelet.io/shared-state"

	// namePrefix begins their names; something random follows.
	namePrefix = "spokelet-shared-"
	// dataKey has the content.
	dataKey = "records"

	// pageSize is how many Secrets are read at once, each of 1 MiB at most.
	pageSize = 8
	// sequenceGap is left at a start for what the process before may have written since.
	sequenceGap = 1 << 16

	// Pause before a write that failed is tried again: from the first to the longest.
	firstPause   = 20 * time.Millisecond
	longestPause = 30 * time.Second
)

// Config is what a store is made of.
type Config struct {
	// Secrets are those of the agent's namespace. Nothing must be written through them by
	// a process that has lost its lease. Required.
	Secrets typedcorev1.SecretInterface
	Logger  logr.Logger
	// Delay is how long what is not urgent waits for more of its kind, and a Secret that
	// is not needed any more for its deletion. Default 1 s.
	Delay time.Duration
	// RequestTimeout is how long one request may take. Default 30 s.
	RequestTimeout time.Duration
	// FlushTimeout is how long Run goes on after the end of its context, if something
	// waits to be written. Default 5 s.
	FlushTimeout time.Duration
}

// Default fills what was left empty.
func (c *Config) Default() {
	setDefault(&c.Delay, time.Second)
	setDefault(&c.RequestTimeout, 30*time.Second)
	setDefault(&c.FlushTimeout, 5*time.Second)
}

func setDefault(d *time.Duration, value time.Duration) {
	if *d == 0 {
		*d = value
	}
}

// Validate says what is missing.
func (c *Config) Validate() error {
	if c.Secrets == nil {
		return errors.New("shared state: secrets are missing")
	}
	if c.Delay < 0 || c.RequestTimeout < 0 || c.FlushTimeout < 0 {
		return errors.New("shared state: a time is negative")
	}
	return nil
}

func selector() string { return labels.Set{Label: "true"}.String() }
