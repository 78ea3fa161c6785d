// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/spokelet/spokelet/workers/truncate"
)

const (
	// maxOutput is how much of the end of an output is kept.
	maxOutput = 16 << 10
	// maxMessage is how long a message about a script is at most.
	maxMessage = 1 << 10
)

// noHandlers is the message of workerd about a service worker script without event listeners.
const noHandlers = "No event handlers were registered. This script does nothing."

// outputTail keeps the end of the output of a process.
type outputTail struct {
	mu     sync.Mutex
	buffer []byte // guarded by mu
}

func (t *outputTail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buffer = append(t.buffer, p[max(0, len(p)-maxOutput):]...)
	if extra := len(t.buffer) - maxOutput; extra > 0 {
		t.buffer = append(t.buffer[:0], t.buffer[extra:]...)
	}
	return len(p), nil
}

// escapeSequence matches terminal escape sequences.
var escapeSequence = regexp.MustCompile("\x1b(\\[[0-?]*[\\x20-\\x2f]*[\\x40-\\x7e]|[^\\[])?")

// volatileLine matches lines with addresses and process ids, which differ each time.
var volatileLine = regexp.MustCompile(`^(stack: |\*\*\* Received signal|<--- |\[\d+:0x|\d+ external/|Unable to find and open the program executable)`)

// outOfMemory matches the error of V8 for a full heap, whose location differs each time.
var outOfMemory = regexp.MustCompile(`(V8 fatal error; )location = .*(out of memory).*`)

// message returns the output about the script for a condition: printable, without the folders,
// and the same for the same cause. If workerd reports an error of its service, output of the script
// before it is left out.
func (t *outputTail) message(folders ...string) string {
	t.mu.Lock()
	text := string(bytes.ToValidUTF8(t.buffer, nil))
	t.mu.Unlock()
	text = outOfMemory.ReplaceAllString(escapeSequence.ReplaceAllString(text, ""), "${1}${2}")
	for _, folder := range folders {
		text = strings.ReplaceAll(text, folder+"/", "")
	}
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimRightFunc(toPrintable(line), unicode.IsSpace)
		if line != "" && !volatileLine.MatchString(line) {
			lines = append(lines, line)
		}
	}
	return truncate.Text(strings.Join(serviceLines(lines), "\n"), maxMessage)
}

// serviceLines returns the lines from the last one that is about the service, without the name of
// the service: it is the script's place in the bundle, which may change. A stack names a script
// in the format of service workers by it.
func serviceLines(lines []string) []string {
	first := 0
	for i, line := range slices.Backward(lines) {
		service, said, is := strings.Cut(line, ": ")
		name, of := strings.CutPrefix(service, "service ")
		if !is || !of {
			continue
		}
		lines[i], first = said, i
		// Of a service worker that fails, workerd says this after the error.
		if said == noHandlers {
			continue
		}
		place := strings.NewReplacer("at "+name+":", "at script:", "("+name+":", "(script:")
		for j := i + 1; j < len(lines); j++ {
			lines[j] = place.Replace(lines[j])
		}
		break
	}
	return lines[first:]
}

func toPrintable(line string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return ' '
		}
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, line)
}
