// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"time"
)

// separator begins a line of a log that is a trace event: RS of ASCII, as in RFC 7464.
const separator = 0x1e

// Event is a trace event of workerd: what one call of a script was, and what came of it.
type Event struct {
	// Script that was called.
	Script string
	// Outcome of the call, as in ok, exception, exceededCpu or canceled.
	Outcome string
	// Method and Headers of the request, with names as the runtime writes them, in lower
	// case; empty if it was no request.
	Method  string
	Headers map[string]string
	// ClientIP is where the request came from, an IPv4 address as such. The zero value if
	// that is not known.
	ClientIP netip.Addr
	// Texts are the messages of logs and exceptions: strings as they are, other values as
	// JSON.
	Texts []string
	// JSON is the event as it is sent: with scriptName, logs and exceptions.
	JSON []byte
}

// parseLine parses a line of a pod's log. It returns false for a line that is no event, or that
// would crash wrangler when printed.
func parseLine(line []byte) (Event, bool) {
	if len(line) == 0 || line[0] != separator {
		return Event{}, false
	}
	var parsed struct {
		Script string                     `json:"script"`
		Event  map[string]json.RawMessage `json:"event"`
	}
	// A text frame has to be UTF-8, and a decoder leaves raw values as they are.
	if json.Unmarshal(bytes.ToValidUTF8(line[1:], []byte("\uFFFD")), &parsed) != nil || parsed.Script == "" || parsed.Event == nil {
		return Event{}, false
	}
	e := Event{Script: parsed.Script}
	fields := parsed.Event
	if !e.readOutcome(fields) || !e.readLogs(fields) || !e.readExceptions(fields) || !e.readRequest(fields["event"]) {
		return Event{}, false
	}
	var err error
	fields["scriptName"], err = json.Marshal(e.Script)
	if err != nil {
		return Event{}, false
	}
	e.JSON, err = encode(fields)
	return e, err == nil
}

// encode writes JSON without the escapes that are for HTML.
func encode(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// isPresent is false for a field that is not there or null.
func isPresent(field json.RawMessage) bool {
	return len(field) > 0 && !bytes.Equal(field, []byte("null"))
}

func (e *Event) readOutcome(fields map[string]json.RawMessage) bool {
	return !isPresent(fields["outcome"]) || json.Unmarshal(fields["outcome"], &e.Outcome) == nil
}

// readObjects reads a list of objects, and adds an empty one if the field is missing. Fields are read from maps
// and not into structs, whose decoder would take "Logs" for "logs".
func readObjects(fields map[string]json.RawMessage, name string) ([]map[string]json.RawMessage, bool) {
	if !isPresent(fields[name]) {
		fields[name] = json.RawMessage("[]")
		return nil, true
	}
	var list []map[string]json.RawMessage
	if json.Unmarshal(fields[name], &list) != nil {
		return nil, false
	}
	for _, object := range list {
		if object == nil {
			return nil, false
		}
	}
	return list, true
}

func (e *Event) readLogs(fields map[string]json.RawMessage) bool {
	logs, ok := readObjects(fields, "logs")
	for _, l := range logs {
		var message []json.RawMessage
		if json.Unmarshal(l["message"], &message) != nil || message == nil {
			return false
		}
		for _, m := range message {
			e.Texts = append(e.Texts, textOf(m))
		}
	}
	return ok
}

func (e *Event) readExceptions(fields map[string]json.RawMessage) bool {
	exceptions, ok := readObjects(fields, "exceptions")
	for _, x := range exceptions {
		var stack string
		if isPresent(x["stack"]) && json.Unmarshal(x["stack"], &stack) != nil {
			return false
		}
		e.Texts = append(e.Texts, textOf(x["name"])+": "+textOf(x["message"]))
	}
	return ok
}

func textOf(value json.RawMessage) string {
	var s string
	if json.Unmarshal(value, &s) == nil {
		return s
	}
	return string(value)
}

// readRequest reads field event, which is null or a thing of another kind for what is no
// request.
func (e *Event) readRequest(field json.RawMessage) bool {
	if !isPresent(field) {
		return true
	}
	var kinds map[string]json.RawMessage
	if json.Unmarshal(field, &kinds) != nil {
		return false
	}
	raw, isRequest := kinds["request"]
	if !isRequest {
		return true
	}
	var request map[string]json.RawMessage
	if json.Unmarshal(raw, &request) != nil || json.Unmarshal(request["method"], &e.Method) != nil || e.Method == "" {
		return false
	}
	var url string
	if isPresent(request["url"]) && json.Unmarshal(request["url"], &url) != nil {
		return false
	}
	e.ClientIP = clientIP(request["cf"])
	return !isPresent(request["headers"]) || json.Unmarshal(request["headers"], &e.Headers) == nil
}

// clientIP reads {"clientIp":"[::ffff:192.0.2.1]:55360"}.
func clientIP(cf json.RawMessage) netip.Addr {
	var from struct {
		ClientIP string `json:"clientIp"`
	}
	if json.Unmarshal(cf, &from) != nil {
		return netip.Addr{}
	}
	if withPort, err := netip.ParseAddrPort(from.ClientIP); err == nil {
		return withPort.Addr().Unmap()
	}
	ip, err := netip.ParseAddr(from.ClientIP)
	if err != nil {
		return netip.Addr{}
	}
	return ip.Unmap()
}

// newNote returns an event that warns the reader of the tail. Its field event is null, which
// wrangler prints as "Unknown Event".
func newNote(script, text string, now time.Time) []byte {
	at := now.UnixMilli()
	type warning struct {
		Level     string   `json:"level"`
		Timestamp int64    `json:"timestamp"`
		Message   []string `json:"message"`
	}
	frame, err := encode(struct {
		Outcome        string     `json:"outcome"`
		ScriptName     string     `json:"scriptName"`
		EventTimestamp int64      `json:"eventTimestamp"`
		Event          *struct{}  `json:"event"`
		Exceptions     []struct{} `json:"exceptions"`
		Logs           []warning  `json:"logs"`
	}{
		Outcome: "unknown", ScriptName: script, EventTimestamp: at, Exceptions: []struct{}{},
		Logs: []warning{{Level: "warn", Timestamp: at, Message: []string{"spokelet: " + text}}},
	})
	if err != nil {
		return nil // numbers and strings always have a JSON form
	}
	return frame
}
