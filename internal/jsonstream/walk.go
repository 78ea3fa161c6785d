// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package jsonstream

import (
	"encoding/json"
	"fmt"
)

// Members reads an object and calls each with the name of each member, whose value each
// reads from dec.
func Members(dec *json.Decoder, each func(key string) error) error {
	if err := expectDelim(dec, '{'); err != nil {
		return err
	}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return err
		}
		key, ok := token.(string)
		if !ok {
			return fmt.Errorf("want a name, got %v", token)
		}
		if err := each(key); err != nil {
			return err
		}
	}
	return expectDelim(dec, '}')
}

// Elements reads an array and calls each before each element, which each reads from dec. An array may be written as null.
func Elements(dec *json.Decoder, each func() error) error {
	start, err := dec.Token()
	if err != nil || start == nil {
		return err
	}
	if start != json.Delim('[') {
		return fmt.Errorf("want an array, got %v", start)
	}
	for dec.More() {
		if err := each(); err != nil {
			return err
		}
	}
	return expectDelim(dec, ']')
}

// Skip reads a value and drops it.
func Skip(dec *json.Decoder) error {
	var skipped json.RawMessage
	return dec.Decode(&skipped)
}

func expectDelim(dec *json.Decoder, want json.Delim) error {
	got, err := dec.Token()
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("want %v, got %v", want, got)
	}
	return nil
}
