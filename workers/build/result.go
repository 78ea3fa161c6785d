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
	"strings"

	"github.com/spokelet/spokelet/workers/api"
	builder "github.com/spokelet/spokelet/workers/api/builder/v1alpha1"
	"github.com/spokelet/spokelet/workers/store"
)

// MaxResult is how long a Result is at most: the kubelet keeps no more of a termination
// message.
const MaxResult = 4096

// Result is what a step says when it ends: one of the three, or nothing if the next step is
// to run.
type Result struct {
	// Image by digest, from push.
	Image string `json:"image,omitempty"`
	// Rejected are scripts that workerd rejects, from check. There may be more of them.
	Rejected []builder.Rejection `json:"rejected,omitempty"`
	// Failure is what kept a step from its end.
	Failure *Failure `json:"failure,omitempty"`
}

// Failure is why there is no image, other than for a script that workerd rejects.
type Failure struct {
	// Message for people.
	Message string `json:"message"`
	// Retry: it is no fault of a script, so it may go without that a script is changed.
	Retry bool `json:"retry,omitempty"`
}

// permanentErrors are the errors that stay until another release is made.
var permanentErrors = []error{store.ErrChanged, store.ErrMissing, store.ErrTooLarge, store.ErrForeign}

// ScriptError is what keeps one script from being built.
type ScriptError struct {
	Script string
	Err    error
}

// Error implements error.
func (e *ScriptError) Error() string { return "script " + e.Script + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *ScriptError) Unwrap() error { return e.Err }

// FailedResult is the Result of a step that an error ended. One that stays as long as the release
// of a script is built is about that script: the others of the account need not wait for it.
func FailedResult(err error) Result {
	stays := slices.ContainsFunc(permanentErrors, func(target error) bool { return errors.Is(err, target) })
	if of, ok := errors.AsType[*ScriptError](err); ok && stays {
		return Result{Rejected: []builder.Rejection{{ScriptName: of.Script, Message: of.Err.Error(), Reason: api.ReasonScriptsMissing}}}
	}
	return Result{Failure: &Failure{Message: err.Error(), Retry: !stays}}
}

// Encode writes a Result as JSON of at most MaxResult bytes. Messages are cut as far as they
// have to be, and the last rejections left out: the next build finds them.
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
		rejection.Message = truncate(rejection.Message, limit)
		cut.Rejected = append(cut.Rejected, rejection)
	}
	if r.Failure != nil {
		cut.Failure = &Failure{Message: truncate(r.Failure.Message, limit), Retry: r.Failure.Retry}
	}
	return cut
}

// truncate cuts a text to a number of bytes, between characters.
func truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	const more = "..."
	return strings.ToValidUTF8(text[:limit-len(more)], "") + more
}

// Write leaves a Result in the file that the kubelet reads.
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
