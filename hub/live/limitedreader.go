// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import "io"

// limitedReader reads at most left bytes and then fails with errTooLarge, unlike
// io.LimitReader, whose end looks like that of the source.
type limitedReader struct {
	io.ReadCloser
	remaining int64
}

func (b *limitedReader) Read(p []byte) (int, error) {
	if b.remaining <= 0 {
		return 0, errTooLarge
	}
	if int64(len(p)) > b.remaining {
		p = p[:b.remaining]
	}
	n, err := b.ReadCloser.Read(p)
	b.remaining -= int64(n)
	return n, err
}
