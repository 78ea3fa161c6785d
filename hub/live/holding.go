// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"

	"github.com/spokelet/spokelet/internal/quota"
)

// holding is what one answer takes of memory, from the first byte that is read until
// the last is written: on the account of its caller, and on that of the cluster,
// which chooses how much there is to read. A catalog, which is read for all callers,
// is on the cluster's alone. An account that is nil has no bounds.
type holding struct{ caller, cluster *quota.Account }

// grow takes n more bytes, or none and an error that wraps errHeld.
func (h holding) grow(n int64) error {
	if err := h.caller.Grow(n); err != nil {
		return fmt.Errorf("%w: %w", errHeld, err)
	}
	if err := h.cluster.Grow(n); err != nil {
		h.caller.Shrink(n)
		return fmt.Errorf("%w: %w", errHeld, err)
	}
	return nil
}

// shrink gives n bytes back.
func (h holding) shrink(n int64) {
	h.caller.Shrink(n)
	h.cluster.Shrink(n)
}

// close gives everything back.
func (h holding) close() {
	h.caller.Close()
	h.cluster.Close()
}
