// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
)

// Store reads and writes the anchors of one dialect in the spoke.
type Store struct {
	Client       dynamic.ResourceInterface
	Kind         Kind
	FieldManager string
	Owner        Owner
}

// IsOurs tells whether the agent may take an anchor for its own; named, that a work of
// its hub has the anchor's name.
func (s *Store) IsOurs(u *unstructured.Unstructured, named bool) bool {
	return s.Kind.form.isOurs(s.Owner, u, named)
}

// Create writes a new anchor that already lists a.tracked.
func (s *Store) Create(ctx context.Context, w Work, a *Anchor) error {
	list := a.appliedResources()
	applying, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("encode anchor: %w", err)
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s.Kind.form.newObject(s.Kind, s.Owner, w))
	if err != nil {
		return fmt.Errorf("encode anchor: %w", err)
	}
	delete(raw, "status")
	obj := &unstructured.Unstructured{Object: raw}
	obj.SetName(w.Name)
	obj.SetFinalizers([]string{s.Kind.Finalizer})
	announced := len(applying) <= maxPendingSize
	if announced {
		annotations := obj.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[pendingAnnotation] = string(applying)
		obj.SetAnnotations(annotations)
	}
	made, err := s.Client.Create(ctx, obj, metav1.CreateOptions{FieldManager: s.FieldManager})
	if apierrors.IsAlreadyExists(err) {
		return s.adopt(ctx, w, a)
	}
	if err != nil {
		a.IsUncertain = a.IsUncertain || !IsRejected(err)
		return fmt.Errorf("create %s: %w", s.Kind.Kind, err)
	}
	a.IsUncertain = false
	a.UID, a.Created, a.IsDeleting = made.GetUID(), made.GetCreationTimestamp().Time, false
	a.EvictionStart, a.LacksFinalizer = time.Time{}, false
	if !announced {
		return s.Update(ctx, w, a)
	}
	a.Pending = list
	return nil
}

// adopt takes over an anchor that exists under the work's name, with all
// that it lists. One of another hub is not ours to take: what it lists and we do
// not want would be deleted.
func (s *Store) adopt(ctx context.Context, w Work, a *Anchor) error {
	u, err := s.Client.Get(ctx, w.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get %s: %w", s.Kind.Kind, err)
	}
	if !s.IsOurs(u, true) {
		return fmt.Errorf("%s %s: %w", s.Kind.Kind, u.GetName(), ErrForeign)
	}
	key, found, err := Decode(s.Kind, u)
	if err != nil {
		return err
	}
	if key.Name != w.Key.Name || key.Namespace != "" && key.Namespace != w.Key.Namespace {
		return fmt.Errorf("%s %s stands for work %s/%s", s.Kind.Kind, u.GetName(), key.Namespace, key.Name)
	}
	for id, t := range a.Objects {
		if old, ok := found.Objects[id]; ok && t.UID == "" {
			t.UID, t.IsAdopted, t.IsUncertain = old.UID, old.IsAdopted, old.IsUncertain
		}
		found.Objects[id] = t
	}
	if found.IsDeleting {
		*a = *found
		return ErrLost // replaced by the caller's next attempt
	}
	patch := map[string]any{"metadata": map[string]any{
		"uid": string(found.UID), s.Kind.MarkField(): map[string]any{HubLabel: s.Owner.HubID}, "resourceVersion": u.GetResourceVersion(),
		"finalizers": addString(u.GetFinalizers(), s.Kind.Finalizer),
	}}
	if s.Kind.marksAnnotation {
		patch["spec"] = map[string]any{"agentID": s.Owner.agentID(w.HubHash)}
	}
	// Until it bears our id and mark it is not ours: another attempt has to adopt it.
	if err := s.patch(ctx, w, patch); err != nil {
		return err
	}
	*a = *found
	a.LacksFinalizer = false
	if err := s.CancelEviction(ctx, w, a); err != nil {
		return err
	}
	return s.Update(ctx, w, a)
}

// Update brings the anchor's list up to date, if it is not.
func (s *Store) Update(ctx context.Context, w Work, a *Anchor) error {
	form := s.Kind.form
	list, pending := form.split(a.appliedResources())
	if slices.ContainsFunc(pending, a.isUnlisted) {
		done, err := s.recordPending(ctx, w, a, pending)
		if err != nil {
			return err
		}
		if !done {
			list = withoutUnstored(a.appliedResources()) // the status says of some that they are before they are
		}
	}
	if slices.Equal(list, a.Recorded) {
		return nil
	}
	patch := map[string]any{"metadata": map[string]any{"uid": string(a.UID)}, "status": form.status(list)}
	if len(list) == 0 {
		patch["status"] = map[string]any{"appliedResources": nil}
	}
	if err := s.patch(ctx, w, patch, "status"); err != nil {
		return err
	}
	a.Recorded = list
	return nil
}

// recordPending lists what is about to be applied where the status has no place for it.
// done is false when they are too many for that.
func (s *Store) recordPending(ctx context.Context, w Work, a *Anchor, pending []v1alpha1.AppliedResourceMeta) (done bool, err error) {
	text, err := json.Marshal(pending)
	if err != nil {
		return false, fmt.Errorf("encode anchor: %w", err)
	}
	if len(text) > maxPendingSize {
		return false, nil
	}
	patch := map[string]any{"metadata": map[string]any{"uid": string(a.UID), "annotations": map[string]any{pendingAnnotation: string(text)}}}
	if err := s.patch(ctx, w, patch); err != nil {
		return false, err
	}
	a.Pending = pending
	return true, nil
}

// patch sends a merge patch that holds for one UID alone.
func (s *Store) patch(ctx context.Context, w Work, patch map[string]any, subresource ...string) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode anchor: %w", err)
	}
	o := metav1.PatchOptions{FieldManager: s.FieldManager}
	_, err = s.Client.Patch(ctx, w.Name, types.MergePatchType, body, o, subresource...)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return fmt.Errorf("patch %s: %w: %w", s.Kind.Kind, ErrLost, err)
	}
	if err != nil {
		return fmt.Errorf("patch %s: %w", s.Kind.Kind, err)
	}
	return nil
}

// Delete marks the anchor as going; its finalizer keeps it.
func (s *Store) Delete(ctx context.Context, w Work, a *Anchor) error {
	o := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &a.UID}}
	err := s.Client.Delete(ctx, w.Name, o)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s: %w: %w", s.Kind.Kind, ErrLost, err)
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", s.Kind.Kind, err)
	}
	a.IsDeleting = true
	return nil
}

// RemoveFinalizer lets an anchor that is being deleted go.
func (s *Store) RemoveFinalizer(ctx context.Context, w Work, a *Anchor) error {
	o := metav1.PatchOptions{FieldManager: s.FieldManager}
	// Ours is the first finalizer of an anchor that nobody else holds.
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": a.UID},
		{"op": "test", "path": "/metadata/finalizers/0", "value": s.Kind.Finalizer},
		{"op": "remove", "path": "/metadata/finalizers/0"},
	})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	_, err = s.Client.Patch(ctx, w.Name, types.JSONPatchType, patch, o)
	switch {
	case err == nil || apierrors.IsNotFound(err):
		return nil
	case apierrors.IsInvalid(err):
		return s.removeFinalizerBySearch(ctx, w, a)
	default:
		return fmt.Errorf("patch %s: %w", s.Kind.Kind, err)
	}
}

// removeFinalizerBySearch does so where others have their finalizers on it, or have made
// another of its name.
func (s *Store) removeFinalizerBySearch(ctx context.Context, w Work, a *Anchor) error {
	u, err := s.Client.Get(ctx, w.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && u.GetUID() != a.UID {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get %s: %w", s.Kind.Kind, err)
	}
	rest := slices.DeleteFunc(slices.Clone(u.GetFinalizers()), func(f string) bool { return f == s.Kind.Finalizer })
	patch := map[string]any{"metadata": map[string]any{"uid": string(a.UID), "resourceVersion": u.GetResourceVersion(), "finalizers": rest}}
	err = s.patch(ctx, w, patch)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func addString(list []string, more string) []string {
	if slices.Contains(list, more) {
		return list
	}
	return append(slices.Clone(list), more)
}

// SetFinalizer keeps an anchor, which lacked the finalizer, until what it lists is gone.
func (s *Store) SetFinalizer(ctx context.Context, w Work, a *Anchor) error {
	patch := map[string]any{"metadata": map[string]any{"uid": string(a.UID), "finalizers": []string{s.Kind.Finalizer}}}
	if err := s.patch(ctx, w, patch); err != nil {
		return err
	}
	a.LacksFinalizer = false
	return nil
}

// StartEviction records since when the work of an AppliedManifestWork is unknown to the hub.
func (s *Store) StartEviction(ctx context.Context, w Work, a *Anchor, since time.Time) error {
	if err := s.setEvictionStart(ctx, w, a, metav1.NewTime(since)); err != nil {
		return err
	}
	a.EvictionStart = since
	return nil
}

// CancelEviction clears the evictionStartTime of an AppliedManifestWork: the hub knows its
// work again, or nothing is evicted any more.
func (s *Store) CancelEviction(ctx context.Context, w Work, a *Anchor) error {
	if a.UID == "" || a.EvictionStart.IsZero() {
		return nil
	}
	if err := s.setEvictionStart(ctx, w, a, nil); err != nil {
		return err
	}
	a.EvictionStart = time.Time{}
	return nil
}

func (s *Store) setEvictionStart(ctx context.Context, w Work, a *Anchor, at any) error {
	patch := map[string]any{"metadata": map[string]any{"uid": string(a.UID)}, "status": map[string]any{"evictionStartTime": at}}
	return s.patch(ctx, w, patch, "status")
}

// SetSuperseded replaces what an anchor records of objects that are not written again.
func (s *Store) SetSuperseded(ctx context.Context, w Work, a *Anchor, superseded map[string]string) error {
	var value any
	if len(superseded) > 0 {
		text, err := json.Marshal(superseded)
		if err != nil {
			return fmt.Errorf("encode anchor: %w", err)
		}
		value = string(text)
	}
	patch := map[string]any{"metadata": map[string]any{"uid": string(a.UID), "annotations": map[string]any{SupersededAnnotation: value}}}
	if err := s.patch(ctx, w, patch); err != nil {
		return err
	}
	a.Superseded = superseded
	return nil
}

// IsRejected tells the errors after which nothing can have been written.
func IsRejected(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError
}
