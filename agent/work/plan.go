// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/record"
)

// step is one manifest on its way: where it goes, or why it cannot.
type step struct {
	manifest.Manifest
	at  manifest.Target
	err error
	// contentHash changes with the manifest and with how it is written.
	contentHash [sha256.Size]byte
	options     applyOptions
	// isNewContent: the object has not been written since the manifest is what it is.
	isNewContent bool
	// isAccessUnknown: what the executor may do could not be found out, and what it was told
	// before stands.
	isAccessUnknown bool
	// reader is what is read of the object, nil for nothing.
	reader *inventory.Reader
}

// resolver maps a kind to how it is addressed.
type resolver func(context.Context, schema.GroupVersionKind) (resourceKind, error)

// plan decides for each manifest, in the order of the work, which object it is
// about. It reads kinds and nothing else.
func plan(ctx context.Context, manifests []manifest.Manifest, resolve resolver, allowed []string) []step {
	steps := make([]step, len(manifests))
	taken := map[manifest.ObjectID]int{}
	resolve = cacheResolver(resolve)
	for i, m := range manifests {
		s := &steps[i]
		s.Manifest = m
		if s.err = m.Err; s.err != nil {
			continue
		}
		if s.at, s.err = locateManifest(ctx, m, resolve); s.err != nil {
			continue
		}
		if s.err = checkNamespace(s.at, allowed); s.err != nil {
			continue
		}
		if first, ok := taken[s.at.ObjectID]; ok {
			s.err = &manifest.DuplicateError{Ordinal: first}
			continue
		}
		taken[s.at.ObjectID] = m.Ordinal
	}
	return steps
}

// cacheResolver asks once for each kind, also for those that are not served: a work
// may name one many times.
func cacheResolver(resolve resolver) resolver {
	type answer struct {
		kind resourceKind
		err  error
	}
	known := map[schema.GroupVersionKind]answer{}
	return func(ctx context.Context, gvk schema.GroupVersionKind) (resourceKind, error) {
		a, ok := known[gvk]
		if !ok {
			a.kind, a.err = resolve(ctx, gvk)
			known[gvk] = a
		}
		return a.kind, a.err
	}
}

func locateManifest(ctx context.Context, m manifest.Manifest, resolve resolver) (manifest.Target, error) {
	kind, err := resolve(ctx, m.GVK)
	if err != nil {
		return manifest.Target{}, fmt.Errorf("failed to find gvr from restmapping: %w", err)
	}
	t := manifest.Target{ObjectID: manifest.ObjectID{Group: m.GVK.Group, Resource: kind.resource, Name: m.Name}, Version: m.GVK.Version, Kind: m.GVK.Kind}
	switch {
	case kind.namespaced && m.Namespace == "":
		return t, errNoNamespace
	case !kind.namespaced && m.Namespace != "":
		// Without its namespace it would reach further than whoever allowed it by its namespace meant.
		return t, errNamespace
	}
	t.Namespace = m.Namespace
	return t, nil
}

func checkNamespace(t manifest.Target, allowed []string) error {
	if len(allowed) == 0 || slices.Contains(allowed, t.Namespace) && t.Namespace != "" {
		return nil
	}
	return &manifest.NamespaceError{Namespace: t.Namespace}
}

// applicableSteps returns the steps that can be taken, in the order of their kinds.
func applicableSteps(steps []step) []*step {
	var out []*step
	for i := range steps {
		if steps[i].err == nil {
			out = append(out, &steps[i])
		}
	}
	slices.SortStableFunc(out, func(a, b *step) int { return a.at.ApplyOrder() - b.at.ApplyOrder() })
	return out
}

// removedObjects returns what is tracked and no manifest names any more. A manifest
// that cannot be resolved, or is refused, at present still names its object: a
// fault on the way to discovery must not delete anything.
func removedObjects(all map[manifest.ObjectID]record.Object, steps []step) []record.Object {
	type named struct{ group, kind, namespace, name string }
	kept := map[named]struct{}{}
	ids := map[manifest.ObjectID]struct{}{}
	unreadable := false
	for _, s := range steps {
		if s.at.Name != "" {
			ids[s.at.ObjectID] = struct{}{}
		}
		kept[named{s.GVK.Group, s.GVK.Kind, s.Namespace, s.Name}] = struct{}{}
		kept[named{s.GVK.Group, s.GVK.Kind, "", s.Name}] = struct{}{}
		unreadable = unreadable || s.GVK.Kind == "" || s.Name == ""
	}
	if unreadable {
		return nil // it may name anything
	}
	var out []record.Object
	for id, t := range all {
		_, byID := ids[id]
		_, byName := kept[named{t.Group, t.Kind, t.Namespace, t.Name}]
		if t.Kind == "" { // an anchor of another agent does not say it
			byName = mayBeUnresolved(steps, t)
		}
		if !byID && !byName {
			out = append(out, t)
		}
	}
	return out
}

// mayBeUnresolved tells whether a manifest of which the resource is not known may name
// an object of which the kind is not.
func mayBeUnresolved(steps []step, t record.Object) bool {
	return slices.ContainsFunc(steps, func(s step) bool {
		return s.at.Name == "" && s.GVK.Group == t.Group && s.Name == t.Name && (s.Namespace == t.Namespace || t.Namespace == "")
	})
}

// deletionWaves groups what is to be deleted: those of one wave together, the waves in
// the reverse order of apply, each waiting for the one before.
func deletionWaves(list []record.Object) [][]record.Object {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b record.Object) int {
		if d := b.ApplyOrder() - a.ApplyOrder(); d != 0 {
			return d
		}
		return strings.Compare(a.String(), b.String())
	})
	var out [][]record.Object
	for i, t := range list {
		if i == 0 || list[i-1].ApplyOrder() != t.ApplyOrder() {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], t)
	}
	return out
}

func (s *step) meta() workv1.ManifestResourceMeta {
	return workv1.ManifestResourceMeta{
		Ordinal: int32(s.Ordinal), //nolint:gosec // bounded by the size of a message
		Group:   s.GVK.Group, Version: s.GVK.Version, Kind: s.GVK.Kind,
		Resource: s.at.Resource, Namespace: s.Namespace, Name: s.Name,
	}
}

// isPermanent tells the errors that only a change of the work can end.
func isPermanent(err error) bool {
	var refused *manifest.NamespaceError
	var duplicate *manifest.DuplicateError
	return errors.As(err, &refused) || errors.As(err, &duplicate) || errors.Is(err, manifest.ErrNoKind) || errors.Is(err, manifest.ErrNoName) ||
		errors.Is(err, manifest.ErrGenerateName) || errors.Is(err, manifest.ErrInvalidName) || errors.Is(err, errNoNamespace) || errors.Is(err, errNamespace) ||
		errors.Is(err, manifest.ErrNotObject) || errors.Is(err, manifest.ErrMalformed) || errors.Is(err, errFieldManager) || errors.Is(err, errNoExecutor) || isIgnoreFieldsError(err) || isAccessDenied(err)
}

var errNoNamespace = errors.New("namespace must be set in manifest of a namespaced kind")

var errNamespace = errors.New("namespace must not be set in manifest of a cluster-scoped kind")
