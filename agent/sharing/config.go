// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"errors"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"

	"github.com/spokelet/spokelet/api/wire"
)

const (
	// workers is how many objects are reconciled at once.
	workers = 8
	// maxWrites is how many writes may wait for an answer of the hub at once.
	maxWrites = 256
	// firstRetry and longestRetry bound the pause between retries.
	firstRetry   = 50 * time.Millisecond
	longestRetry = 5 * time.Minute
	// firstTerminationCheck and longestTerminationCheck bound the pause between two checks
	// whether the namespace or the definition is still being deleted.
	firstTerminationCheck   = time.Second
	longestTerminationCheck = 30 * time.Second
	// reportInterval is the shortest time between two reports of a share's state.
	reportInterval = 500 * time.Millisecond
	// requestTimeout is longer than an API server takes for a request by itself.
	requestTimeout = 90 * time.Second
	// holdDivisor: unproven deletions are held if they are more than one in so many objects.
	holdDivisor = 10
	// fieldManager is the field manager of writes in the cluster.
	fieldManager = "spokelet"
)

// StoreName is the name of the Secret store that has the records.
const StoreName = "shared"

// Records is a durable map; see secretstore.Store.
type Records interface {
	Get(key string) ([]byte, bool)
	Keys() []string
	// Put sets a value; durable is closed once that, or a later one, survives a crash.
	Put(key string, value []byte, urgent bool) (durable <-chan struct{}, err error)
	Delete(key string)
}

// Events records events of conflicts in the cluster.
type Events interface {
	Event(regarding *corev1.ObjectReference, reason, note string)
}

// Config configures an Engine.
type Config struct {
	// Objects reaches the cluster as the account that shares objects. Required.
	Objects dynamic.Interface
	// Definitions reads CustomResourceDefinitions. Required.
	Definitions dynamic.Interface
	// Records are required.
	Records Records
	// Events are required.
	Events Events
	// Quota bounds all objects of a resource in a namespace of the cluster, whatever the hub
	// requests: beyond it no object is created or made larger. Required.
	Quota wire.SharedSize
	// KubeSystemUID identifies the cluster. Required.
	KubeSystemUID string
	Logger        logr.Logger
}

// Validate returns an error if a required part is missing.
func (c *Config) Validate() error {
	if c.Objects == nil || c.Definitions == nil || c.Records == nil || c.Events == nil || c.KubeSystemUID == "" {
		return errors.New("shared objects: a required part is missing")
	}
	if c.Quota.Objects < 1 || c.Quota.Bytes < 1 {
		return errors.New("shared objects: there is no quota")
	}
	return nil
}
