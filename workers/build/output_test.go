// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestMessageCleansOutput(t *testing.T) {
	cases := map[string]struct{ reason, said, want string }{
		"an error":                       {"it is workerd's, without the name that the bundle gives", "service w0: Uncaught Error: x\n  at index.js:1:7\n", "Uncaught Error: x\n  at index.js:1:7"},
		"words before it":                {"they are the script's", "hello\nservice w0: Uncaught Error: x\n", "Uncaught Error: x"},
		"an error that lies":             {"the last one is workerd's", "service w9: fine\nservice w0: Uncaught Error: x\n", "Uncaught Error: x"},
		"an error, and what comes of it": {"a script that fails listens to nothing", "service w0: Uncaught Error: x\n  at f (w0:1:7)\n  at w0:2:1\nservice w0: No event handlers were registered. This script does nothing.\n", "Uncaught Error: x\n  at f (script:1:7)\n  at script:2:1\nNo event handlers were registered. This script does nothing."},
		"no listener":                    {"there is no other error", "hello\nservice w0: No event handlers were registered. This script does nothing.\n", "No event handlers were registered. This script does nothing."},
		"a crash":                        {"addresses are others each time", "[12:0x3202] 5 ms: x\n<--- Last few GCs --->\nfatal: out of memory\n*** Received signal #6: Aborted\nstack: /x@0x1 /y@0x2\n", "fatal: out of memory"},
		"a full heap":                    {"V8 notices it in another place each time", "x.c++:44: fatal: V8 fatal error; location = CALL_AND_RETRY_LAST; message = : allocation failed: JavaScript heap out of memory\n", "x.c++:44: fatal: V8 fatal error; out of memory"},
		"a full heap, somewhere else":    {"it is the same cause", "x.c++:44: fatal: V8 fatal error; location = MarkingWorklist; message = process out of memory: a list\n", "x.c++:44: fatal: V8 fatal error; out of memory"},
		"colours":                        {"they are for a terminal", "\x1b[31;1mred\x1b[0m \x1b]0;title\x07x", "red 0;titlex"},
		"an escape at the end":           {"as colours", "x\x1b", "x"},
		"no text":                        {"a condition is text", "a\xff\xfe\x00b\x7f\u202ec\td", "abc d"},
		"a folder":                       {"its name is another each time", "/tmp/work/probe-0.capnp:3: error: x", "probe-0.capnp:3: error: x"},
		"nothing":                        {"there may be nothing", "\n\n", ""},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			var said outputTail
			said.Write([]byte(test.said))
			if got := said.message("/tmp/work"); got != test.want {
				t.Errorf("%s\n%q, not %q", test.reason, got, test.want)
			}
		})
	}
}

func TestOutputTailKeepsEnd(t *testing.T) {
	var said outputTail
	for range 1000 {
		said.Write([]byte(strings.Repeat("x", 999) + "\n"))
	}
	said.Write([]byte(strings.Repeat("y", 2*maxOutput) + "\nservice w0: end"))
	if got := said.message(); got != "end" || len(said.buffer) > maxOutput {
		t.Errorf("%q of %d bytes", got, len(said.buffer))
	}
}

func FuzzMessageIsValidConditionText(f *testing.F) {
	f.Add([]byte("service w0: \x1b[31mx\xff\n at /tmp/work/x"))
	f.Add([]byte("\x1b\x1b[[\u202e"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var said outputTail
		said.Write(text)
		got := said.message("/tmp/work")
		if !utf8.ValidString(got) || len(got) > maxMessage || strings.ContainsAny(got, "\x1b\x00\r") {
			t.Errorf("%q", got)
		}
	})
}
