// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// tellTimeout is how long the last line of a log that was cut may take to go
// out: its reader may have stopped.
const tellTimeout = time.Second

// logWriter sends a log to its reader.
type logWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController

	passed int64
	within bool // the last byte did not end a line
}

// Write sends a piece of the log at once.
func (l *logWriter) Write(piece []byte) (int, error) {
	n, err := l.w.Write(piece)
	if err == nil {
		l.passed += int64(n)
		l.within = piece[len(piece)-1] != '\n'
		err = l.control.Flush()
	}
	return n, err
}

// maxReason bounds what is told of why a log ends, in bytes.
const maxReason = 1 << 10

// writeReason writes a line that says why a log ends early. limit is the most
// bytes that the reader asked for, 0 for any number: a line for which they leave
// no room is not written.
func (l *logWriter) writeReason(reason error, limit int64) {
	line := fmt.Sprintf("spokelet: the log ends here: %.*s\n", maxReason, strings.ReplaceAll(reason.Error(), "\n", " "))
	if l.within {
		line = "\n" + line
	}
	if limit > 0 && l.passed+int64(len(line)) > limit {
		return
	}
	if l.control.SetWriteDeadline(time.Now().Add(tellTimeout)) == nil {
		_, _ = l.Write([]byte(line)) // a reader that does not take it is not told
	}
}
