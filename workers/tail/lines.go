// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

const (
	// maxLine bounds a line of a log, its end included; longer ones are skipped. workerd
	// truncates an event at 128 KiB.
	maxLine = 256 << 10
	// lineBuffer is enough for most lines.
	lineBuffer = 16 << 10
)

// readLines calls each with the lines of r, without their ends, until reading fails: io.EOF at
// the end. A last line without an end is no line. Lines are valid until each returns.
func readLines(r io.Reader, each func(line []byte)) error {
	in := bufio.NewReaderSize(r, lineBuffer)
	var line []byte
	size := 0
	for {
		part, err := in.ReadSlice('\n')
		if size += len(part); size <= maxLine {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return err
		}
		if size <= maxLine {
			each(bytes.TrimRight(line, "\r\n"))
		}
		line, size = line[:0], 0
	}
}
