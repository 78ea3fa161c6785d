// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/executor"
	"github.com/spokelet/spokelet/agent/work/ignorefields"
	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/record"
)

// Step is one manifest on its way: where it goes, or why it cannot.
type Step struct {
	manifest.Manifest
	Target manifest.Target
	Error  error
	// ContentHash changes with the manifest and with how it is written.
	ContentHash [sha256.Size]byte
	Options     Options
	// IsNewContent: the object has not been written since the manifest is what it is.
	IsNewContent bool
	// IsAccessUnknown: what the executor may do could not be found out, and what it was told
	// before stands.
	IsAccessUnknown bool
	// Reader is what is read of the object, nil for nothing.
	Reader *inventory.Reader
}

// resolver maps a kind to how it is addressed.
type resolver func(context.Context, schema.GroupVersionKind) (ResourceKind, error)

// Build decides for each manifest, in the order of the work, which object it is
// about. It reads kinds and nothing else.
func Build(ctx context.Context, manifests []manifest.Manifest, resolve resolver, allowed []string) []Step {
	steps := make([]Step, len(manifests))
	taken := map[manifest.ObjectID]int{}
	resolve = cacheResolver(resolve)
	for i, m := range manifests {
		s := &steps[i]
		s.Manifest = m
		if s.Error = m.Err; s.Error != nil {
			continue
		}
		if s.Target, s.Error = locateManifest(ctx, m, resolve); s.Error != nil {
			continue
		}
		if s.Error = checkNamespace(s.Target, allowed); s.Error != nil {
			continue
		}
		if first, ok := taken[s.Target.ObjectID]; ok {
			s.Error = &manifest.DuplicateError{Ordinal: first}
			continue
		}
		taken[s.Target.ObjectID] = m.Ordinal
	}
	return steps
}

// cacheResolver asks once for each kind, also for those that are not served: a work
// may name one many times.
func cacheResolver(resolve resolver) resolver {
	type answer struct {
		kind ResourceKind
		err  error
	}
	known := map[schema.GroupVersionKind]answer{}
	return func(ctx context.Context, gvk schema.GroupVersionKind) (ResourceKind, error) {
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
	t := manifest.Target{ObjectID: manifest.ObjectID{Group: m.GVK.Group, Resource: kind.Resource, Name: m.Name}, Version: m.GVK.Version, Kind: m.GVK.Kind}
	switch {
	case kind.Namespaced && m.Namespace == "":
		return t, errNoNamespace
	case !kind.Namespaced && m.Namespace != "":
		// Without its namespace it would reach further than whoever allowed it by its namespace meant.
		return t, ErrNamespace
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

// ApplicableSteps returns the steps that can be taken, in the order of their kinds.
func ApplicableSteps(steps []Step) []*Step {
	var out []*Step
	for i := range steps {
		if steps[i].Error == nil {
			out = append(out, &steps[i])
		}
	}
	slices.SortStableFunc(out, func(a, b *Step) int { return a.Target.ApplyOrder() - b.Target.ApplyOrder() })
	return out
}

// RemovedObjects returns what is tracked and no manifest names any more. A manifest
// that cannot be resolved, or is refused, at present still names its object: a
// fault on the way to discovery must not delete anything.
func RemovedObjects(all map[manifest.ObjectID]record.Object, steps []Step) []record.Object {
	type named struct{ group, kind, namespace, name string }
	kept := map[named]struct{}{}
	ids := map[manifest.ObjectID]struct{}{}
	unreadable := false
	for _, s := range steps {
		if s.Target.Name != "" {
			ids[s.Target.ObjectID] = struct{}{}
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
func mayBeUnresolved(steps []Step, t record.Object) bool {
	return slices.ContainsFunc(steps, func(s Step) bool {
		return s.Target.Name == "" && s.GVK.Group == t.Group && s.Name == t.Name && (s.Namespace == t.Namespace || t.Namespace == "")
	})
}

// DeletionWaves groups what is to be deleted: those of one wave together, the waves in
// the reverse order of apply, each waiting for the one before.
func DeletionWaves(list []record.Object) [][]record.Object {
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

// Meta names the manifest as a status does.
func (s *Step) Meta() workv1.ManifestResourceMeta {
	return workv1.ManifestResourceMeta{
		Ordinal: int32(s.Ordinal), //nolint:gosec // bounded by the size of a message
		Group:   s.GVK.Group, Version: s.GVK.Version, Kind: s.GVK.Kind,
		Resource: s.Target.Resource, Namespace: s.Namespace, Name: s.Name,
	}
}

// IsPermanent tells the errors that only a change of the work can end.
func IsPermanent(err error) bool {
	var refused *manifest.NamespaceError
	var duplicate *manifest.DuplicateError
	return errors.As(err, &refused) || errors.As(err, &duplicate) || errors.Is(err, manifest.ErrNoKind) || errors.Is(err, manifest.ErrNoName) ||
		errors.Is(err, manifest.ErrGenerateName) || errors.Is(err, manifest.ErrInvalidName) || errors.Is(err, errNoNamespace) || errors.Is(err, ErrNamespace) ||
		errors.Is(err, manifest.ErrNotObject) || errors.Is(err, manifest.ErrMalformed) || errors.Is(err, errFieldManager) || errors.Is(err, ErrNoExecutor) || IsIgnoreFieldsError(err) || IsAccessDenied(err)
}

var errNoNamespace = errors.New("namespace must be set in manifest of a namespaced kind")

// ErrNamespace is the error of a cluster-scoped manifest that names a namespace: without
// it the object would reach further than whoever allowed the namespace meant.
var ErrNamespace = errors.New("namespace must not be set in manifest of a cluster-scoped kind")

// Comparison is with what would be written to an object that exists.
func (s *Step) Comparison(ctx context.Context) *inventory.Comparison {
	c := &inventory.Comparison{IsSecret: s.IsSecret(), Required: &unstructured.Unstructured{}}
	whole, err := manifest.Decode(s.Raw)
	if err != nil {
		return &inventory.Comparison{Err: err, IsSecret: c.IsSecret}
	}
	pruned, err := s.Options.IgnoredFields.Prune(ctx, whole, true)
	if err != nil {
		return &inventory.Comparison{Err: err, IsSecret: c.IsSecret}
	}
	text, err := manifest.Configuration(pruned.Object, s.Target, nil)
	if err == nil {
		err = c.Required.UnmarshalJSON(text)
	}
	c.Err = err
	return c
}

// FailureText says why a step was not taken.
func (s *Step) FailureText() string {
	if unknown, ok := errors.AsType[*manifest.UnknownKindError](s.Error); ok {
		return manifest.DescribeError(unknown, false)
	}
	return manifest.DescribeError(s.Error, s.IsSecret())
}

// IsIgnoreFieldsError tells that the fields that a work ignores cannot be found.
func IsIgnoreFieldsError(err error) bool {
	var expression *ignorefields.ExpressionError
	return errors.As(err, &expression)
}

// IsAccessDenied tells that the work's executor may not do a step.
func IsAccessDenied(err error) bool {
	var refused *executor.NotAllowedError
	return errors.As(err, &refused)
}

// IsSecret tells whether errors of the step may quote what is secret.
func (s *Step) IsSecret() bool { return s.GVK.Group == "" && s.GVK.Kind == "Secret" }

// AccessRequest is what a step's executor is asked for.
func (s *Step) AccessRequest(x *workv1.ManifestWorkSubjectServiceAccount, obj *unstructured.Unstructured) executor.Request {
	return executor.Request{
		Namespace: x.Namespace, Name: x.Name, Resource: s.Target.GVR(),
		ObjectNamespace: s.Target.Namespace, ObjectName: s.Target.Name, Object: obj, Delete: !s.Options.IsOrphaned,
		ReadOnly: s.Options.Strategy == workv1.UpdateStrategyTypeReadOnly,
	}
}
