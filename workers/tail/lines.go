// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/spokelet/spokelet/internal/quota"
)

const (
	// maxLine bounds a line of a log, its end included; longer ones are skipped. workerd
	// truncates an event at 128 KiB.
	maxLine = 256 << 10
	// lineBuffer is enough for most lines, and kept for each log. Longer lines are on the
	// account of the cluster.
	lineBuffer = 4 << 10
	// lineCost is what a byte of a line takes until it was read: its buffer doubles, and the
	// smaller one is there while it is copied.
	lineCost = 3
	// eventCost is how often the text of an event is copied until it is one.
	eventCost = 8
)

// lineReader reads the events in a log.
type lineReader struct {
	account *quota.Account
	onEvent func(line []byte)
	// onDropped is called for an event that there was no memory for.
	onDropped func()
}

// read calls each with the events among the lines of r, without their ends, until reading
// fails: io.EOF at the end. A last line without an end is no line. Lines are valid until each
// returns.
func (l *lineReader) read(r io.Reader) error {
	in := bufio.NewReaderSize(r, lineBuffer)
	var line []byte
	begins, wanted := true, false
	for {
		part, err := in.ReadSlice('\n')
		goesOn := errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !goesOn {
			return err
		}
		if begins {
			wanted = part[0] == separator
		}
		if wanted {
			line, wanted = l.add(line, part)
		}
		if begins = !goesOn; !begins {
			continue
		}
		if wanted {
			l.handleEvent(bytes.TrimRight(line, "\r\n"))
		}
		if line = line[:0]; cap(line) > lineBuffer {
			line = nil
		}
		l.account.Shrink(maxLine * lineCost) // all that a long line took
	}
}

// add appends a part to a line. wanted is false if the line is too long, or there is no memory for
// it.
func (l *lineReader) add(line, part []byte) (longer []byte, wanted bool) {
	size := len(line) + len(part)
	if size > maxLine {
		return nil, false
	}
	if size > lineBuffer && l.account.Grow(int64(len(part))*lineCost) != nil {
		l.onDropped()
		return nil, false
	}
	return append(line, part...), true
}

// handleEvent passes on a line if there is memory to decode it.
func (l *lineReader) handleEvent(line []byte) {
	cost := int64(len(line))*eventCost + quota.DecodedJSON(line)
	if l.account.Grow(cost) != nil {
		l.onDropped()
		return
	}
	defer l.account.Shrink(cost)
	l.onEvent(line)
}
