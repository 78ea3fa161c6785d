// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/api/wire"
)

// findTarget returns the resource of a target. Its errors are those of a RESTMapper.
func (s *resources) findTarget(t wire.Target) (*meta.RESTMapping, error) {
	if t.Kind == "" {
		return s.findResource(t)
	}
	mapping, err := s.findKind(schema.GroupVersionKind{Group: t.Group, Version: t.Version, Kind: t.Kind})
	if meta.IsNoMatchError(err) && t.Group == "" && t.Version == "" {
		return s.findName(t, t.Kind) // of any group
	}
	return mapping, err
}

// findKind returns the resource of a kind of exactly this group; an empty version is any.
func (s *resources) findKind(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	if kind.Version != "" {
		return s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	return s.mapper.RESTMapping(kind.GroupKind())
}

// findResource returns the resource of a name that kubectl accepts, which may be a kind.
func (s *resources) findResource(t wire.Target) (*meta.RESTMapping, error) {
	mapping, err := s.findName(t, t.Resource)
	if !meta.IsNoMatchError(err) {
		return mapping, err
	}
	for _, m := range interpretations(t, t.Resource) {
		mapping, other := s.findKind(m.GroupVersion().WithKind(m.Resource))
		if !meta.IsNoMatchError(other) {
			return mapping, other
		}
	}
	return nil, err
}

// findName returns the resource of a plural, singular or short name, with or without a
// version and a group.
func (s *resources) findName(t wire.Target, word string) (*meta.RESTMapping, error) {
	var err error = &meta.NoResourceMatchError{PartialResource: schema.GroupVersionResource{Resource: word}}
	for _, m := range interpretations(t, strings.ToLower(word)) {
		var kind schema.GroupVersionKind
		if kind, err = s.mapper.KindFor(m); err == nil {
			// The version of a short name is lost on the way.
			kind.Version = cmp.Or(m.Version, kind.Version)
			return s.findKind(kind)
		}
		if !meta.IsNoMatchError(err) {
			return nil, err
		}
	}
	return nil, err
}

// failedGroupsFor returns the groups that may have a target and whose discovery failed.
func (s *resources) failedGroupsFor(t wire.Target) map[schema.GroupVersion]error {
	failed := map[schema.GroupVersion]error{}
	for gv, err := range s.failed {
		if mayBelongTo(t, gv) {
			failed[gv] = err
		}
	}
	return failed
}

// mayBelongTo reports whether a target may be of a group and version whose resources are not
// known.
func mayBelongTo(t wire.Target, gv schema.GroupVersion) bool {
	word := t.Resource
	if t.Kind != "" {
		word = t.Kind
	}
	if t.Kind != "" && t.Group == "" && t.Version != "" {
		return gv.Group == "" && gv.Version == t.Version // a kind of the core
	}
	for _, m := range interpretations(t, word) {
		// The beginning of a group's name may stand for it.
		if strings.HasPrefix(gv.Group, m.Group) && (m.Version == "" || m.Version == gv.Version) {
			return true
		}
	}
	return false
}

// interpretations returns the meanings that a word of a target can have: after its first dot is a
// group, or a version and a group. Those that conflict with the rest of the target, or name
// nothing, are left out.
func interpretations(t wire.Target, word string) []schema.GroupVersionResource {
	withVersion, without := schema.ParseResourceArg(word)
	all := []schema.GroupVersionResource{without.WithVersion("")}
	if withVersion != nil {
		all = append([]schema.GroupVersionResource{*withVersion}, all...)
	}
	var agree []schema.GroupVersionResource
	for _, m := range all {
		if m.Resource == "" || conflict(m.Group, t.Group) || conflict(m.Version, t.Version) {
			continue
		}
		m.Group, m.Version = cmp.Or(m.Group, t.Group), cmp.Or(m.Version, t.Version)
		agree = append(agree, m)
	}
	return agree
}

// conflict reports whether two names are set and differ.
func conflict(a, b string) bool { return a != "" && b != "" && a != b }
