// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// most is how many packages and tests are named.
const most = 20

// report writes the tables of a run.
func report(out io.Writer, dir string) error {
	m, err := readMeasurement(dir)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, m.phaseTable()+m.packageTable()+m.testTable())
	return err
}

// phaseTable has the phases in the order in which they ended.
func (m measurement) phaseTable() string {
	var b strings.Builder
	b.WriteString("| phase | wall, s | processor, s | machine idle meanwhile, s |\n|---|--:|--:|--:|\n")
	for _, p := range m.phases {
		idle := m.idle(p.Start, p.End)
		fmt.Fprintf(&b, "| %s | %.0f | %.0f | %.0f |\n", p.Name, p.End.Sub(p.Start).Seconds(), p.CPU, idle)
	}
	return b.String()
}

// packageTable has the packages that took longest, suites among them.
func (m measurement) packageTable() string {
	packages := slices.DeleteFunc(slices.Clone(m.spans), func(s span) bool { return s.test != "" })
	return m.spanTable("package", packages)
}

// testTable has the tests that took longest. A test with parts is not counted, its parts
// are.
func (m measurement) testTable() string {
	parents := map[string]bool{}
	for _, s := range m.spans {
		for i, r := range s.test {
			if r == '/' {
				parents[s.run+" "+s.pkg+" "+s.test[:i]] = true
			}
		}
	}
	tests := slices.DeleteFunc(slices.Clone(m.spans), func(s span) bool { return s.test == "" || parents[s.run+" "+s.pkg+" "+s.test] })
	return m.spanTable("test", tests)
}

func (m measurement) spanTable(title string, spans []span) string {
	slices.SortFunc(spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(b.took(), a.took()), strings.Compare(a.run+a.pkg+a.test, b.run+b.pkg+b.test))
	})
	var b strings.Builder
	fmt.Fprintf(&b, "\n| %s | run | wall, s | machine idle meanwhile, s |\n|---|---|--:|--:|\n", title)
	for _, s := range spans[:min(most, len(spans))] {
		name := s.pkg
		if s.test != "" {
			name += " " + s.test
		}
		idle := m.idle(s.start, s.end)
		fmt.Fprintf(&b, "| %s | %s | %.1f | %.1f |\n", name, s.run, s.took().Seconds(), idle)
	}
	return b.String()
}
