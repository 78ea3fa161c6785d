// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

const (
	// HubLabel on an anchor says which hub's agent made it; only those are evicted.
	HubLabel = "spokelet.io/hub-id"
	// pendingAnnotation lists, on a new anchor, what is about to be applied. It
	// saves the write of a status before the first apply; the status counts later.
	pendingAnnotation = "spokelet.io/applying"
	// maxPendingSize is the size in bytes up to which the annotation is used; all
	// annotations of an object may have 256 KiB.
	maxPendingSize = 128 << 10
)

var (
	// errAnchorLost: the anchor is gone, or another one has its name.
	errAnchorLost = errors.New("anchor was replaced by someone else")
	// errForeignAnchor: what the anchor lists was applied for another hub.
	errForeignAnchor = errors.New("anchor belongs to another hub, or to another agent")
)

// anchor is the object in the spoke that stands for a work and lists what was
// applied for it. An object is listed before it is applied, so that whatever
// happens in between, nothing is ever applied that is not listed.
type anchor struct {
	uid types.UID
	// created is when the API server made the anchor.
	created    time.Time
	isDeleting bool
	// tracked is what may exist because of this work.
	tracked map[manifest.ObjectID]trackedObject
	// recorded is tracked as the status has it, pending as the annotation has it.
	recorded, pending []v1alpha1.AppliedResourceMeta
	// workKey is whom it stands for, as far as it says so itself.
	workKey wire.WorkKey
	// evictionStart is since when the work of an AppliedManifestWork is missed.
	evictionStart time.Time
	// superseded is what the anchor says of objects that others wrote last.
	superseded map[string]string
	// lacksFinalizer: nothing keeps the anchor when somebody deletes it.
	lacksFinalizer bool
	// isUncertain: it may have been made, and the answer was lost.
	isUncertain bool
}

// trackedObject is one listed object; without a UID it was about to be applied.
type trackedObject struct {
	manifest.Target
	ordinal int
	uid     types.UID
	// isAdopted: the object of that UID was there before us, and stays after us.
	isAdopted bool
	// isUncertain: an apply may have been done of which we do not know the answer.
	isUncertain bool
	// detachedUID is the UID of an object that is ours and bears no reference: that to an
	// anchor which somebody deleted was removed, and its successor's is not yet written.
	detachedUID types.UID
}

func newAnchor() *anchor { return &anchor{tracked: map[manifest.ObjectID]trackedObject{}} }

// appliedResources is tracked in the form of the API: sorted, exact.
func (a *anchor) appliedResources() []v1alpha1.AppliedResourceMeta {
	out := make([]v1alpha1.AppliedResourceMeta, 0, len(a.tracked))
	for _, t := range a.tracked {
		out = append(out, v1alpha1.AppliedResourceMeta{
			ResourceIdentifier: v1alpha1.ResourceIdentifier{
				Ordinal: t.ordinal, Group: t.Group, Version: t.Version, Kind: t.Kind,
				Resource: t.Resource, Namespace: t.Namespace, Name: t.Name,
			},
			UID: t.uid, Adopted: t.isAdopted,
		})
	}
	slices.SortFunc(out, func(a, b v1alpha1.AppliedResourceMeta) int {
		return cmp.Or(
			strings.Compare(a.Group, b.Group), strings.Compare(a.Version, b.Version), strings.Compare(a.Resource, b.Resource),
			strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return out
}

// addListed reads a list. How the last applies before it was read ended, it does not say.
func (a *anchor) addListed(list []v1alpha1.AppliedResourceMeta) {
	for _, r := range list {
		t := manifest.Target{ObjectID: manifest.ObjectID{Group: r.Group, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name}, Version: r.Version, Kind: r.Kind}
		if t.Resource == "" || t.Name == "" || t.Version == "" {
			continue // nothing that can be addressed
		}
		old, ok := a.tracked[t.ObjectID]
		if ok && old.uid != "" && r.UID == "" {
			continue
		}
		if t.Kind == "" {
			t.Kind = old.Kind // an AppliedManifestWork's status does not say it
		}
		a.tracked[t.ObjectID] = trackedObject{Target: t, ordinal: r.Ordinal, uid: r.UID, isAdopted: r.Adopted, isUncertain: true}
	}
}

// decodeAnchor decodes an anchor and the name of its work.
func decodeAnchor(p Policy, u *unstructured.Unstructured) (wire.WorkKey, *anchor, error) {
	a, err := p.Anchor.form.decode(u)
	if err != nil {
		return wire.WorkKey{}, nil, err
	}
	a.uid, a.created, a.isDeleting = u.GetUID(), u.GetCreationTimestamp().Time, u.GetDeletionTimestamp() != nil
	a.lacksFinalizer = !slices.Contains(u.GetFinalizers(), p.Anchor.Finalizer)
	if text := u.GetAnnotations()[pendingAnnotation]; text != "" {
		if err := json.Unmarshal([]byte(text), &a.pending); err != nil {
			return wire.WorkKey{}, nil, fmt.Errorf("anchor %s: annotation %s: %w", u.GetName(), pendingAnnotation, err)
		}
	}
	a.superseded = decodeSuperseded(u)
	a.addListed(a.pending)
	a.addListed(a.recorded)
	return a.workKey, a, nil
}

// createAnchor writes a new anchor that already lists a.tracked.
func (e *Engine) createAnchor(ctx context.Context, w *work, a *anchor) error {
	list := a.appliedResources()
	applying, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("encode anchor: %w", err)
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(w.policy.Anchor.form.newObject(e, w))
	if err != nil {
		return fmt.Errorf("encode anchor: %w", err)
	}
	delete(raw, "status")
	obj := &unstructured.Unstructured{Object: raw}
	obj.SetName(w.anchorName())
	obj.SetFinalizers([]string{w.policy.Anchor.Finalizer})
	announced := len(applying) <= maxPendingSize
	if announced {
		annotations := obj.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[pendingAnnotation] = string(applying)
		obj.SetAnnotations(annotations)
	}
	made, err := e.spoke.anchors(w.policy).Create(ctx, obj, metav1.CreateOptions{FieldManager: w.policy.FieldManager})
	if apierrors.IsAlreadyExists(err) {
		return e.adoptAnchor(ctx, w, a)
	}
	if err != nil {
		a.isUncertain = a.isUncertain || !isRejected(err)
		return fmt.Errorf("create %s: %w", w.policy.Anchor.Kind, err)
	}
	a.isUncertain = false
	a.uid, a.created, a.isDeleting = made.GetUID(), made.GetCreationTimestamp().Time, false
	a.evictionStart, a.lacksFinalizer = time.Time{}, false
	if !announced {
		return e.recordAnchor(ctx, w, a)
	}
	a.pending = list
	return nil
}

// adoptAnchor takes over an anchor that exists under the work's name, with all
// that it lists. One of another hub is not ours to take: what it lists and we do
// not want would be deleted.
func (e *Engine) adoptAnchor(ctx context.Context, w *work, a *anchor) error {
	u, err := e.spoke.anchors(w.policy).Get(ctx, w.anchorName(), metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get %s: %w", w.policy.Anchor.Kind, err)
	}
	if !w.policy.Anchor.form.isOurs(e, u, true) {
		return fmt.Errorf("%s %s: %w", w.policy.Anchor.Kind, u.GetName(), errForeignAnchor)
	}
	key, found, err := decodeAnchor(w.policy, u)
	if err != nil {
		return err
	}
	if key.Name != w.key.Name || key.Namespace != "" && key.Namespace != w.key.Namespace {
		return fmt.Errorf("%s %s stands for work %s/%s", w.policy.Anchor.Kind, u.GetName(), key.Namespace, key.Name)
	}
	for id, t := range a.tracked {
		if old, ok := found.tracked[id]; ok && t.uid == "" {
			t.uid, t.isAdopted, t.isUncertain = old.uid, old.isAdopted, old.isUncertain
		}
		found.tracked[id] = t
	}
	if found.isDeleting {
		*a = *found
		return errAnchorLost // replaced by the caller's next attempt
	}
	patch := map[string]any{"metadata": map[string]any{
		"uid": string(found.uid), w.policy.markField(): map[string]any{HubLabel: e.cfg.HubID}, "resourceVersion": u.GetResourceVersion(),
		"finalizers": addString(u.GetFinalizers(), w.policy.Anchor.Finalizer),
	}}
	if w.policy.Dialect == wire.DialectManifestWork {
		patch["spec"] = map[string]any{"agentID": e.agentID(w.hubHash())}
	}
	// Until it bears our id and mark it is not ours: another attempt has to adopt it.
	if err := e.patchAnchor(ctx, w, patch); err != nil {
		return err
	}
	*a = *found
	a.lacksFinalizer = false
	if err := e.cancelEviction(ctx, w); err != nil {
		return err
	}
	return e.recordAnchor(ctx, w, a)
}

// recordAnchor brings the anchor's list up to date, if it is not.
func (e *Engine) recordAnchor(ctx context.Context, w *work, a *anchor) error {
	form := w.policy.Anchor.form
	list, pending := form.split(a.appliedResources())
	if slices.ContainsFunc(pending, a.isUnlisted) {
		done, err := e.recordPending(ctx, w, a, pending)
		if err != nil {
			return err
		}
		if !done {
			list = withoutUnstored(a.appliedResources()) // the status says of some that they are before they are
		}
	}
	if slices.Equal(list, a.recorded) {
		return nil
	}
	patch := map[string]any{"metadata": map[string]any{"uid": string(a.uid)}, "status": form.status(list)}
	if len(list) == 0 {
		patch["status"] = map[string]any{"appliedResources": nil}
	}
	if err := e.patchAnchor(ctx, w, patch, "status"); err != nil {
		return err
	}
	a.recorded = list
	return nil
}

// recordPending lists what is about to be applied where the status has no place for it.
// done is false when they are too many for that.
func (e *Engine) recordPending(ctx context.Context, w *work, a *anchor, pending []v1alpha1.AppliedResourceMeta) (done bool, err error) {
	text, err := json.Marshal(pending)
	if err != nil {
		return false, fmt.Errorf("encode anchor: %w", err)
	}
	if len(text) > maxPendingSize {
		return false, nil
	}
	patch := map[string]any{"metadata": map[string]any{"uid": string(a.uid), "annotations": map[string]any{pendingAnnotation: string(text)}}}
	if err := e.patchAnchor(ctx, w, patch); err != nil {
		return false, err
	}
	a.pending = pending
	return true, nil
}

// hubMark is the mark of the hub for which an anchor was made.
func (p Policy) hubMark(u *unstructured.Unstructured) string {
	if p.markField() == "annotations" {
		return u.GetAnnotations()[HubLabel]
	}
	return u.GetLabels()[HubLabel]
}

// markField is the part of the metadata that has the mark. The labels of an
// AppliedManifestWork are those of its work.
func (p Policy) markField() string {
	if p.Dialect == wire.DialectManifestWork {
		return "annotations"
	}
	return "labels"
}

// patchAnchor sends a merge patch that holds for one UID alone.
func (e *Engine) patchAnchor(ctx context.Context, w *work, patch map[string]any, subresource ...string) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode anchor: %w", err)
	}
	o := metav1.PatchOptions{FieldManager: w.policy.FieldManager}
	_, err = e.spoke.anchors(w.policy).Patch(ctx, w.anchorName(), types.MergePatchType, body, o, subresource...)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return fmt.Errorf("patch %s: %w: %w", w.policy.Anchor.Kind, errAnchorLost, err)
	}
	if err != nil {
		return fmt.Errorf("patch %s: %w", w.policy.Anchor.Kind, err)
	}
	return nil
}

// deleteAnchor marks the anchor as going; its finalizer keeps it.
func (e *Engine) deleteAnchor(ctx context.Context, w *work, a *anchor) error {
	o := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &a.uid}}
	err := e.spoke.anchors(w.policy).Delete(ctx, w.anchorName(), o)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s: %w: %w", w.policy.Anchor.Kind, errAnchorLost, err)
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", w.policy.Anchor.Kind, err)
	}
	a.isDeleting = true
	return nil
}

// removeFinalizer lets an anchor that is being deleted go.
func (e *Engine) removeFinalizer(ctx context.Context, w *work, a *anchor) error {
	o := metav1.PatchOptions{FieldManager: w.policy.FieldManager}
	// Ours is the first finalizer of an anchor that nobody else holds.
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": a.uid},
		{"op": "test", "path": "/metadata/finalizers/0", "value": w.policy.Anchor.Finalizer},
		{"op": "remove", "path": "/metadata/finalizers/0"},
	})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	_, err = e.spoke.anchors(w.policy).Patch(ctx, w.anchorName(), types.JSONPatchType, patch, o)
	switch {
	case err == nil || apierrors.IsNotFound(err):
		return nil
	case apierrors.IsInvalid(err):
		return e.removeFinalizerBySearch(ctx, w, a)
	default:
		return fmt.Errorf("patch %s: %w", w.policy.Anchor.Kind, err)
	}
}

// removeFinalizerBySearch does so where others have their finalizers on it, or have made
// another of its name.
func (e *Engine) removeFinalizerBySearch(ctx context.Context, w *work, a *anchor) error {
	u, err := e.spoke.anchors(w.policy).Get(ctx, w.anchorName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && u.GetUID() != a.uid {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get %s: %w", w.policy.Anchor.Kind, err)
	}
	rest := slices.DeleteFunc(slices.Clone(u.GetFinalizers()), func(f string) bool { return f == w.policy.Anchor.Finalizer })
	patch := map[string]any{"metadata": map[string]any{"uid": string(a.uid), "resourceVersion": u.GetResourceVersion(), "finalizers": rest}}
	err = e.patchAnchor(ctx, w, patch)
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
