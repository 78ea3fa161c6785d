// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import "io"

// bounded reads at most left bytes and then fails with errTooLarge, unlike
// io.LimitReader, whose end looks like that of the source.
type bounded struct {
	io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	return n, err
}
