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
)

// conditionContended is on a work of which an object is changed again each time it was
// repaired; it is ours.
const conditionContended = "Contended"

// noteContention finds out who changes an object that does not stay repaired. The read is
// one of a repair that waits for up to a minute.
func (e *Engine) noteContention(ctx context.Context, s *step, now time.Time) {
	if !e.table.damped(s.at.objectID, now) {
		return
	}
	text := "it is changed each time"
	if live, err := e.spoke.get(ctx, s.at); err == nil {
		if obj, err := decodeObject(s.raw); err == nil {
			text = contention(live.ManagedFields, obj)
		}
	}
	e.table.contend(s.at.objectID, text)
}

// contention names a field of a manifest that somebody else has written, and who.
func contention(fields []metav1.ManagedFieldsEntry, manifest map[string]any) string {
	fields = slices.DeleteFunc(slices.Clone(fields), func(f metav1.ManagedFieldsEntry) bool {
		return f.Subresource == "status" || strings.HasPrefix(f.Manager, FieldManager) || f.FieldsV1 == nil
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
		if at := overlap(set, manifest, ""); at != "" {
			return fmt.Sprintf("%s is also written by %q", strings.TrimPrefix(at, "."), f.Manager)
		}
	}
	return "somebody changes it each time"
}

// overlap is the path of the first value that a set of managed fields and an object both
// have, empty for none. In lists of items with keys it names the list.
func overlap(set map[string]any, object any, at string) string {
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
		if found := overlap(below, value, path); found != "" {
			return found
		}
	}
	return ""
}

// damped tells whether repairs of an object are slowed down.
func (t *table) damped(id objectID, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	return ok && o.pace.spent > freeRepairs && now.Sub(o.pace.last) <= repairWindow
}

// contend records who changes an object that does not stay repaired.
func (t *table) contend(id objectID, by string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o, ok := t.objects[id]; ok && o.contended != by {
		o.contended = by
		t.tell(o)
	}
}

// contended says who changes an object, empty once it has stayed repaired for a while.
func (t *table) contended(id objectID) string {
	by, _ := t.contention(id, time.Now())
	return by
}

// contention says so, and how long it is said at most if the object stays repaired.
func (t *table) contention(id objectID, now time.Time) (by string, left time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok || o.contended == "" {
		return "", 0
	}
	if left = o.pace.last.Add(repairWindow).Sub(now); left <= 0 {
		o.contended = ""
		return "", 0
	}
	return o.contended, left
}

// contended names the objects of a work that others change each time they were repaired;
// the work is locked.
func (w *work) contended(seen objectIndex) (metav1.Condition, bool) {
	var all []string
	for i := range w.outcomes {
		if o := &w.outcomes[i]; o.at != nil {
			if by := seen.contended(*o.at); by != "" {
				all = append(all, fmt.Sprintf("%s: %s", o.at, by))
			}
		}
	}
	if len(all) == 0 {
		return metav1.Condition{}, false
	}
	return metav1.Condition{
		Type: conditionContended, Status: metav1.ConditionTrue, Reason: "RepairedEachTime",
		Message: printable(firstOf(all) + "; repairs are slowed down"),
	}, true
}
