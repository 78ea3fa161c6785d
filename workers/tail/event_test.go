// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/spokelet/spokelet/internal/quota"
)

// recorded is a line as workerd's tail worker writes it.
const recorded = "\x1e" + `{"script":"hello","event":{"outcome":"exception","scriptName":null,"exceptions":[{"name":"TypeError","message":"<no>","timestamp":1,"stack":"at x"}],` +
	`"logs":[{"message":["hello",{"a":1}],"level":"log","timestamp":1795834959695}],"eventTimestamp":1795834959695,"truncated":false,` +
	`"event":{"request":{"url":"http://a/","method":"GET","headers":{"x-a":"b"},"cf":{"clientIp":"[::ffff:192.0.2.1]:55360"}},"response":{"status":200}}}}`

func TestParseLineReadsEvents(t *testing.T) {
	e, ok := parseLine([]byte(recorded))
	if !ok {
		t.Fatal("it is none")
	}
	want := Event{
		Script: "hello", Outcome: "exception", Method: "GET", Headers: map[string]string{"x-a": "b"}, ClientIP: netip.MustParseAddr("192.0.2.1"),
		Texts: []string{"hello", `{"a":1}`, "TypeError: <no>"},
		JSON: []byte(`{"event":{"request":{"url":"http://a/","method":"GET","headers":{"x-a":"b"},"cf":{"clientIp":"[::ffff:192.0.2.1]:55360"}},"response":{"status":200}},` +
			`"eventTimestamp":1795834959695,"exceptions":[{"name":"TypeError","message":"<no>","timestamp":1,"stack":"at x"}],` +
			`"logs":[{"message":["hello",{"a":1}],"level":"log","timestamp":1795834959695}],"outcome":"exception","scriptName":"hello","truncated":false}`),
	}
	if diff := cmp.Diff(want, e, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
}

func TestParseLineRejectsUnprintableEvents(t *testing.T) {
	wrap := func(event string) string { return "\x1e" + `{"script":"hello","event":` + event + `}` }
	cases := map[string]struct {
		line, want, reason string
	}{
		"empty":                   {line: "", reason: "a script printed it"},
		"text":                    {line: "hello", reason: "as above"},
		"JSON without RS":         {line: recorded[1:], reason: "as above"},
		"RS alone":                {line: "\x1e", reason: "there is no event"},
		"no JSON":                 {line: "\x1e{", reason: "it was cut"},
		"no script":               {line: "\x1e" + `{"event":{}}`, reason: "it is nobody's"},
		"no event":                {line: "\x1e" + `{"script":"hello"}`, reason: "there is none"},
		"null":                    {line: wrap("null"), reason: "as above"},
		"a list":                  {line: wrap("[]"), reason: "an event is an object"},
		"the least":               {line: wrap("{}"), want: `{"exceptions":[],"logs":[],"scriptName":"hello"}`, reason: "wrangler reads the lengths of both lists"},
		"lists of null":           {line: wrap(`{"logs":null,"exceptions":null}`), want: `{"exceptions":[],"logs":[],"scriptName":"hello"}`, reason: "as above"},
		"logs of another form":    {line: wrap(`{"logs":{}}`), reason: "wrangler would end"},
		"null as a log":           {line: wrap(`{"logs":[null]}`), reason: "as above"},
		"a message of text":       {line: wrap(`{"logs":[{"message":"x"}]}`), reason: "as above: it maps messages"},
		"exceptions of text":      {line: wrap(`{"exceptions":"x"}`), reason: "as above"},
		"null as an exception":    {line: wrap(`{"exceptions":[null]}`), reason: "as above"},
		"a stack of another form": {line: wrap(`{"exceptions":[{"stack":1}]}`), reason: "as above"},
		"a request of null":       {line: wrap(`{"event":{"request":null}}`), reason: "as above: it reads the method"},
		"a request of text":       {line: wrap(`{"event":{"request":"x"}}`), reason: "as above"},
		"an event of text":        {line: wrap(`{"event":"x"}`), reason: "as above"},
		"an outcome of 1":         {line: wrap(`{"outcome":1}`), reason: "it is no outcome"},
		"a schedule": {
			line: wrap(`{"event":{"cron":"* * * * *"}}`), want: `{"event":{"cron":"* * * * *"},"exceptions":[],"logs":[],"scriptName":"hello"}`,
			reason: "not all calls are requests",
		},
		"another name": {
			line: wrap(`{"scriptName":"other"}`), want: `{"exceptions":[],"logs":[],"scriptName":"hello"}`, reason: "the script is the one of the tail worker's",
		},
		"no UTF-8": {
			line: wrap("{\"a\":\"\xff\"}"), want: `{"a":"` + "\uFFFD" + `","exceptions":[],"logs":[],"scriptName":"hello"}`, reason: "a text frame has to be",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e, ok := parseLine([]byte(tc.line))
			if ok != (tc.want != "") {
				t.Fatalf("%s: it is an event: %t", tc.reason, ok)
			}
			if diff := cmp.Diff(tc.want, string(e.JSON)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestClientIPIsParsed(t *testing.T) {
	cases := map[string]struct {
		cf, want string
	}{
		"IPv4 in IPv6":  {cf: `{"clientIp":"[::ffff:127.0.0.1]:55360"}`, want: "127.0.0.1"},
		"IPv4 and port": {cf: `{"clientIp":"127.0.0.1:1"}`, want: "127.0.0.1"},
		"IPv6":          {cf: `{"clientIp":"2001:db8::1"}`, want: "2001:db8::1"},
		"a socket":      {cf: `{"clientIp":"unix:/x"}`, want: "invalid IP"},
		"no object":     {cf: `1`, want: "invalid IP"},
		"nothing":       {cf: ``, want: "invalid IP"},
	}
	for name, tc := range cases {
		if got := clientIP(json.RawMessage(tc.cf)).String(); got != tc.want {
			t.Errorf("%s: %s and not %s", name, got, tc.want)
		}
	}
}

func TestNoteIsEvent(t *testing.T) {
	want := `{"outcome":"unknown","scriptName":"hello","eventTimestamp":1500,"event":null,"exceptions":[],` +
		`"logs":[{"level":"warn","timestamp":1500,"message":["spokelet: <x>"]}]}`
	if diff := cmp.Diff(want, string(newNote("hello", "<x>", time.UnixMilli(1500)))); diff != "" {
		t.Errorf("note (-want +got):\n%s", diff)
	}
}

func TestLineReaderReadsLongEvents(t *testing.T) {
	longest := "\x1e" + strings.Repeat("a", maxLine-2)
	cases := map[string]struct {
		in     string
		want   []string
		reason string
	}{
		"nothing":           {reason: "there is no line"},
		"two":               {in: "\x1ea\r\n\x1eb\n", want: []string{"\x1ea", "\x1eb"}, reason: "ends are left out"},
		"other lines":       {in: "\na\n\x1eb\n" + strings.Repeat("c", maxLine) + "\n", want: []string{"\x1eb"}, reason: "they are none of the tail's"},
		"an unfinished one": {in: "\x1ea\n\x1eb", want: []string{"\x1ea"}, reason: "what is not complete is no event"},
		"the longest":       {in: longest + "\n\x1eb\n", want: []string{longest, "\x1eb"}, reason: "it is within the bound"},
		"too long":          {in: longest + "a\n\x1eb\n", want: []string{"\x1eb"}, reason: "memory is bounded"},
		"twice too long":    {in: longest + longest + "\n\x1eb\n", want: []string{"\x1eb"}, reason: "the rest is no line either"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			l := &lineReader{onEvent: func(line []byte) { got = append(got, string(line)) }, onDropped: func() { t.Error("a line was dropped") }}
			err := l.read(strings.NewReader(tc.in))
			if err == nil || err.Error() != "EOF" {
				t.Errorf("it ends with %v", err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%.200s", tc.reason, diff)
			}
		})
	}
}

func TestEventsBeyondMemoryAreCounted(t *testing.T) {
	const most = 1 << 20
	memory := quota.NewMemory(most, most)
	cases := map[string]struct {
		line   string
		reason string
	}{
		"a long line":        {line: strings.Repeat("a", maxLine-2), reason: "its text is copied several times"},
		"a line of brackets": {line: strings.Repeat("[", 8<<10), reason: "each is a value once it is decoded"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			dropped := 0
			l := &lineReader{account: memory.Account("spoke1"), onEvent: func(line []byte) { got = append(got, string(line)) }, onDropped: func() { dropped++ }}
			if err := l.read(strings.NewReader("\x1e" + tc.line + "\n\x1eb\n")); !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			if diff := cmp.Diff([]string{"\x1eb"}, got); diff != "" || dropped != 1 {
				t.Errorf("%s: %d lines were dropped (-want +got):\n%.200s", tc.reason, dropped, diff)
			}
			if held := memory.Held(); held != 0 {
				t.Errorf("%d bytes are held after that", held)
			}
		})
	}
}

// FuzzLine: whatever a pod prints, what becomes an event is one that wrangler can print. Each
// type assertion is what wrangler takes for granted.
func FuzzLine(f *testing.F) {
	f.Add([]byte(recorded))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, ok := parseLine(line)
		if !ok {
			return
		}
		// Not a struct: to a decoder "Logs" were "logs", and to wrangler they are not.
		var printed map[string]any
		decoder := json.NewDecoder(bytes.NewReader(e.JSON))
		decoder.UseNumber() // JavaScript reads 1E9999 as Infinity
		if !utf8.Valid(e.JSON) || decoder.Decode(&printed) != nil {
			t.Fatalf("%q is no JSON", e.JSON)
		}
		if printed["scriptName"] != e.Script {
			t.Fatalf("%s is of another script", e.JSON)
		}
		for _, l := range printed["logs"].([]any) {
			_ = l.(map[string]any)["message"].([]any)
		}
		for _, x := range printed["exceptions"].([]any) {
			if stack := x.(map[string]any)["stack"]; stack != nil {
				_ = stack.(string)
			}
		}
		if again, ok := parseLine(append([]byte("\x1e"+`{"script":"x","event":`), append(e.JSON, '}')...)); !ok || len(again.Texts) != len(e.Texts) {
			t.Fatalf("%s is no event when it is read again", e.JSON)
		}
	})
}
