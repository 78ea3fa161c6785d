// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/plan"
)

// conditionContended is on a work of which an object is changed again each time it was
// repaired; it is ours.
const conditionContended = "Contended"

// noteContention finds out who changes an object that does not stay repaired. The read is
// one of a repair that waits for up to a minute.
func (e *Engine) noteContention(ctx context.Context, s *plan.Step, now time.Time) {
	if !e.inventory.IsDamped(s.Target.ObjectID, now) {
		return
	}
	text := "it is changed each time"
	if live, err := e.spoke.getMetadata(ctx, s.Target); err == nil {
		if obj, err := manifest.Decode(s.Raw); err == nil {
			text = contentionText(live.ManagedFields, obj)
		}
	}
	e.requeue(e.inventory.SetContention(s.Target.ObjectID, text))
}

// contentionText names a field of a manifest that somebody else has written, and who.
func contentionText(fields []metav1.ManagedFieldsEntry, manifest map[string]any) string {
	fields = slices.DeleteFunc(slices.Clone(fields), func(f metav1.ManagedFieldsEntry) bool {
		return f.Subresource == "status" || strings.HasPrefix(f.Manager, inventory.FieldManager) || f.FieldsV1 == nil
	})
	slices.SortStableFunc(fields, func(a, b metav1.ManagedFieldsEntry) int {
		switch {
		case a.Time == nil || b.Time == nil || a.Time.Equal(b.Time):
			return strings.Compare(a.Manager, b.Manager)
		case a.Time.After(b.Time.Time):
			return -1
		default:
			return 1
		}
	})
	for _, f := range fields {
		var set map[string]any
		if err := json.Unmarshal(f.FieldsV1.GetRawBytes(), &set); err != nil {
			continue
		}
		if at := overlappingField(set, manifest, ""); at != "" {
			return fmt.Sprintf("%s is also written by %q", strings.TrimPrefix(at, "."), f.Manager)
		}
	}
	return "somebody changes it each time"
}

// overlappingField is the path of the first value that a set of managed fields and an object both
// have, empty for none. In lists of items with keys it names the list.
func overlappingField(set map[string]any, object any, at string) string {
	for _, key := range slices.Sorted(maps.Keys(set)) {
		name, isField := strings.CutPrefix(key, "f:")
		values, isObject := object.(map[string]any)
		if !isField {
			if list, ok := object.([]any); ok && len(list) > 0 && key != "." {
				return at
			}
			continue
		}
		value, has := values[name]
		if !isObject || !has {
			continue
		}
		below, _ := set[key].(map[string]any)
		path := at + "." + name
		if len(below) == 0 {
			return path
		}
		if found := overlappingField(below, value, path); found != "" {
			return found
		}
	}
	return ""
}

// contendedCondition names the objects of a work that others change each time they were repaired;
// the work is locked.
func (w *work) contendedCondition(seen objectReader) (metav1.Condition, bool) {
	var all []string
	for i := range w.outcomes {
		if o := &w.outcomes[i]; o.object != nil {
			if by := seen.ContendedBy(*o.object); by != "" {
				all = append(all, fmt.Sprintf("%s: %s", o.object, by))
			}
		}
	}
	if len(all) == 0 {
		return metav1.Condition{}, false
	}
	return metav1.Condition{
		Type: conditionContended, Status: metav1.ConditionTrue, Reason: "RepairedEachTime",
		Message: manifest.Printable(joinFirst(all) + "; repairs are slowed down"),
	}, true
}
