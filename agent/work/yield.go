// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// yieldedAnnotation names, on an anchor, the objects that another work wrote after
// this one, or that have ended, and the hash of what this one had written. Of works that
// disagree the last one wins, and what has ended does not begin again, also after a
// restart: neither is written again until what the work wants changes.
const yieldedAnnotation = "spokelet.io/yielded"

// maxYielded bounds the objects that are named; others may be written once more.
const maxYielded = 256

// readYielded is lenient: at worst an object is written once more.
func readYielded(u *unstructured.Unstructured) map[string]string {
	var out map[string]string
	if err := json.Unmarshal([]byte(u.GetAnnotations()[yieldedAnnotation]), &out); err != nil {
		return nil
	}
	return out
}

// yields collects what an anchor has to say of the objects of its work.
func (e *Engine) yields(w *work) map[string]string {
	var out map[string]string
	for id := range w.anchor.tracked {
		text := e.settledAs(id, w.key.String())
		if text == "" || len(out) >= maxYielded {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[id.String()] = text
	}
	return out
}

// recordYields brings the annotation up to date.
func (e *Engine) recordYields(ctx context.Context, w *work) error {
	a := w.anchor
	now := e.yields(w)
	if a.uid == "" || maps.Equal(now, a.yielded) {
		return nil
	}
	var value any
	if len(now) > 0 {
		text, err := json.Marshal(now)
		if err != nil {
			return fmt.Errorf("encode anchor: %w", err)
		}
		value = string(text)
	}
	patch := map[string]any{"metadata": map[string]any{"uid": string(a.uid), "annotations": map[string]any{yieldedAnnotation: value}}}
	if err := e.patchAnchor(ctx, w, patch); err != nil {
		return err
	}
	a.yielded = now
	return nil
}

// recallYields tells the table what an anchor says.
func (e *Engine) recallYields(w *work) {
	for id := range w.anchor.tracked {
		e.recallSettled(id, w.key.String(), w.anchor.yielded[id.String()])
	}
}
