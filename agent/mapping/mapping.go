// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/spokelet/spokelet/api/wire"
)

var (
	// ErrNoMatch is returned when the cluster has no such resource or kind. See
	// [NoMatchError].
	ErrNoMatch = errors.New("the cluster has no such resource")
	// ErrAmbiguous is returned when several groups have it.
	ErrAmbiguous = errors.New("several groups have such a resource; name one")
	// ErrUnavailable is returned when the cluster may have it: discovery failed, at least in
	// part, and another attempt may succeed.
	ErrUnavailable = errors.New("cannot read what the cluster serves")
)

const (
	// minRefreshInterval separates two refreshes of discovery because of unknown names.
	minRefreshInterval = 10 * time.Second
	// failureTTL is how long the error of a refresh is returned to all callers. Those that
	// waited for it do not wait for errors of their own, one after the other.
	failureTTL = time.Second
)

// NoMatchError is returned when the cluster has no such resource or kind. It wraps ErrNoMatch.
type NoMatchError struct {
	// Target describes the target.
	Target string
	// ReadAt is when discovery was read, which may be before the call. RetryAfter is when it
	// may be read again.
	ReadAt     time.Time
	RetryAfter time.Duration
}

// Error does not depend on the time.
func (e *NoMatchError) Error() string { return e.Target + ": " + ErrNoMatch.Error() }

// Unwrap returns ErrNoMatch.
func (e *NoMatchError) Unwrap() error { return ErrNoMatch }

// Mapper finds resources. It is safe for concurrent use.
type Mapper struct {
	client discovery.DiscoveryInterface

	mu sync.Mutex
	// All below are guarded by mu.
	//
	// served is what was read; nil if that has to be done before the next answer.
	resources *resources
	// failure is the error of the last reading, and failed is when that ended; nil if it
	// succeeded.
	failure  error
	failedAt time.Time
}

// New returns a mapper, which has not read discovery yet.
func New(client discovery.DiscoveryInterface) *Mapper { return &Mapper{client: client} }

// Reset discards the cached discovery, because the cluster may serve something else. It waits
// for a refresh that is in progress.
func (m *Mapper) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resources = nil
}

// Resource finds the resource of a target. The error is a NoMatchError, or wraps
// ErrAmbiguous or ErrUnavailable.
func (m *Mapper) Resource(t wire.Target) (*meta.RESTMapping, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.resources == nil {
		if err := m.refresh(); err != nil {
			return nil, unavailable(t, err)
		}
	}
	mapping, err := m.resources.findTarget(t)
	if meta.IsNoMatchError(err) && time.Since(m.resources.readAt) >= minRefreshInterval {
		if err := m.refresh(); err != nil { // what is cached stays, for other targets
			return nil, unavailable(t, err)
		}
		mapping, err = m.resources.findTarget(t)
	}
	return mapping, m.classify(t, err)
}

// refresh reads discovery, unless that failed a moment ago. The caller holds m.mu.
func (m *Mapper) refresh() error {
	if m.failure != nil && time.Since(m.failedAt) < failureTTL {
		return m.failure
	}
	served, err := discover(m.client)
	m.failure, m.failedAt = err, time.Now()
	if err == nil {
		m.resources = served
	}
	return err
}

// classify converts an error to one of this package. The caller holds m.mu.
func (m *Mapper) classify(t wire.Target, err error) error {
	var resources *meta.AmbiguousResourceError
	var kinds *meta.AmbiguousKindError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &resources), errors.As(err, &kinds):
		return fmt.Errorf("%s: %w", targetText(t), ErrAmbiguous)
	case !meta.IsNoMatchError(err):
		return unavailable(t, err)
	}
	if failed := m.resources.failedGroupsFor(t); len(failed) > 0 {
		return unavailable(t, &discovery.ErrGroupDiscoveryFailed{Groups: failed})
	}
	return &NoMatchError{Target: targetText(t), ReadAt: m.resources.readAt, RetryAfter: max(0, minRefreshInterval-time.Since(m.resources.readAt))}
}

// unavailable returns an ErrUnavailable. It does not wrap its cause: a status of the API server
// is about a request of the agent, and a caller would take it for one about the target.
func unavailable(t wire.Target, cause error) error {
	return fmt.Errorf("%s: %w: %s", targetText(t), ErrUnavailable, cause.Error())
}

// targetText describes a target in the words of its author.
func targetText(t wire.Target) string {
	text := fmt.Sprintf("resource %q", t.Resource)
	if t.Kind != "" {
		text = fmt.Sprintf("kind %q", t.Kind)
	}
	if gv := (schema.GroupVersion{Group: t.Group, Version: t.Version}); !gv.Empty() {
		text += fmt.Sprintf(" of %q", strings.Trim(gv.String(), "/"))
	}
	return text
}
