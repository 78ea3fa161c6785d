// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// tries is how often a test does something in all that fails at one cluster, too, from
// time to time.
const tries = 3

// ErrCut is of a stream whose end may be lost by Kubernetes' own lottery: a client's ping
// that arrives where a server has closed resets the connection, and what was not read by
// then is gone, the end of the output or the exit code.
var ErrCut = errors.New("the stream may have been cut")

// ErrCollected is of a container that ended, was started anew, and was removed at once:
// each minute the kubelet keeps one of each name that does not run, and takes one that was
// made and not yet started for the newest of them (evictableContainers in its
// pkg/kubelet/kuberuntime). Nobody can read what was printed then.
var ErrCollected = errors.New("the kubelet has removed the container that ran before")

// Retry does something again, as a user would, while its error is ErrCut or ErrCollected:
// three times in all. The test's output says how often. What is done gets the number of the
// try, from 1.
func Retry[T any](t *testing.T, what string, do func(try int) (T, error)) (T, error) {
	t.Helper()
	for try := 1; ; try++ {
		got, err := do(try)
		if !errors.Is(err, ErrCut) && !errors.Is(err, ErrCollected) || try == tries {
			return got, err
		}
		t.Logf("%s: tried again, %d of %d: %v", what, try, tries-1, err)
	}
}

// Wrong is the error of an answer on a way that is not the one that is wanted, with the
// code that is.
func (a Answer) Wrong(way string, code int) error {
	err := fmt.Errorf("the %s answers %d, %.400q, %.400q", way, a.Code, a.Out, a.Err)
	if a.lostEnd(way, code) {
		err = fmt.Errorf("%w: %w", ErrCut, err)
	}
	return err
}

// Collected is the error of what a container printed before it was started anew: nil if the
// kubelet has it yet.
func (a Answer) Collected() error {
	if strings.HasPrefix(a.Out, "unable to retrieve container logs for ") {
		return fmt.Errorf("%w: %.400q", ErrCollected, a.Out)
	}
	return nil
}

// lostEnd tells whether a wrong answer may be one whose end was lost. At the spoke itself
// a client may take that for success, even. Through the hub it is told of each cut, so that a
// success with another output is nobody's luck; nor is the code that is wanted, nor a
// client that had to be killed.
func (a Answer) lostEnd(way string, code int) bool {
	return way == WaySpoke || a.Code > 0 && a.Code != code && a.namesACut()
}

// namesACut tells whether a client complains of a stream that was cut. On a terminal it
// does so in the output.
func (a Answer) namesACut() bool {
	said := a.Out + a.Err
	return slices.ContainsFunc([]string{
		"stream was cut", "stream ended without the status", "EOF", "reset", "abnormal closure", "INTERNAL_ERROR", "broken pipe", "closed network connection", "error stream",
	}, func(mark string) bool { return strings.Contains(said, mark) })
}
