// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// tellTimeout is how long the last line of a log that was cut may take to go
// out: its reader may have stopped.
const tellTimeout = time.Second

// errReader says that it was the reader of a log that failed, not the log.
var errReader = errors.New("reader of the log is gone")

// logReader is who reads a log.
type logReader struct {
	w       http.ResponseWriter
	control *http.ResponseController

	passed int64
	within bool // the last byte did not end a line
}

// pass gives the reader a piece at once. Errors wrap errReader.
func (l *logReader) pass(piece []byte) error {
	if _, err := l.w.Write(piece); err != nil {
		return fmt.Errorf("%w: %w", errReader, err)
	}
	l.passed += int64(len(piece))
	l.within = piece[len(piece)-1] != '\n'
	return l.flush()
}

func (l *logReader) flush() error {
	if err := l.control.Flush(); err != nil {
		return fmt.Errorf("%w: %w", errReader, err)
	}
	return nil
}

// maxReason bounds what is told of why a log ends, in bytes.
const maxReason = 1 << 10

// tell says in a line of its own why a log ends before its end. limit is the most
// bytes that the reader asked for, 0 for any number: a line for which they leave
// no room is not written.
func (l *logReader) tell(reason error, limit int64) {
	line := fmt.Sprintf("spokelet: the log ends here: %.*s\n", maxReason, strings.ReplaceAll(reason.Error(), "\n", " "))
	if l.within {
		line = "\n" + line
	}
	if limit > 0 && l.passed+int64(len(line)) > limit {
		return
	}
	if l.control.SetWriteDeadline(time.Now().Add(tellTimeout)) == nil {
		_ = l.pass([]byte(line)) // a reader that does not take it is not told
	}
}
