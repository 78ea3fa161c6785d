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
	Output  string
	Elapsed float64
}

// A name is that of a test, a part of one, or with no test that of a package.
type name struct{ pkg, test string }

// A verdict holds the last word on everything named.
type verdict map[name]string

// judge reads events to their end. It shows what failed with all that it said,
// of everything else a line.
func judge(events io.Reader, out io.Writer) (verdict, error) {
	v := verdict{}
	said := map[name]*strings.Builder{}
	decoder := json.NewDecoder(events)
	for {
		var e event
		err := decoder.Decode(&e)
		if errors.Is(err, io.EOF) {
			return v, nil
		}
		if err != nil {
			return v, fmt.Errorf("events of go test: %w", err)
		}
		n := name{e.Package, e.Test}
		switch e.Action {
		case "output":
			if said[n] == nil {
				said[n] = &strings.Builder{}
			}
			said[n].WriteString(e.Output)
		case "pass", "fail", "skip":
			v[n] = e.Action
			if err := e.show(out, said[n]); err != nil {
				return v, err
			}
			delete(said, n)
		}
	}
}

// show prints what an event that ends a test, or a package, has to say.
func (e event) show(out io.Writer, said *strings.Builder) error {
	text := ""
	switch {
	case e.Action != "pass" && said != nil:
		text = said.String()
	case e.Test == "":
		text = fmt.Sprintf("ok   %s %.1fs\n", e.Package, e.Elapsed)
	case !strings.Contains(e.Test, "/"):
		text = fmt.Sprintf("pass %s %.1fs\n", e.Test, e.Elapsed)
	}
	_, err := io.WriteString(out, text)
	return err
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
