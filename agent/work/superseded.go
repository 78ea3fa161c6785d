// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"maps"

	"github.com/spokelet/spokelet/agent/work/record"
)

// supersededObjects collects what an anchor has to say of the objects of its work.
func (e *Engine) supersededObjects(w *work) map[string]string {
	var out map[string]string
	for id := range w.anchor.Objects {
		text := e.inventory.SettledContent(id, w.key.String())
		if text == "" || len(out) >= record.MaxSuperseded {
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
	if a.UID == "" || maps.Equal(now, a.Superseded) {
		return nil
	}
	return e.store(w.policy).SetSuperseded(ctx, w.recordKey(), a, now)
}

// loadSuperseded tells the table what an anchor says.
func (e *Engine) loadSuperseded(w *work) {
	for id := range w.anchor.Objects {
		e.inventory.RestoreSettled(id, w.key.String(), w.anchor.Superseded[id.String()])
	}
}
