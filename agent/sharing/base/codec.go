// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// The content of a segment is gzip of
//
//	magic | sequence | entry...
//
// and each entry is
//
//	kind (1 byte) | length of key | key | length of value | value
//
// in ascending order of their keys. Sequence and lengths are unsigned varints. The kind is
// kindValue or kindTombstone; a tombstone ends after its key.
const (
	magic         = "spokelet-base-1\n"
	kindValue     = 'v'
	kindTombstone = 't'
)

const (
	// maxFold is the size of a segment, before compression, that a batch does not exceed
	// unless it is of one record.
	maxFold = 512 << 10
	// maxStored is the size after compression: a Secret may have 1 MiB.
	maxStored = 1<<20 - 64<<10
	// maxKey and maxContent bound a key, and a segment before compression.
	maxKey     = 4 << 10
	maxContent = 8 << 20
	// maxEntries bounds a segment whose records are tiny; see entryOverhead.
	maxEntries = 1 << 14
	// entryOverhead is counted for each record beside its bytes, so that maxFold bounds
	// their number, too.
	entryOverhead = 64
)

// ErrTooLarge is for a record that cannot fit into a Secret.
var ErrTooLarge = errors.New("too large to be kept")

var (
	errFormat  = errors.New("not a segment of shared state")
	errContent = errors.New("has more than a segment may have")
)

// entry is a record in a segment.
type entry struct {
	key   string
	value []byte
	// deleted makes it a tombstone, without a value.
	deleted bool
}

// entrySize is what a record counts in a segment.
func entrySize(key string, value []byte) int { return entryOverhead + len(key) + len(value) }

// fits refuses what can never be written. Whether a large value can depends on how well it
// is compressed.
func fits(key string, value []byte) error {
	size := entrySize(key, value)
	if len(key) > maxKey || size > maxContent-entryOverhead {
		return fmt.Errorf("record %.100q of %d bytes: %w", key, len(value), ErrTooLarge)
	}
	if size <= maxFold {
		return nil
	}
	if n := len(encode(newZip(), math.MaxUint64, []entry{{key: key, value: value}})); n > maxStored {
		return fmt.Errorf("record %.100q of %d bytes, %d after compression: %w", key, len(value), n, ErrTooLarge)
	}
	return nil
}

// newZip makes a compressor. The fastest takes a fourth of the usual one's time, and a
// sixth more room.
func newZip() *gzip.Writer {
	zip, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		return gzip.NewWriter(nil) // no such level; there is
	}
	return zip
}

// encode makes the content of a segment. The entries are in ascending order of their keys.
func encode(zip *gzip.Writer, sequence uint64, entries []entry) []byte {
	var out bytes.Buffer
	zip.Reset(&out)
	var head []byte
	write := func(p []byte) { _, _ = zip.Write(p) } // a buffer takes everything
	write(binary.AppendUvarint([]byte(magic), sequence))
	for _, e := range entries {
		kind := byte(kindValue)
		if e.deleted {
			kind = kindTombstone
		}
		head = binary.AppendUvarint(append(head[:0], kind), uint64(len(e.key)))
		head = append(head, e.key...)
		if e.deleted {
			write(head)
			continue
		}
		write(binary.AppendUvarint(head, uint64(len(e.value))))
		write(e.value)
	}
	_ = zip.Close()
	return out.Bytes()
}

// decode reads the content of a segment, or says why it is none. It holds no more than
// maxContent bytes, whatever it is given. The values share no memory.
func decode(content []byte) (sequence uint64, entries []entry, err error) {
	zip, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return 0, nil, fmt.Errorf("decompress: %w", err)
	}
	limit := &io.LimitedReader{R: zip, N: maxContent + 1}
	r := &reader{Reader: bufio.NewReader(limit), limit: limit}
	if sequence, err = r.header(); err != nil {
		return 0, nil, err
	}
	for {
		e, err := r.entry()
		if errors.Is(err, io.EOF) && limit.N > 0 {
			return sequence, entries, nil
		}
		if limit.N <= 0 || len(entries) == maxEntries {
			return 0, nil, errContent
		}
		if err != nil {
			return 0, nil, fmt.Errorf("entry %d: %w", len(entries), err)
		}
		if n := len(entries); n > 0 && e.key <= entries[n-1].key {
			return 0, nil, fmt.Errorf("entry %d: out of order: %w", n, errFormat)
		}
		entries = append(entries, e)
	}
}

// reader reads the parts of a segment.
type reader struct {
	*bufio.Reader

	limit *io.LimitedReader
}

func (r *reader) header() (sequence uint64, err error) {
	found := make([]byte, len(magic))
	if _, err := io.ReadFull(r, found); err != nil || string(found) != magic {
		return 0, errors.Join(errFormat, err)
	}
	if sequence, err = binary.ReadUvarint(r); err != nil {
		return 0, fmt.Errorf("sequence: %w", err)
	}
	return sequence, nil
}

// entry returns io.EOF, and only then, if there is none any more.
func (r *reader) entry() (entry, error) {
	kind, err := r.ReadByte()
	if err != nil {
		return entry{}, err
	}
	if kind != kindValue && kind != kindTombstone {
		return entry{}, errFormat
	}
	key, err := r.bytes(maxKey)
	if err != nil {
		return entry{}, fmt.Errorf("key: %w", err)
	}
	e := entry{key: string(key), deleted: kind == kindTombstone}
	if e.deleted {
		return e, nil
	}
	if e.value, err = r.bytes(maxContent); err != nil {
		return entry{}, fmt.Errorf("value: %w", err)
	}
	return e, nil
}

// bytes reads a length, and as many bytes. Memory is taken only for what may still come.
func (r *reader) bytes(most int) ([]byte, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, noEOF(err)
	}
	if left := int64(r.Buffered()) + r.limit.N; n > uint64(most) || n > uint64(left) { //nolint:gosec // neither is negative
		return nil, errContent
	}
	out := make([]byte, n)
	if _, err := io.ReadFull(r, out); err != nil {
		return nil, noEOF(err)
	}
	return out, nil
}

// noEOF tells the end within an entry from that after one.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
