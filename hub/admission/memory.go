// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"

	"github.com/spokelet/spokelet/internal/quota"
)

const (
	// maxBodyBytes is more than the API server sends: 3 MiB of a request and 1.5 MiB
	// of what is stored, unless they consist of characters that JSON escapes.
	maxBodyBytes = 8 << 20
	// maxReviewMemory and maxHostMemory are what is held of reviews at once, of all hosts and
	// of one: bodies and what is decoded of them. The largest body has its place in
	// a host's part, so that one host never keeps all others out.
	maxReviewMemory = 32 << 20
	maxHostMemory   = 16 << 20
	// largeBodyBytes is what takes milliseconds to decode. One such review is decoded at a
	// time: anybody may send them, and other work needs a processor, too.
	largeBodyBytes = 256 << 10
	// reviewOverhead is what is taken for each review beside its body, and half of that.
	reviewOverhead = 64 << 10
)

// memoryReservation is what one review may hold. What is decoded is paid out of what was taken
// for the review as a whole, before its body was read: who waits for memory holds
// none, so that no two reviews wait for each other.
type memoryReservation struct {
	account   *quota.Account
	remaining int64 // taken and not spent
}

// reserveMemory takes what a review with a body of so many bytes holds as a rule. It waits
// for it until ctx ends. The caller closes the account.
func reserveMemory(ctx context.Context, account *quota.Account, body int64) (*memoryReservation, error) {
	if err := account.Await(ctx, body+body/2+reviewOverhead); err != nil {
		return nil, err
	}
	return &memoryReservation{account: account, remaining: body/2 + reviewOverhead}, nil
}

// spend spends n bytes. Beyond what was taken it does not wait.
func (m *memoryReservation) spend(n int64) error {
	if m == nil {
		return nil
	}
	if m.remaining -= n; m.remaining >= 0 {
		return nil
	}
	if err := m.account.Grow(-m.remaining); err != nil {
		return fmt.Errorf("review: %w", err)
	}
	m.remaining = 0
	return nil
}
