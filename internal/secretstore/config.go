// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package secretstore

import (
	"errors"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	// Label marks the Secrets of a store, with the store's name.
	Label = "spokelet.io/store"
	// Type is the type of these Secrets.
	Type corev1.SecretType = "spokelet.io/store"

	// dataKey is the key of a segment's content in its Secret.
	dataKey = "records"
	// pageSize is how many Secrets are listed at once, each of 1 MiB at most.
	pageSize = 8
	// sequenceGap is skipped at a start: the process before may have written since.
	sequenceGap = 1 << 16
	// firstPause and longestPause bound the pause before a failed request is retried.
	firstPause   = 20 * time.Millisecond
	longestPause = 30 * time.Second
)

// Config configures a Store.
type Config struct {
	// Secrets writes to the agent's namespace. It must fail for a process that has lost its
	// lease. Required.
	Secrets typedcorev1.SecretInterface
	// Name tells the stores of a namespace apart. Required.
	Name   string
	Logger logr.Logger
	// Delay is how long a change that is not urgent waits for others, and an empty Secret for
	// its deletion. Default 1 s.
	Delay time.Duration
	// RequestTimeout bounds one request. Default 30 s.
	RequestTimeout time.Duration
	// FlushTimeout is how long Run still writes after its context has ended. Default 5 s.
	FlushTimeout time.Duration
}

// Default sets the defaults.
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

// Validate returns an error for a configuration that cannot work.
func (c *Config) Validate() error {
	if c.Secrets == nil || c.Name == "" {
		return errors.New("secret store: client or name is missing")
	}
	if c.Delay < 0 || c.RequestTimeout < 0 || c.FlushTimeout < 0 {
		return errors.New("secret store: a duration is negative")
	}
	return nil
}

func selector(name string) string { return labels.Set{Label: name}.String() }
