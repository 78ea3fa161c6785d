// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spokelet/spokelet/workers/api"
	builder "github.com/spokelet/spokelet/workers/api/builder/v1alpha1"
	"github.com/spokelet/spokelet/workers/store"
	"github.com/spokelet/spokelet/workers/truncate"
)

// MaxResult is how long a Result is at most: the kubelet keeps no more of a termination
// message.
const MaxResult = 4096

// Result is what a step reports when it ends: one of the three fields, or none if the next step
// is to run.
type Result struct {
	// Image by digest, from push.
	Image string `json:"image,omitempty"`
	// Rejected are scripts that workerd rejects, from check. There may be more of them.
	Rejected []builder.Rejection `json:"rejected,omitempty"`
	// Failure is why a step did not complete.
	Failure *Failure `json:"failure,omitempty"`
}

// Failure is why there is no image, other than for a script that workerd rejects.
type Failure struct {
	// Message for people.
	Message string `json:"message"`
	// Retry: no script is the cause, so another attempt may succeed.
	Retry bool `json:"retry,omitempty"`
}

// permanentErrors stay until another release is created.
var permanentErrors = []error{store.ErrChanged, store.ErrMissing, store.ErrTooLarge, store.ErrForeign}

// ScriptError is an error that concerns one script only.
type ScriptError struct {
	Script string
	Err    error
}

// Error returns the message.
func (e *ScriptError) Error() string { return "script " + e.Script + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *ScriptError) Unwrap() error { return e.Err }

// FailedResult returns the Result of a step that failed. A permanent error rejects its script, so
// that the other scripts of the account are built without it.
func FailedResult(err error) Result {
	stays := slices.ContainsFunc(permanentErrors, func(target error) bool { return errors.Is(err, target) })
	if of, ok := errors.AsType[*ScriptError](err); ok && stays {
		return Result{Rejected: []builder.Rejection{{ScriptName: of.Script, Message: of.Err.Error(), Reason: api.ReasonScriptsMissing}}}
	}
	return Result{Failure: &Failure{Message: err.Error(), Retry: !stays}}
}

// Encode returns a Result as JSON of at most MaxResult bytes. Messages are shortened as far as
// needed, and the last rejections left out: the next build finds them.
func (r Result) Encode() []byte {
	text := r.json()
	for limit := MaxResult / 2; len(text) > MaxResult && limit >= 64; limit /= 2 {
		r = r.withShortMessages(limit)
		text = r.json()
	}
	for len(text) > MaxResult && len(r.Rejected) > 0 {
		r.Rejected = r.Rejected[:len(r.Rejected)-1]
		text = r.json()
	}
	return text
}

func (r Result) json() []byte {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false) // messages are full of what it would escape
	if err := encoder.Encode(r); err != nil {
		return []byte("{}") // it cannot be: there are strings alone
	}
	return bytes.TrimSpace(line.Bytes())
}

// withShortMessages returns a copy with shorter messages.
func (r Result) withShortMessages(limit int) Result {
	cut := r
	cut.Rejected = make([]builder.Rejection, 0, len(r.Rejected))
	for _, rejection := range r.Rejected {
		rejection.Message = truncate.Text(rejection.Message, limit)
		cut.Rejected = append(cut.Rejected, rejection)
	}
	if r.Failure != nil {
		cut.Failure = &Failure{Message: truncate.Text(r.Failure.Message, limit), Retry: r.Failure.Retry}
	}
	return cut
}

// Write writes a Result to the file that the kubelet reads.
func (r Result) Write(path string) error {
	//nolint:gosec // the kubelet, which is another user, reads it
	if err := os.WriteFile(path, r.Encode(), 0o644); err != nil {
		return fmt.Errorf("termination message: %w", err)
	}
	return nil
}

// Decode reads a termination message.
func Decode(message string) (Result, error) {
	var r Result
	if err := json.Unmarshal([]byte(message), &r); err != nil {
		return Result{}, fmt.Errorf("termination message: %w", err)
	}
	return r, nil
}
