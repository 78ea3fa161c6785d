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
)

const (
	// maxTranscript is how much of the end of an output is kept.
	maxTranscript = 16 << 10
	// maxMessage is how long a message about a script is at most.
	maxMessage = 1 << 10
)

// noHandlers is what workerd says of a script in the format of service workers that listens to
// no event.
const noHandlers = "No event handlers were registered. This script does nothing."

// transcript keeps the end of what a process writes.
type transcript struct {
	mu  sync.Mutex
	end []byte // guarded by mu
}

// Write implements io.Writer.
func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, p[max(0, len(p)-maxTranscript):]...)
	if extra := len(t.end) - maxTranscript; extra > 0 {
		t.end = append(t.end[:0], t.end[extra:]...)
	}
	return len(p), nil
}

// escape is a sequence that a terminal obeys.
var escape = regexp.MustCompile("\x1b(\\[[0-?]*[\\x20-\\x2f]*[\\x40-\\x7e]|[^\\[])?")

// passingLine is a line with addresses and numbers of processes, which are others each time.
var passingLine = regexp.MustCompile(`^(stack: |\*\*\* Received signal|<--- |\[\d+:0x|\d+ external/|Unable to find and open the program executable)`)

// outOfMemory is what V8 says of a heap that is full, with where it noticed it, which is another
// place each time.
var outOfMemory = regexp.MustCompile(`(V8 fatal error; )location = .*(out of memory).*`)

// clean returns what the process says about the script, for a condition: as text, without
// the folders, and the same for the same cause. What the script itself has written before is
// left out if workerd says something of its service.
func (t *transcript) clean(folders ...string) string {
	t.mu.Lock()
	text := string(bytes.ToValidUTF8(t.end, nil))
	t.mu.Unlock()
	text = outOfMemory.ReplaceAllString(escape.ReplaceAllString(text, ""), "${1}${2}")
	for _, folder := range folders {
		text = strings.ReplaceAll(text, folder+"/", "")
	}
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimRightFunc(printable(line), unicode.IsSpace)
		if line != "" && !passingLine.MatchString(line) {
			lines = append(lines, line)
		}
	}
	return shorten(strings.Join(ofService(lines), "\n"), maxMessage)
}

// ofService returns the lines from the last one that is about the service, without the name of
// the service: it is the script's place in the bundle, which may change. A stack names a script
// in the format of service workers by it.
func ofService(lines []string) []string {
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

func printable(line string) string {
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
