// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spokelet/spokelet/workers/api"
	builder "github.com/spokelet/spokelet/workers/api/builder/v1alpha1"
	"github.com/spokelet/spokelet/workers/registry"
	"github.com/spokelet/spokelet/workers/store"
)

func TestEncodeKeepsResultWithinLimit(t *testing.T) {
	many := func(n, length int, text string) []builder.Rejection {
		var all []builder.Rejection
		for i := range n {
			all = append(all, builder.Rejection{ScriptName: fmt.Sprintf("script-%d", i), Message: strings.Repeat(text, length)})
		}
		return all
	}
	cases := map[string]struct {
		reason string
		result Result
		// kept is how many rejections are in it.
		kept int
	}{
		"an image":            {"the usual one", Result{Image: "registry.example.com/workers/a@sha256:" + strings.Repeat("0", 64)}, 0},
		"nothing":             {"the next step is to run", Result{}, 0},
		"a rejection":         {"what fits is not cut", Result{Rejected: many(1, 1024, "x")}, 1},
		"four rejections":     {"they are cut alike", Result{Rejected: many(4, 1024, "x")}, 4},
		"a hundred":           {"names are not cut: some are left out", Result{Rejected: many(100, 1024, "x")}, 39},
		"of control chars":    {"each takes six bytes of JSON", Result{Rejected: many(3, 1024, "\x01")}, 3},
		"of many bytes":       {"a character is whole or not there", Result{Rejected: many(9, 500, "é")}, 9},
		"a failure":           {"as a rejection", FailedResult(errors.New(strings.Repeat("x", 10000))), 0},
		"a failure of quotes": {"as control characters", FailedResult(errors.New(strings.Repeat(`"`, 10000))), 0},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "message")
			// The kubelet has made it, and it may be longer.
			write(t, path, strings.Repeat("x", 2*MaxResult))
			if err := test.result.Write(path); err != nil {
				t.Fatal(err)
			}
			text, _ := os.ReadFile(path)
			if len(text) > MaxResult {
				t.Errorf("%s\nit has %d bytes", test.reason, len(text))
			}
			got, err := Decode(string(text))
			if err != nil {
				t.Fatalf("%s\n%v", test.reason, err)
			}
			if got.Image != test.result.Image || (got.Failure == nil) != (test.result.Failure == nil) || len(got.Rejected) != test.kept {
				t.Errorf("%s\n%d rejections, not %d: %s", test.reason, len(got.Rejected), test.kept, text)
			}
			for i, rejection := range got.Rejected {
				if rejection.ScriptName != test.result.Rejected[i].ScriptName || rejection.Message == "" || strings.Contains(rejection.Message, "\ufffd") {
					t.Errorf("%s\n%+v", test.reason, rejection)
				}
			}
		})
	}
}

func TestFailedResultSetsRetry(t *testing.T) {
	cases := map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"the store is not there":    {"it comes back", fmt.Errorf("x: %w", store.ErrUnavailable), true},
		"the store refuses":         {"a secret is being changed", fmt.Errorf("x: %w", store.ErrDenied), true},
		"the registry is not there": {"it comes back", fmt.Errorf("x: %w", registry.ErrUnavailable), true},
		"the disk is full":          {"another node has place", &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, true},
		"time is over":              {"another time it is faster", context.DeadlineExceeded, true},
		"the machine is busy":       {"it is not for ever", fmt.Errorf("x: %w", ErrCannotCheck), true},
		"an object was changed":     {"what was asked for is gone", fmt.Errorf("x: %w", store.ErrChanged), false},
		"an object is missing":      {"as changed", fmt.Errorf("x: %w", store.ErrMissing), false},
		"a script is too large":     {"it stays so", fmt.Errorf("x: %w", store.ErrTooLarge), false},
		"a key is of nobody":        {"somebody made the release by hand", fmt.Errorf("x: %w", store.ErrForeign), false},
		"anything else":             {"it is no fault of a script, and somebody may mend it", errors.New("x"), true},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			want := Result{Failure: &Failure{Message: test.err.Error(), Retry: test.want}}
			if diff := cmp.Diff(want, FailedResult(test.err)); diff != "" {
				t.Errorf("%s\n%s", test.reason, diff)
			}
		})
	}
}

func TestPermanentErrorRejectsItsScript(t *testing.T) {
	rejected := func(message string) Result {
		return Result{Rejected: []builder.Rejection{{ScriptName: "hello", Message: message, Reason: api.ReasonScriptsMissing}}}
	}
	retry := func(message string) Result { return Result{Failure: &Failure{Message: message, Retry: true}} }
	cases := map[string]struct {
		reason string
		err    error
		want   Result
	}{
		"an object was changed":   {"the others of the account need not wait for it", store.ErrChanged, rejected(store.ErrChanged.Error())},
		"an object is missing":    {"as changed", fmt.Errorf("index.js: %w", store.ErrMissing), rejected("index.js: " + store.ErrMissing.Error())},
		"a script is too large":   {"as changed", store.ErrTooLarge, rejected(store.ErrTooLarge.Error())},
		"a key is of nobody":      {"as changed", store.ErrForeign, rejected(store.ErrForeign.Error())},
		"the store is not there":  {"it comes back, and the script is not to blame", store.ErrUnavailable, retry("script hello: " + store.ErrUnavailable.Error())},
		"the store refuses":       {"a secret is being changed", store.ErrDenied, retry("script hello: " + store.ErrDenied.Error())},
		"the disk is full":        {"another node has place", syscall.ENOSPC, retry("script hello: " + syscall.ENOSPC.Error())},
		"the Job was told to end": {"another one does it", context.Canceled, retry("script hello: " + context.Canceled.Error())},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			err := fmt.Errorf("%w", &ScriptError{Script: "hello", Err: test.err})
			if diff := cmp.Diff(test.want, FailedResult(err)); diff != "" {
				t.Errorf("%s\n%s", test.reason, diff)
			}
		})
	}
}

func TestFetchRejectsScriptWithMissingModule(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		err    error
		want   Result
	}{
		"missing": {"of the second script alone", store.ErrMissing, Result{Rejected: []builder.Rejection{
			{ScriptName: "s1", Message: store.ErrMissing.Error(), Reason: api.ReasonScriptsMissing},
		}}},
		"away": {"of none", store.ErrUnavailable, Result{Failure: &Failure{Message: "script s1: " + store.ErrUnavailable.Error(), Retry: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			from := &fakeStore{fail: func(key string) error {
				if strings.HasPrefix(key, "a1/s1/") {
					return test.err
				}
				return nil
			}}
			err := Fetch(t.Context(), FetchConfig{Input: writeInput(t, inputOf(3, 1)), Work: t.TempDir(), Store: from})
			if diff := cmp.Diff(test.want, FailedResult(err)); diff != "" {
				t.Errorf("%s\n%s", test.reason, diff)
			}
		})
	}
}

func TestDecodeRejectsMalformedMessage(t *testing.T) {
	for _, message := range []string{"", "panic: x", `{"image":`} {
		if got, err := Decode(message); err == nil {
			t.Errorf("%q is %+v", message, got)
		}
	}
}
