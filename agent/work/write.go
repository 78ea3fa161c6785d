// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/executor"
	"github.com/spokelet/spokelet/agent/work/merge"
)

// writeAttempts bounds how often one write begins anew because the object changed
// in between.
const writeAttempts = 5

var errUnsteady = errors.New("object changes faster than it can be written")

// written is the answer to a write.
type written struct {
	// seen is the object as it is then; nil when there is none.
	seen *sighting
	// obj is all of it, where it was read.
	obj  *unstructured.Unstructured
	from origin
	// fields says whose the fields are.
	fields []metav1.ManagedFieldsEntry
	// unknown are the fields that the API server did not take, in its words.
	unknown []string
}

func writtenOf(obj *unstructured.Unstructured, code int) written {
	return written{seen: sight(obj), obj: obj, from: originOf(obj, code), fields: obj.GetManagedFields()}
}

func writtenMeta(obj metav1.Object, code int) written {
	return written{seen: sight(obj), from: originOf(obj, code), fields: obj.GetManagedFields()}
}

// warned keeps of an answer's warnings those of fields that were not taken.
func (g written) warned(a *answer) written {
	for _, w := range a.warnings {
		if strings.HasPrefix(w, "unknown field") || strings.HasPrefix(w, "duplicate field") {
			g.unknown = append(g.unknown, w)
		}
	}
	return g
}

// write brings one manifest to its object, as its strategy says.
func (e *Engine) write(ctx context.Context, w *work, s *step, owners []owner) (written, error) {
	var got written
	var err error
	switch s.how.strategy {
	case workv1.UpdateStrategyTypeReadOnly:
		if got, err = e.readOnly(ctx, s); err != nil {
			err = &FetchError{Err: err}
		}
	case workv1.UpdateStrategyTypeCreateOnly:
		got, err = e.createOnly(ctx, s, owners)
	case workv1.UpdateStrategyTypeServerSideApply:
		got, err = e.applyServerSide(ctx, w, s, owners)
	default:
		got, err = e.update(ctx, w, s, owners)
	}
	if apierrors.IsNotFound(err) {
		// The namespace is missing, or the kind is served no more.
		e.spoke.kinds.forget(s.gvk.GroupVersion())
	}
	if err != nil || s.how.owns() || got.seen == nil {
		return got, err
	}
	if !slices.Contains(got.seen.owners, w.anchor.uid) {
		return got, nil
	}
	_, err = e.removeOwnerReference(ctx, s.at, w.anchor.uid)
	return got, err
}

func (e *Engine) readOnly(ctx context.Context, s *step) (written, error) {
	if s.read != nil {
		obj, err := e.spoke.fetch(ctx, s.at)
		if obj == nil {
			return written{}, err
		}
		return writtenOf(obj, 0), nil
	}
	obj, err := e.spoke.get(ctx, s.at)
	if apierrors.IsNotFound(err) {
		return written{}, nil
	}
	if err != nil {
		return written{}, err
	}
	return writtenMeta(obj, 0), nil
}

func (e *Engine) createOnly(ctx context.Context, s *step, owners []owner) (written, error) {
	for range writeAttempts {
		live, err := e.spoke.get(ctx, s.at)
		if err == nil {
			return e.addOwners(ctx, s, live, owners)
		}
		if !apierrors.IsNotFound(err) {
			return written{}, err
		}
		got, err := e.create(ctx, s, owners)
		if !apierrors.IsAlreadyExists(err) {
			return got, err
		}
	}
	return written{}, errUnsteady
}

// addOwners adds the references that an object lacks, which is otherwise left alone.
func (e *Engine) addOwners(ctx context.Context, s *step, live *metav1.PartialObjectMetadata, owners []owner) (written, error) {
	refs := merged(live.OwnerReferences, e.references(owners))
	if len(refs) == len(live.OwnerReferences) {
		return writtenMeta(live, 0), nil
	}
	got, err := e.spoke.setOwners(ctx, s.at, live, refs)
	if err != nil {
		return written{}, err
	}
	return writtenMeta(got, 0), nil
}

// own adds the references that an object lacks, as often as it changes in between.
func (e *Engine) own(ctx context.Context, s *step, owners []owner) (*sighting, error) {
	for range writeAttempts {
		live, err := e.spoke.get(ctx, s.at)
		if err != nil {
			return nil, err
		}
		if got, err := e.addOwners(ctx, s, live, owners); !errors.Is(err, errChanged) {
			return got.seen, err
		}
	}
	return nil, errUnsteady
}

// merged are references with those of more that they lack.
func merged(refs, more []metav1.OwnerReference) []metav1.OwnerReference {
	out := slices.Clone(refs)
	for _, m := range more {
		if !slices.ContainsFunc(out, func(o metav1.OwnerReference) bool { return o.UID == m.UID }) {
			out = append(out, m)
		}
	}
	return out
}

func (e *Engine) create(ctx context.Context, s *step, owners []owner) (written, error) {
	obj, err := s.object(s.at, e.references(owners))
	if err != nil {
		return written{}, err
	}
	if obj, err = merge.Fresh(obj); err != nil {
		return written{}, err
	}
	ctx, a := withAnswer(ctx)
	made, err := e.spoke.dynamic.Resource(s.at.gvr()).Namespace(s.at.Namespace).Create(ctx, obj, metav1.CreateOptions{FieldManager: s.how.manager})
	if err != nil {
		return written{}, err
	}
	return writtenOf(made, a.code).warned(a), nil
}

// update is the strategy of that name: get, merge, put. What nobody has seen yet
// is most likely not there, so that is tried first.
func (e *Engine) update(ctx context.Context, w *work, s *step, owners []owner) (written, error) {
	expected := w.anchor.tracked[s.at.objectID].uid != ""
	for range writeAttempts {
		if !expected {
			got, err := e.create(ctx, s, owners)
			if !apierrors.IsAlreadyExists(err) {
				return got, err
			}
		}
		live, err := e.spoke.fetch(ctx, s.at)
		if err != nil {
			return written{}, err
		}
		if expected = live != nil; !expected {
			continue
		}
		got, err := e.mergeInto(ctx, w, s, live, owners)
		if errors.Is(err, errRemade) {
			expected = false
			continue
		}
		if !apierrors.IsConflict(err) {
			return got, err
		}
	}
	return written{}, errUnsteady
}

// errRemade: the object was deleted, to be created anew.
var errRemade = errors.New("object has to be created anew")

func (e *Engine) mergeInto(ctx context.Context, w *work, s *step, live *unstructured.Unstructured, owners []owner) (written, error) {
	required, err := s.object(s.at, e.references(owners))
	if err != nil {
		return written{}, err
	}
	decide := merge.Merge
	if s.changed {
		decide = merge.Replace
	}
	next, verdict, err := decide(required, live)
	if err != nil {
		return written{}, err
	}
	switch verdict {
	case merge.Same:
		return writtenOf(live, 0), nil
	case merge.Recreate:
		if err := e.spoke.delete(ctx, s.at, live.GetUID(), live.GetResourceVersion()); err != nil && !apierrors.IsNotFound(err) {
			return written{}, err
		}
		return written{}, errRemade
	case merge.Update:
	}
	if s.how.orphan {
		next.SetOwnerReferences(without(next.GetOwnerReferences(), w.anchor.uid))
	}
	ctx, a := withAnswer(ctx)
	got, err := e.spoke.dynamic.Resource(s.at.gvr()).Namespace(s.at.Namespace).Update(ctx, next, metav1.UpdateOptions{FieldManager: s.how.manager})
	if err != nil {
		return written{}, err
	}
	return writtenOf(got, 0).warned(a), nil
}

func without(refs []metav1.OwnerReference, uid types.UID) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(refs), func(o metav1.OwnerReference) bool { return o.UID == uid })
}

func (e *Engine) applyServerSide(ctx context.Context, w *work, s *step, owners []owner) (written, error) {
	if s.how.ignored != nil {
		return e.applyPruned(ctx, w, s, owners)
	}
	configuration, err := s.configuration(s.at, e.references(owners))
	if err != nil {
		return written{}, err
	}
	return e.applyAs(ctx, w, s, configuration)
}

// applyPruned leaves the fields to the spoke that the work ignores. An object that
// bears the mark of this very manifest is not touched.
func (e *Engine) applyPruned(ctx context.Context, w *work, s *step, owners []owner) (written, error) {
	live, err := e.spoke.get(ctx, s.at)
	exists := err == nil
	if err != nil && !apierrors.IsNotFound(err) {
		return written{}, err
	}
	whole, err := decodeObject(s.raw)
	if err != nil {
		return written{}, err
	}
	pruned, err := s.how.ignored.Prune(ctx, whole, exists)
	if err != nil {
		return written{}, err
	}
	if exists && live.Annotations[workv1.ManifestConfigSpecHashAnnotationKey] == pruned.Hash {
		return e.addOwners(ctx, s, live, owners)
	}
	obj := pruned.Object
	if err := annotate(obj, workv1.ManifestConfigSpecHashAnnotationKey, pruned.Hash); err != nil {
		return written{}, err
	}
	configuration, err := configure(obj, s.at, e.references(owners))
	if err != nil {
		return written{}, err
	}
	return e.applyAs(ctx, w, s, configuration)
}

func annotate(obj map[string]any, key, value string) error {
	meta, ok := obj["metadata"].(map[string]any)
	if !ok {
		return fmt.Errorf("failed to decode object: %w", errNoName)
	}
	annotations, ok := meta["annotations"].(map[string]any)
	if !ok && meta["annotations"] != nil {
		return fmt.Errorf("failed to decode object: annotations is not an object: %w", errMalformed)
	}
	if annotations == nil {
		annotations = map[string]any{}
		meta["annotations"] = annotations
	}
	annotations[key] = value
	return nil
}

// request is what a step's executor is asked for.
func (s *step) request(x *workv1.ManifestWorkSubjectServiceAccount, obj *unstructured.Unstructured) executor.Request {
	return executor.Request{
		Namespace: x.Namespace, Name: x.Name, Resource: s.at.gvr(),
		ObjectNamespace: s.at.Namespace, ObjectName: s.at.Name, Object: obj, Delete: !s.how.orphan,
		ReadOnly: s.how.strategy == workv1.UpdateStrategyTypeReadOnly,
	}
}
