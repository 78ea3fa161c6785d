// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// yieldedAnnotation names, on an anchor, the objects that another work wrote after
// this one, and the hash of what this one had written. Of works that disagree the
// last one wins, also after a restart: the others do not write again until what
// they want changes.
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
		content, ok := e.table.yielded(id, w.key.String())
		if !ok || len(out) >= maxYielded {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[id.String()] = hex.EncodeToString(content[:])
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
		var content [32]byte
		if n, err := hex.Decode(content[:], []byte(w.anchor.yielded[id.String()])); err == nil && n == len(content) {
			e.table.yield(id, w.key.String(), content)
		}
	}
}
