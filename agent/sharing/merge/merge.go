// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"errors"
	"fmt"
	"slices"
)

var (
	// ErrUnknownSide says that the winner is neither the hub nor the spoke.
	ErrUnknownSide = errors.New("unknown side")
	// ErrNotJSON says that a content has a value of a Go type that apimachinery's
	// JSON decoder does not give, such as int or map[string]string.
	ErrNotJSON = errors.New("content has a value that is not as JSON is decoded")
)

// Side is one of the two clusters.
type Side string

// The sides.
const (
	Hub   Side = "Hub"
	Spoke Side = "Spoke"
)

// States is the content of an object on both sides.
type States struct{ Hub, Spoke map[string]any }

// Result is what each side is to become.
type Result struct {
	// States are the contents to be written; one that equals what is there is
	// not. They share parts with the arguments and with each other, so nobody may
	// change any of them.
	States
	// Conflicts are the paths of the fields that the winner decided, such as
	// .spec.state or .spec.ports[name="a"].port, sorted.
	Conflicts []string
}

// Merge applies what each side changed since base to the other side. Where both
// changed a field to different values both get the winner's, which may be that the
// field is absent. If either content of base is nil, nothing is known of what
// changed, and every field that differs is a conflict. A nil content of now is an
// empty one, and no content of the result is nil.
//
// The error wraps [ErrUnknownSide] or [ErrNotJSON].
func (s *Schema) Merge(base, now States, winner Side) (Result, error) {
	return s.merge([]States{base}, now, walker{schema: s, winner: winner})
}

// MergeUncertain is Merge if the outcome of a write of one side was lost, so that either
// of two bases may hold: which one does is told, field by field, by what the side has
// that was written. Where it has what neither base has, or both have, a field that
// becomes the same with both becomes that; any other is a conflict, as is every field
// that is one with either base.
//
// The error wraps [ErrUnknownSide] or [ErrNotJSON].
func (s *Schema) MergeUncertain(a, b, now States, written, winner Side) (Result, error) {
	if written != Hub && written != Spoke {
		return Result{}, fmt.Errorf("written %q: %w", written, ErrUnknownSide)
	}
	return s.merge([]States{a, b}, now, walker{schema: s, winner: winner, uncertain: written})
}

func (s *Schema) merge(bases []States, now States, w walker) (Result, error) {
	if w.winner != Hub && w.winner != Spoke {
		return Result{}, fmt.Errorf("winner %q: %w", w.winner, ErrUnknownSide)
	}
	contents := []map[string]any{now.Hub, now.Spoke}
	pairs := make([]sides[any], len(bases))
	for i, base := range bases {
		pairs[i] = base.bases()
		contents = append(contents, base.Hub, base.Spoke)
	}
	if err := validateContents(contents...); err != nil {
		return Result{}, err
	}
	next, conflicts := w.walk(pairs, now)
	return Result{States: next, Conflicts: conflicts}, nil
}

// bases is what is known of both sides: of a base that lacks one, nothing.
func (s States) bases() sides[any] {
	if s.Hub == nil || s.Spoke == nil {
		return sides[any]{unknown{}, unknown{}}
	}
	return sides[any]{s.Hub, s.Spoke}
}

// Apply returns onto with every change that leads from one content to the other;
// what onto has in other fields stays. It serves to follow one side and to repair
// the other: onto is then the follower's base. If from is nil, nothing is known
// of what changed, and the result is to.
//
// The error wraps [ErrNotJSON].
func (s *Schema) Apply(from, to, onto map[string]any) (map[string]any, error) {
	if err := validateContents(from, to, onto); err != nil {
		return nil, err
	}
	base := sides[any]{from, orEmpty(onto)}
	if from == nil {
		base.hub = unknown{}
	}
	// The side that has not changed can have no conflict with the one that did.
	w := walker{schema: s, winner: Hub}
	next, _ := w.walk([]sides[any]{base}, States{Hub: to, Spoke: onto})
	return next.Spoke, nil
}

// Differences returns the paths of the fields that differ in two contents, sorted:
// those that would be conflicts if nothing were known of what they were before.
//
// The error wraps [ErrNotJSON].
func (s *Schema) Differences(a, b map[string]any) ([]string, error) {
	if err := validateContents(a, b); err != nil {
		return nil, err
	}
	w := walker{schema: s, winner: Hub}
	_, paths := w.walk([]sides[any]{States{}.bases()}, States{Hub: a, Spoke: b})
	return paths, nil
}

func (w *walker) walk(bases []sides[any], now States) (States, []string) {
	next := w.merge(w.schema.content(), nil, bases, sides[any]{orEmpty(now.Hub), orEmpty(now.Spoke)})
	hub, _ := next.hub.(map[string]any)
	spoke, _ := next.spoke.(map[string]any)
	slices.Sort(w.conflicts)
	return States{Hub: hub, Spoke: spoke}, slices.Compact(w.conflicts)
}

// orEmpty returns a content that can be a base: nil would be one of which nothing
// is known.
func orEmpty(content map[string]any) map[string]any {
	if content == nil {
		return map[string]any{}
	}
	return content
}
