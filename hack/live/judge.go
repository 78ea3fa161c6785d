// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// An event is one line of go test -json.
type event struct {
	Action  string
	Package string
	Test    string
}

// A name is that of a test, a part of one, or with no test that of a package.
type name struct{ pkg, test string }

// A verdict holds the last word on everything named.
type verdict map[name]string

// read adds what events say, to their end.
func (v verdict) read(events io.Reader) error {
	decoder := json.NewDecoder(events)
	for {
		var e event
		err := decoder.Decode(&e)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("events of go test: %w", err)
		}
		if e.Action == "pass" || e.Action == "fail" || e.Action == "skip" {
			v[name{e.Package, e.Test}] = e.Action
		}
	}
}

// complete fails unless each of the tests passed, whole.
func (v verdict) complete(tests map[string][]string) error {
	var missing []string
	count := 0
	for _, dir := range slices.Sorted(maps.Keys(tests)) {
		for _, name := range tests[dir] {
			count++
			if !v.passed(dir, name) {
				missing = append(missing, dir+"."+name)
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%d of %d live tests did not run to their end: %s", len(missing), count, strings.Join(missing, ", "))
	}
	return nil
}

// passed: the test did, and none of its parts was skipped.
func (v verdict) passed(dir, name string) bool {
	found := false
	for n, action := range v {
		whole, _, _ := strings.Cut(n.test, "/")
		if whole != name || !strings.HasSuffix(n.pkg, "/"+dir) {
			continue
		}
		if action != "pass" {
			return false
		}
		found = found || n.test == name
	}
	return found
}
