// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package secretstore

import (
	"bytes"
	"compress/gzip"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"math"
)

const (
	// maxSegment is the size of a segment before compression that a batch does not exceed,
	// unless it has one record only.
	maxSegment = 512 << 10
	// maxStored is the size after compression: a Secret may have 1 MiB.
	maxStored = 1<<20 - 64<<10
	// maxKey and maxContent bound a key, and the content of a segment before compression.
	maxKey     = 4 << 10
	maxContent = 8 << 20
	// entryOverhead is counted for each record beside its bytes, so that maxSegment bounds
	// the number of records, too.
	entryOverhead = 64
)

// ErrTooLarge is returned for a record that does not fit into a Secret.
var ErrTooLarge = errors.New("too large to be stored")

var errFormat = errors.New("not a segment of the store")

// content is what a segment's Secret contains, as gob, compressed with gzip.
type content struct {
	Sequence uint64
	Entries  []entry
}

// entry is a version of a record.
type entry struct {
	Key   string
	Value []byte
	// Deleted: it is a tombstone, without a value.
	Deleted bool
}

func entrySize(key string, value []byte) int { return entryOverhead + len(key) + len(value) }

// validateSize returns ErrTooLarge for a record that can never be written. Whether a large
// value can depends on how well it is compressed.
func validateSize(key string, value []byte) error {
	size := entrySize(key, value)
	if len(key) > maxKey || size > maxContent-entryOverhead {
		return fmt.Errorf("record %.100q of %d bytes: %w", key, len(value), ErrTooLarge)
	}
	if size <= maxSegment {
		return nil
	}
	if n := len(encode(newZip(), content{Sequence: math.MaxUint64, Entries: []entry{{Key: key, Value: value}}})); n > maxStored {
		return fmt.Errorf("record %.100q of %d bytes, %d after compression: %w", key, len(value), n, ErrTooLarge)
	}
	return nil
}

// newZip returns a compressor. The fastest level takes a fourth of the default's time, and a
// sixth more room.
func newZip() *gzip.Writer {
	zip, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		return gzip.NewWriter(nil) // the level exists
	}
	return zip
}

// encode never fails: a buffer takes everything, and gob knows the type.
func encode(zip *gzip.Writer, c content) []byte {
	var out bytes.Buffer
	zip.Reset(&out)
	_ = gob.NewEncoder(zip).Encode(c)
	_ = zip.Close()
	return out.Bytes()
}

// decode reads no more than maxContent bytes, whatever it is given.
func decode(stored []byte) (content, error) {
	zip, err := gzip.NewReader(bytes.NewReader(stored))
	if err != nil {
		return content{}, fmt.Errorf("%w: %w", errFormat, err)
	}
	decoder := gob.NewDecoder(io.LimitReader(zip, maxContent))
	var c content
	if err := decoder.Decode(&c); err != nil {
		return content{}, fmt.Errorf("%w: %w", errFormat, err)
	}
	// The end of the content comes with its checksum.
	if err := decoder.Decode(&content{}); !errors.Is(err, io.EOF) {
		return content{}, fmt.Errorf("%w: more than one content: %w", errFormat, err)
	}
	return c, nil
}
