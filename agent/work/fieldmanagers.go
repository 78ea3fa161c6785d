// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"

	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/agent/work/plan"
)

// applyWithTakeover applies a configuration by server-side apply. What this agent wrote before in
// another way, by updates or as another manager, is the work's own all the same: it is
// neither a conflict, nor does a field stay that the manifest no longer has.
func (e *Engine) applyWithTakeover(ctx context.Context, w *work, s *plan.Step, configuration []byte) (writeResult, error) {
	got, err := e.spoke.apply(ctx, s.Target, configuration, s.Options, s.Reader != nil)
	if !s.IsNewContent || err != nil && !apierrors.IsConflict(err) {
		return got, err
	}
	others := e.inventory.OtherWriters(s.Target.ObjectID, w.key.String())
	if err == nil && len(formerManagers(got.fields, s.Options.Manager, others)) == 0 {
		return got, nil
	}
	live, readErr := e.spoke.getMetadata(ctx, s.Target)
	if readErr != nil {
		return writeResult{}, cmp.Or(err, readErr)
	}
	earlier := formerManagers(live.ManagedFields, s.Options.Manager, others)
	if len(earlier) == 0 {
		return got, err
	}
	if err := e.takeOverFields(ctx, s, live, earlier); err != nil {
		return writeResult{}, err
	}
	return e.spoke.apply(ctx, s.Target, configuration, s.Options, s.Reader != nil)
}

// formerManagers are those of ours that wrote fields and that nobody writes as any more:
// neither the work itself, as manager, nor others. Works may apply as managers of their
// own, whose names begin with ours.
func formerManagers(fields []metav1.ManagedFieldsEntry, manager string, others []inventory.FieldWriter) sets.Set[string] {
	earlier := sets.New[string]()
	present := append(slices.Clone(others), inventory.FieldWriter{Manager: manager, Operation: metav1.ManagedFieldsOperationApply})
	for _, f := range fields {
		ours := f.Subresource == "" && strings.HasPrefix(f.Manager, inventory.FieldManager)
		if ours && !slices.Contains(present, inventory.FieldWriter{Manager: f.Manager, Operation: f.Operation}) && !hasOwnersOnly(f.FieldsV1) {
			earlier.Insert(f.Manager)
		}
	}
	return earlier
}

// hasOwnersOnly: references are written by updates, whatever the strategy is.
func hasOwnersOnly(f *metav1.FieldsV1) bool {
	var set map[string]map[string]any
	if f == nil || json.Unmarshal(f.GetRawBytes(), &set) != nil {
		return false
	}
	for name := range set["f:metadata"] {
		if name != "f:ownerReferences" {
			return false
		}
	}
	return len(set) == 1 && set["f:metadata"] != nil
}

// takeOverFields makes the fields of earlier managers those of the present one.
func (e *Engine) takeOverFields(ctx context.Context, s *plan.Step, live *metav1.PartialObjectMetadata, earlier sets.Set[string]) error {
	for i := range live.ManagedFields {
		// Of applies csaupgrade takes over none.
		if f := &live.ManagedFields[i]; f.Manager != s.Options.Manager && f.Subresource == "" && earlier.Has(f.Manager) {
			f.Operation = metav1.ManagedFieldsOperationUpdate
		}
	}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(live, earlier, s.Options.Manager)
	if err != nil {
		return fmt.Errorf("take over fields: %w", err)
	}
	if patch == nil {
		return nil
	}
	_, err = e.spoke.metadata.Resource(s.Target.GVR()).Namespace(s.Target.Namespace).Patch(ctx, s.Target.Name, types.JSONPatchType, patch,
		metav1.PatchOptions{FieldManager: s.Options.Manager})
	return err
}
