// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/sharedobject"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// client returns the client of the share's objects in the cluster.
func (t *reconciliation) client() dynamic.ResourceInterface {
	return t.engine.cfg.Objects.Resource(resourceOf(t.spec)).Namespace(t.spec.SpokeNamespace)
}

// recordSpokeWrite records the result of a write in the cluster.
func (t *reconciliation) recordSpokeWrite(ctx context.Context, s step, got *unstructured.Unstructured) error {
	t.share.observeSpokeObject(ctx, got, false)
	left := sharedobject.Of(got)
	next, err := s.statesAfter(t.schema, left)
	if err != nil {
		return err
	}
	t.object.resourceVersion = got.GetResourceVersion()
	spoke := t.object.spoke
	spoke.uid = got.GetUID()
	t.engine.queue.Add(t.key)
	return t.recordStep(s, next, t.object.hub, spoke)
}

// sendSpokeWrite sends the request of a write in the cluster.
func (t *reconciliation) sendSpokeWrite(ctx context.Context, s step) (*unstructured.Unstructured, error) {
	if s.from == nil {
		obj := s.to.Object(t.spec.Group+"/"+t.spec.Version, t.spec.Kind, t.spec.SpokeNamespace, t.key.Name)
		return t.client().Create(ctx, obj, metav1.CreateOptions{FieldManager: fieldManager})
	}
	target := sharedobject.Target{ResourceVersion: t.object.resourceVersion, Annotated: t.object.annotated, Subresource: t.spokeStatus}
	patch, subresources := target.Patch, []string(nil)
	if s.part == wire.PartStatus {
		patch, subresources = target.StatusPatch, []string{"status"}
	}
	raw, err := patch(s.from, s.to)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	if raw == nil { // no stored field differs
		return t.client().Get(ctx, t.key.Name, metav1.GetOptions{})
	}
	return t.client().Patch(ctx, t.key.Name, types.JSONPatchType, raw, metav1.PatchOptions{FieldManager: fieldManager}, subresources...)
}

// handleSpokeError handles an error of a write in the cluster. If the write may have been
// done, the object is read before the next step.
func (t *reconciliation) handleSpokeError(s step, err error) error {
	switch {
	case apierrors.IsAlreadyExists(err):
		t.updateObject(func(o *object) { o.stale = true })
		return errors.Join(t.clearPendingWrite(), fmt.Errorf("%w: %w", errOutdated, err))
	case apierrors.IsConflict(err), apierrors.IsNotFound(err) && s.from != nil:
		return errors.Join(t.clearPendingWrite(), fmt.Errorf("%w: %w", errOutdated, err))
	case isUncertain(err):
		t.updateObject(func(o *object) { o.stale = true })
		return err
	}
	t.backOff(fmt.Sprintf("cluster: object %q: %v", t.key.Name, err))
	return t.clearPendingWrite()
}

// isUncertain reports whether a request may have been done in spite of its error.
func isUncertain(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || code >= http.StatusInternalServerError || code == 0
}

// publishWrite publishes a write to the hub.
func (t *reconciliation) publishWrite(s step, generation int64, w wire.SharedWrite) error {
	if !t.engine.acquireWriteSlot(t.key) {
		return nil
	}
	body, err := json.Marshal(w)
	if err != nil {
		t.engine.releaseWriteSlot(t.key)
		return fmt.Errorf("encode write: %w", err)
	}
	t.engine.limiter.Spend(t.key, len(body))
	t.updateObject(func(o *object) {
		o.hubWrite = &hubWrite{generation: generation, seenVersion: w.Seen, fence: t.spec.Fence, step: s}
	})
	uid := ""
	if w.Seen != "" {
		uid = string(t.object.hub.uid)
	}
	if err := t.engine.writes.Put(resource.Resource{Key: t.key.String(), UID: uid, Generation: generation, Body: body}); err != nil {
		t.updateObject(func(o *object) { o.hubWrite = nil })
		t.engine.releaseWriteSlot(t.key)
		return err
	}
	return nil
}
