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

	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/merge"
	"github.com/spokelet/spokelet/agent/work/plan"
)

// writeAttempts bounds how often one write begins anew because the object changed
// in between.
const writeAttempts = 5

var errKeepsChanging = errors.New("object changes faster than it can be written")

// writeResult is the answer to a write.
type writeResult struct {
	// observed is the object as it is then; nil when there is none.
	observed *inventory.ObservedObject
	// obj is all of it, where it was read.
	obj    *unstructured.Unstructured
	origin objectOrigin
	// fields says whose the fields are.
	fields []metav1.ManagedFieldsEntry
	// unknownFields are the fields that the API server did not take, in its words.
	unknownFields []string
}

func newWriteResult(obj *unstructured.Unstructured, code int) writeResult {
	return writeResult{observed: inventory.NewObservedObject(obj), obj: obj, origin: newObjectOrigin(obj, code), fields: obj.GetManagedFields()}
}

func newMetadataResult(obj metav1.Object, code int) writeResult {
	return writeResult{observed: inventory.NewObservedObject(obj), origin: newObjectOrigin(obj, code), fields: obj.GetManagedFields()}
}

// withUnknownFields keeps of an answer's warnings those of fields that were not taken.
func (g writeResult) withUnknownFields(a *response) writeResult {
	for _, w := range a.warnings {
		if strings.HasPrefix(w, "unknown field") || strings.HasPrefix(w, "duplicate field") {
			g.unknownFields = append(g.unknownFields, w)
		}
	}
	return g
}

// writeObject brings one manifest to its object, as its strategy says.
func (e *Engine) writeObject(ctx context.Context, w *work, s *plan.Step, owners []inventory.Owner) (writeResult, error) {
	var got writeResult
	var err error
	switch s.Options.Strategy {
	case workv1.UpdateStrategyTypeReadOnly:
		if got, err = e.readOnly(ctx, s); err != nil {
			err = &manifest.FetchError{Err: err}
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
		e.spoke.kinds.Invalidate(s.GVK.GroupVersion())
	}
	if err != nil || s.Options.OwnsObject() || got.observed == nil {
		return got, err
	}
	if !slices.Contains(got.observed.Owners, w.anchor.UID) {
		return got, nil
	}
	_, err = e.removeOwnerReference(ctx, s.Target, w.anchor.UID)
	return got, err
}

func (e *Engine) readOnly(ctx context.Context, s *plan.Step) (writeResult, error) {
	if s.Reader != nil {
		obj, err := e.spoke.getObject(ctx, s.Target)
		if obj == nil {
			return writeResult{}, err
		}
		return newWriteResult(obj, 0), nil
	}
	obj, err := e.spoke.getMetadata(ctx, s.Target)
	if apierrors.IsNotFound(err) {
		return writeResult{}, nil
	}
	if err != nil {
		return writeResult{}, err
	}
	return newMetadataResult(obj, 0), nil
}

func (e *Engine) createOnly(ctx context.Context, s *plan.Step, owners []inventory.Owner) (writeResult, error) {
	for range writeAttempts {
		live, err := e.spoke.getMetadata(ctx, s.Target)
		if err == nil {
			return e.addOwners(ctx, s, live, owners)
		}
		if !apierrors.IsNotFound(err) {
			return writeResult{}, err
		}
		got, err := e.create(ctx, s, owners)
		if !apierrors.IsAlreadyExists(err) {
			return got, err
		}
	}
	return writeResult{}, errKeepsChanging
}

// setOwnerReferences adds the references that an object lacks, which is otherwise left alone.
func (e *Engine) addOwners(ctx context.Context, s *plan.Step, live *metav1.PartialObjectMetadata, owners []inventory.Owner) (writeResult, error) {
	refs := withOwners(live.OwnerReferences, e.ownerReferences(owners))
	if len(refs) == len(live.OwnerReferences) {
		return newMetadataResult(live, 0), nil
	}
	got, err := e.spoke.setOwners(ctx, s.Target, live, refs)
	if err != nil {
		return writeResult{}, err
	}
	return newMetadataResult(got, 0), nil
}

// addMissingOwners adds the references that an object lacks, as often as it changes in between.
func (e *Engine) addMissingOwners(ctx context.Context, s *plan.Step, owners []inventory.Owner) (*inventory.ObservedObject, error) {
	for range writeAttempts {
		live, err := e.spoke.getMetadata(ctx, s.Target)
		if err != nil {
			return nil, err
		}
		if got, err := e.addOwners(ctx, s, live, owners); !errors.Is(err, errChanged) {
			return got.observed, err
		}
	}
	return nil, errKeepsChanging
}

// withOwners are references with those of more that they lack.
func withOwners(refs, more []metav1.OwnerReference) []metav1.OwnerReference {
	out := slices.Clone(refs)
	for _, m := range more {
		if !slices.ContainsFunc(out, func(o metav1.OwnerReference) bool { return o.UID == m.UID }) {
			out = append(out, m)
		}
	}
	return out
}

func (e *Engine) create(ctx context.Context, s *plan.Step, owners []inventory.Owner) (writeResult, error) {
	obj, err := s.Object(s.Target, e.ownerReferences(owners))
	if err != nil {
		return writeResult{}, err
	}
	if obj, err = merge.NewObject(obj); err != nil {
		return writeResult{}, err
	}
	ctx, a := withResponse(ctx)
	made, err := e.spoke.dynamic.Resource(s.Target.GVR()).Namespace(s.Target.Namespace).Create(ctx, obj, metav1.CreateOptions{FieldManager: s.Options.Manager})
	if err != nil {
		return writeResult{}, err
	}
	return newWriteResult(made, a.code).withUnknownFields(a), nil
}

// update is the strategy of that name: get, merge, put. What nobody has seen yet
// is most likely not there, so that is tried first.
func (e *Engine) update(ctx context.Context, w *work, s *plan.Step, owners []inventory.Owner) (writeResult, error) {
	expected := w.anchor.Objects[s.Target.ObjectID].UID != ""
	for range writeAttempts {
		if !expected {
			got, err := e.create(ctx, s, owners)
			if !apierrors.IsAlreadyExists(err) {
				return got, err
			}
		}
		live, err := e.spoke.getObject(ctx, s.Target)
		if err != nil {
			return writeResult{}, err
		}
		if expected = live != nil; !expected {
			continue
		}
		got, err := e.mergeInto(ctx, w, s, live, owners)
		if errors.Is(err, errRecreate) {
			expected = false
			continue
		}
		if !apierrors.IsConflict(err) {
			return got, err
		}
	}
	return writeResult{}, errKeepsChanging
}

// errRecreate: the object was deleted, to be created anew.
var errRecreate = errors.New("object has to be created anew")

func (e *Engine) mergeInto(ctx context.Context, w *work, s *plan.Step, live *unstructured.Unstructured, owners []inventory.Owner) (writeResult, error) {
	required, err := s.Object(s.Target, e.ownerReferences(owners))
	if err != nil {
		return writeResult{}, err
	}
	decide := merge.Merge
	if s.IsNewContent {
		decide = merge.Replace
	}
	next, verdict, err := decide(required, live)
	if err != nil {
		return writeResult{}, err
	}
	switch verdict {
	case merge.Unchanged:
		return newWriteResult(live, 0), nil
	case merge.Recreate:
		if err := e.spoke.delete(ctx, s.Target, live.GetUID(), live.GetResourceVersion()); err != nil && !apierrors.IsNotFound(err) {
			return writeResult{}, err
		}
		return writeResult{}, errRecreate
	case merge.Update:
	}
	if s.Options.IsOrphaned {
		next.SetOwnerReferences(withoutOwner(next.GetOwnerReferences(), w.anchor.UID))
	}
	ctx, a := withResponse(ctx)
	got, err := e.spoke.dynamic.Resource(s.Target.GVR()).Namespace(s.Target.Namespace).Update(ctx, next, metav1.UpdateOptions{FieldManager: s.Options.Manager})
	if err != nil {
		return writeResult{}, err
	}
	return newWriteResult(got, 0).withUnknownFields(a), nil
}

func withoutOwner(refs []metav1.OwnerReference, uid types.UID) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(refs), func(o metav1.OwnerReference) bool { return o.UID == uid })
}

func (e *Engine) applyServerSide(ctx context.Context, w *work, s *plan.Step, owners []inventory.Owner) (writeResult, error) {
	if s.Options.IgnoredFields != nil {
		return e.applyPruned(ctx, w, s, owners)
	}
	configuration, err := s.Configuration(s.Target, e.ownerReferences(owners))
	if err != nil {
		return writeResult{}, err
	}
	return e.applyWithTakeover(ctx, w, s, configuration)
}

// applyPruned leaves the fields to the spoke that the work ignores. An object that
// bears the mark of this very manifest is not touched.
func (e *Engine) applyPruned(ctx context.Context, w *work, s *plan.Step, owners []inventory.Owner) (writeResult, error) {
	live, err := e.spoke.getMetadata(ctx, s.Target)
	exists := err == nil
	if err != nil && !apierrors.IsNotFound(err) {
		return writeResult{}, err
	}
	whole, err := manifest.Decode(s.Raw)
	if err != nil {
		return writeResult{}, err
	}
	pruned, err := s.Options.IgnoredFields.Prune(ctx, whole, exists)
	if err != nil {
		return writeResult{}, err
	}
	if exists && live.Annotations[workv1.ManifestConfigSpecHashAnnotationKey] == pruned.Hash {
		return e.addOwners(ctx, s, live, owners)
	}
	obj := pruned.Object
	if err := annotate(obj, workv1.ManifestConfigSpecHashAnnotationKey, pruned.Hash); err != nil {
		return writeResult{}, err
	}
	configuration, err := manifest.Configuration(obj, s.Target, e.ownerReferences(owners))
	if err != nil {
		return writeResult{}, err
	}
	return e.applyWithTakeover(ctx, w, s, configuration)
}

func annotate(obj map[string]any, key, value string) error {
	meta, ok := obj["metadata"].(map[string]any)
	if !ok {
		return fmt.Errorf("failed to decode object: %w", manifest.ErrNoName)
	}
	annotations, ok := meta["annotations"].(map[string]any)
	if !ok && meta["annotations"] != nil {
		return fmt.Errorf("failed to decode object: annotations is not an object: %w", manifest.ErrMalformed)
	}
	if annotations == nil {
		annotations = map[string]any{}
		meta["annotations"] = annotations
	}
	annotations[key] = value
	return nil
}
