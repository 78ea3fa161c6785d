// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"

	"github.com/spokelet/spokelet/internal/quota"
)

const (
	// maxBody is more than the API server sends: 3 MiB of a request and 1.5 MiB
	// of what is stored, unless they consist of characters that JSON escapes.
	maxBody = 8 << 20
	// reviews and hostReviews are what is held of reviews at once, of all hosts and
	// of one: bodies and what is decoded of them. The largest body has its place in
	// a host's part, so that one host never keeps all others out.
	reviews     = 32 << 20
	hostReviews = 16 << 20
	// largeBody is what takes milliseconds to decode. One such review is decoded at a
	// time: anybody may send them, and other work needs a processor, too.
	largeBody = 256 << 10
	// headroom is what is taken for each review beside its body, and half of that.
	headroom = 64 << 10
)

// memory is what one review may hold. What is decoded is paid out of what was taken
// for the review as a whole, before its body was read: who waits for memory holds
// none, so that no two reviews wait for each other.
type memory struct {
	account *quota.Account
	left    int64 // taken and not spent
}

// newMemory takes what a review with a body of so many bytes holds as a rule. It waits
// for it until ctx ends. The caller closes the account.
func newMemory(ctx context.Context, account *quota.Account, body int64) (*memory, error) {
	if err := account.Await(ctx, body+body/2+headroom); err != nil {
		return nil, err
	}
	return &memory{account: account, left: body/2 + headroom}, nil
}

// take spends n bytes. Beyond what was taken it does not wait.
func (m *memory) take(n int64) error {
	if m == nil {
		return nil
	}
	if m.left -= n; m.left >= 0 {
		return nil
	}
	if err := m.account.Grow(-m.left); err != nil {
		return fmt.Errorf("review: %w", err)
	}
	m.left = 0
	return nil
}
