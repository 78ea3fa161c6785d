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
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"

	"github.com/spokelet/spokelet/api/wire"
)

var (
	// ErrNoMatch: the cluster has no such resource or kind. See [NoMatchError].
	ErrNoMatch = errors.New("the cluster has no such resource")
	// ErrAmbiguous: several groups have it.
	ErrAmbiguous = errors.New("several groups have such a resource; name one")
)

// refreshPause is the shortest time between two readings of what the cluster serves
// because of a name that is not there.
const refreshPause = 10 * time.Second

// NoMatchError says that the cluster has no such resource or kind. It is an ErrNoMatch.
type NoMatchError struct {
	// Target names what was looked for.
	Target string
	// Read is when what the cluster serves was read: before the question, if it was read
	// a moment ago. RetryAfter is when it may be read again.
	Read       time.Time
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
	cached discovery.CachedDiscoveryInterface // nil before the first question
	mapper meta.RESTMapper                    // of cached
	// read is when what the cluster serves was last read; zero to read it again.
	read time.Time
}

// New returns a mapper that has read nothing yet.
func New(client discovery.DiscoveryInterface) *Mapper { return &Mapper{client: client} }

// Reset says that the cluster may serve something else: the next question reads it anew.
func (m *Mapper) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.read = time.Time{}
}

// Resource finds the resource of a target. The error is a NoMatchError or wraps
// ErrAmbiguous; any other says that what the cluster serves could not be read.
func (m *Mapper) Resource(t wire.Target) (*meta.RESTMapping, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.read.IsZero() && m.cached != nil {
		m.refresh()
	}
	mapping, err := m.find(t)
	if meta.IsNoMatchError(err) && time.Since(m.read) >= refreshPause {
		m.refresh()
		mapping, err = m.find(t)
	}
	return mapping, m.classify(t, err)
}

// refresh has what the cluster serves read anew; m.mu is held.
func (m *Mapper) refresh() {
	m.read = time.Now()
	m.cached.Invalidate()
	// The deferred mapper keeps what it made of the former.
	deferred := restmapper.NewDeferredDiscoveryRESTMapper(m.cached)
	m.mapper = restmapper.NewShortcutExpander(deferred, m.cached, nil)
}

// find asks the mapper; m.mu is held.
func (m *Mapper) find(t wire.Target) (*meta.RESTMapping, error) {
	if m.cached == nil {
		m.cached = memory.NewMemCacheClient(m.client)
		m.refresh()
	}
	if t.Kind == "" {
		return m.findResource(t)
	}
	mapping, err := m.findKind(schema.GroupKind{Group: t.Group, Kind: t.Kind}, t.Version)
	if meta.IsNoMatchError(err) && t.Group == "" && t.Version == "" {
		return m.findWord(t, t.Kind) // of any group
	}
	return mapping, err
}

func (m *Mapper) findKind(kind schema.GroupKind, version string) (*meta.RESTMapping, error) {
	if version != "" {
		return m.mapper.RESTMapping(kind, version)
	}
	return m.mapper.RESTMapping(kind)
}

// findResource finds what kubectl takes as the name of a resource: its kind, too.
func (m *Mapper) findResource(t wire.Target) (*meta.RESTMapping, error) {
	mapping, err := m.findWord(t, t.Resource)
	if !meta.IsNoMatchError(err) {
		return mapping, err
	}
	whole, short := schema.ParseKindArg(t.Resource)
	kinds := []schema.GroupVersionKind{short.WithVersion("")}
	if whole != nil {
		kinds = append(kinds, *whole)
	}
	for _, kind := range kinds {
		gv, ok := narrow(t, kind.GroupVersion())
		if !ok {
			continue
		}
		mapping, other := m.findKind(schema.GroupKind{Group: gv.Group, Kind: kind.Kind}, gv.Version)
		if !meta.IsNoMatchError(other) {
			return mapping, other
		}
	}
	return nil, err
}

// findWord finds a resource by its plural, singular or short name, with or without a
// version and a group.
func (m *Mapper) findWord(t wire.Target, word string) (*meta.RESTMapping, error) {
	whole, short := schema.ParseResourceArg(strings.ToLower(word))
	var partials []schema.GroupVersionResource
	if whole != nil {
		partials = append(partials, *whole)
	}
	var err error = &meta.NoResourceMatchError{PartialResource: short.WithVersion("")}
	for _, partial := range append(partials, short.WithVersion("")) {
		gv, ok := narrow(t, partial.GroupVersion())
		if !ok {
			continue
		}
		var gvk schema.GroupVersionKind
		if gvk, err = m.mapper.KindFor(gv.WithResource(partial.Resource)); err == nil {
			return m.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		}
		if !meta.IsNoMatchError(err) {
			return nil, err
		}
	}
	return nil, err
}

// narrow puts the group and the version of a target in the place of those that a word
// lacks; false if the word has others.
func narrow(t wire.Target, gv schema.GroupVersion) (schema.GroupVersion, bool) {
	for _, field := range []struct {
		have *string
		want string
	}{{&gv.Group, t.Group}, {&gv.Version, t.Version}} {
		if *field.have == "" {
			*field.have = field.want
		}
		if field.want != "" && *field.have != field.want {
			return gv, false
		}
	}
	return gv, true
}

// classify makes an error one of this package; m.mu is held.
func (m *Mapper) classify(t wire.Target, err error) error {
	var resources *meta.AmbiguousResourceError
	var kinds *meta.AmbiguousKindError
	switch {
	case err == nil:
		return nil
	case meta.IsNoMatchError(err):
		return &NoMatchError{Target: describe(t), Read: m.read, RetryAfter: max(0, refreshPause-time.Since(m.read))}
	case errors.As(err, &resources), errors.As(err, &kinds):
		return fmt.Errorf("%s: %w", describe(t), ErrAmbiguous)
	default:
		return fmt.Errorf("%s: cannot read what the cluster serves: %w", describe(t), err)
	}
}

// describe names a target as its author does.
func describe(t wire.Target) string {
	text := fmt.Sprintf("resource %q", t.Resource)
	if t.Kind != "" {
		text = fmt.Sprintf("kind %q", t.Kind)
	}
	if gv := (schema.GroupVersion{Group: t.Group, Version: t.Version}); !gv.Empty() {
		text += fmt.Sprintf(" of %q", strings.Trim(gv.String(), "/"))
	}
	return text
}
