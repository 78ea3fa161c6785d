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

// supersededAnnotation names, on an anchor, the objects that another work wrote after
// this one, or that have ended, and the hash of what this one had written. Of works that
// disagree the last one wins, and what has ended does not begin again, also after a
// restart: neither is written again until what the work wants changes.
const supersededAnnotation = "spokelet.io/yielded"

// maxSuperseded bounds the objects that are named; others may be written once more.
const maxSuperseded = 256

// decodeSuperseded is lenient: at worst an object is written once more.
func decodeSuperseded(u *unstructured.Unstructured) map[string]string {
	var out map[string]string
	if err := json.Unmarshal([]byte(u.GetAnnotations()[supersededAnnotation]), &out); err != nil {
		return nil
	}
	return out
}

// supersededObjects collects what an anchor has to say of the objects of its work.
func (e *Engine) supersededObjects(w *work) map[string]string {
	var out map[string]string
	for id := range w.anchor.tracked {
		text := e.inventory.SettledContent(id, w.key.String())
		if text == "" || len(out) >= maxSuperseded {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[id.String()] = text
	}
	return out
}

// recordSuperseded brings the annotation up to date.
func (e *Engine) recordSuperseded(ctx context.Context, w *work) error {
	a := w.anchor
	now := e.supersededObjects(w)
	if a.uid == "" || maps.Equal(now, a.superseded) {
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
	patch := map[string]any{"metadata": map[string]any{"uid": string(a.uid), "annotations": map[string]any{supersededAnnotation: value}}}
	if err := e.patchAnchor(ctx, w, patch); err != nil {
		return err
	}
	a.superseded = now
	return nil
}

// loadSuperseded tells the table what an anchor says.
func (e *Engine) loadSuperseded(w *work) {
	for id := range w.anchor.tracked {
		e.inventory.RestoreSettled(id, w.key.String(), w.anchor.superseded[id.String()])
	}
}
