// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// module is what the names of packages are shown without.
const module = "github.com/spokelet/spokelet/"

// A span is a package or a test of one, and the time that it took.
type span struct {
	run        string // the name of its events' file
	pkg, test  string // without a test it is the whole package
	start, end time.Time
}

func (s span) took() time.Duration { return s.end.Sub(s.start) }

// A measurement is all that a run has left in its folder.
type measurement struct {
	samples []sample
	phases  []phase
	spans   []span
}

func readMeasurement(dir string) (measurement, error) {
	var m measurement
	var err error
	if m.samples, err = readLines[sample](filepath.Join(dir, samplesFile)); err != nil {
		return m, err
	}
	if m.phases, err = readLines[phase](filepath.Join(dir, phasesFile)); err != nil {
		return m, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return m, err
	}
	for _, file := range files {
		spans, err := readEvents(file)
		if err != nil {
			return m, err
		}
		m.spans = append(m.spans, spans...)
	}
	return m, nil
}

// readLines decodes a file of JSON values. One that is not there has none.
func readLines[T any](name string) ([]T, error) {
	file, err := os.Open(filepath.Clean(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var all []T
	decoder := json.NewDecoder(bufio.NewReader(file))
	for {
		var value T
		err := decoder.Decode(&value)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, value)
	}
}

// An event is one line of go test -json (go doc test2json).
type event struct {
	Time    time.Time
	Action  string
	Package string
	Test    string
	Elapsed float64 // seconds; of a parallel test without the time for which it waited for its turn
}

func readEvents(name string) ([]span, error) {
	events, err := readLines[event](name)
	if err != nil {
		return nil, err
	}
	run := strings.TrimSuffix(filepath.Base(name), ".json")
	var spans []span
	for _, e := range events {
		if e.Action != "pass" && e.Action != "fail" {
			continue
		}
		spans = append(spans, span{
			run: run, pkg: strings.TrimPrefix(e.Package, module), test: e.Test,
			start: e.Time.Add(-time.Duration(e.Elapsed * float64(time.Second))), end: e.Time,
		})
	}
	return spans, nil
}

// idle is how long the processors did nothing between two moments, in seconds of one of them, to
// the nearest samples.
func (m measurement) idle(start, end time.Time) float64 {
	if len(m.samples) == 0 {
		return 0
	}
	return m.nearest(end).Idle - m.nearest(start).Idle
}

func (m measurement) nearest(at time.Time) sample {
	i, _ := slices.BinarySearchFunc(m.samples, at, func(s sample, at time.Time) int { return s.At.Compare(at) })
	return m.samples[min(i, len(m.samples)-1)]
}
