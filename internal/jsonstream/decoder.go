// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package jsonstream

import (
	"encoding/json"
	"io"
)

// NewDecoder returns a decoder of what a peer writes. Before each read hold is told how many
// bytes there are of a value, or of space before it, whose end was not read yet; an error of
// hold is that of the decoder. In memory the decoder has up to three times as many: its buffer
// doubles, and the smaller one is there while it is copied.
func NewDecoder(from io.Reader, hold func(pending int64) error) *json.Decoder {
	r := &reader{from: from, hold: hold}
	r.dec = json.NewDecoder(r)
	return r.dec
}

type reader struct {
	from io.Reader
	hold func(pending int64) error
	dec  *json.Decoder
	read int64
}

func (r *reader) Read(b []byte) (int, error) {
	if err := r.hold(r.read - r.dec.InputOffset()); err != nil {
		return 0, err
	}
	n, err := r.from.Read(b)
	r.read += int64(n)
	return n, err
}
