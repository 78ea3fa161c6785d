// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"bytes"
	"encoding/json"
	"slices"
)

// object reads fields of a JSON object, and keeps the first error. encoding/json would match names
// without case, and accept two fields of one name. Errors contain no values.
type object struct {
	// subject is how messages name it.
	subject string
	fields  map[string]json.RawMessage
	err     error
}

// newObject parses a JSON object, which is known to be valid JSON. The values share its memory.
func newObject(subject string, raw []byte, mostFields int) (*object, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '{' {
		return nil, malformed("%s is no JSON object", subject)
	}
	members, ok := elements(raw, mostFields)
	if !ok {
		return nil, malformed("%s has more than %d fields", subject, mostFields)
	}
	o := &object{subject: subject, fields: make(map[string]json.RawMessage, len(members))}
	for _, member := range members {
		name, value := splitMember(member)
		if _, twice := o.fields[name]; twice {
			return nil, malformed("%s: there are two fields %s", subject, quoteName(name))
		}
		o.fields[name] = value
	}
	return o, nil
}

// setError keeps the first error.
func (o *object) setError(err error) {
	if o.err == nil {
		o.err = err
	}
}

// has says whether a field is there and not null.
func (o *object) has(name string) bool {
	raw, found := o.fields[name]
	return found && !bytes.Equal(raw, []byte("null"))
}

// text returns a string of at most so many bytes, or nothing if the field is not there.
func (o *object) text(name string, most int) string {
	if !o.has(name) {
		return ""
	}
	text, ok := textOf(o.fields[name])
	if !ok {
		o.setError(malformed("%s: %s is no string", o.subject, name))
	}
	if len(text) > most {
		o.setError(malformed("%s: %s has %d bytes, and the limit is %d", o.subject, name, len(text), most))
	}
	return text
}

// list returns the elements of an array.
func (o *object) list(name string, most int) [][]byte {
	if !o.has(name) {
		return nil
	}
	raw := o.fields[name]
	if raw[0] != '[' {
		o.setError(malformed("%s: %s is no list", o.subject, name))
		return nil
	}
	all, ok := elements(raw, most)
	if !ok {
		o.setError(malformed("%s: %s has more than %d elements, which is the limit", o.subject, name, most))
	}
	return all
}

// texts returns a list of strings, each of them once: the API has a set.
func (o *object) texts(name string, most, mostBytes int) []string {
	var texts []string
	for _, raw := range o.list(name, most) {
		text, ok := textOf(raw)
		if !ok || len(text) > mostBytes {
			o.setError(malformed("%s: an element of %s is no string of at most %d bytes", o.subject, name, mostBytes))
			return nil
		}
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return texts
}

func textOf(raw []byte) (text string, ok bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	return text, json.Unmarshal(raw, &text) == nil
}

// isEmpty reports whether a value has no effect.
func isEmpty(raw []byte) bool {
	switch string(raw[:1]) {
	case "[", "{":
		return len(bytes.TrimSpace(raw[1:len(raw)-1])) == 0
	}
	return slices.Contains([]string{"null", "false", `""`}, string(raw))
}

// elements returns the elements of an array or the members of an object, which is valid JSON.
// They share its memory: a slice of structs has some forty bytes for each {} of a body.
func elements(raw []byte, most int) (all [][]byte, ok bool) {
	raw = bytes.TrimSpace(raw[1 : len(raw)-1])
	if len(raw) == 0 {
		return nil, true
	}
	depth, start, quoted := 0, 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		case c == ',' && depth == 0:
			all = append(all, bytes.TrimSpace(raw[start:i]))
			start = i + 1
		}
		if len(all) >= most {
			return nil, false
		}
	}
	return append(all, bytes.TrimSpace(raw[start:])), true
}

// splitMember returns the name and the value of a member.
func splitMember(member []byte) (name string, value []byte) {
	end := 1
	for ; member[end] != '"'; end++ {
		if member[end] == '\\' {
			end++
		}
	}
	name, _ = textOf(member[:end+1])
	rest := bytes.TrimSpace(member[end+1:])
	return name, bytes.TrimSpace(rest[1:]) // without the colon
}
