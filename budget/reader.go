// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"bytes"
	"errors"
	"io"
)

// firstRead is the size of the buffer that ReadAll begins with.
const firstRead = 4 << 10

// ReadAll is io.ReadAll on an account: the buffer is paid for before it grows, and
// what was paid stays on the account, which the caller closes when the bytes are of
// no more use. Errors are those of r, or wrap ErrExhausted.
func (a *Account) ReadAll(r io.Reader) ([]byte, error) {
	var out bytes.Buffer
	for size := int64(firstRead); ; size *= 2 {
		// Old and new buffer exist side by side while one is copied into the other.
		if err := a.Grow(size); err != nil {
			return nil, err
		}
		out.Grow(int(size) - out.Len())
		_, err := io.CopyN(&out, r, size-int64(out.Len()))
		if errors.Is(err, io.EOF) {
			return out.Bytes(), nil
		}
		if err != nil {
			return nil, err
		}
		a.Shrink(size / 2)
	}
}
