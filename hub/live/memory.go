// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"

	"github.com/spokelet/spokelet/internal/quota"
)

// memoryReservation is what one answer takes of memory, from the first byte that is read until
// the last is written: on the account of its caller, and on that of the cluster,
// which chooses how much there is to read. A catalog, which is read for all callers,
// is on the cluster's alone. An account that is nil has no bounds.
type memoryReservation struct{ callerAccount, clusterAccount *quota.Account }

// grow takes n more bytes, or none and an error that wraps errMemory.
func (h memoryReservation) grow(n int64) error {
	if err := h.callerAccount.Grow(n); err != nil {
		return fmt.Errorf("%w: %w", errMemory, err)
	}
	if err := h.clusterAccount.Grow(n); err != nil {
		h.callerAccount.Shrink(n)
		return fmt.Errorf("%w: %w", errMemory, err)
	}
	return nil
}

// shrink gives n bytes back.
func (h memoryReservation) shrink(n int64) {
	h.callerAccount.Shrink(n)
	h.clusterAccount.Shrink(n)
}

// close gives everything back.
func (h memoryReservation) close() {
	h.callerAccount.Close()
	h.clusterAccount.Close()
}
