// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxMessage bounds the text of an error in a condition, in bytes.
const maxMessage = 1024

// NamespaceError: the spoke's owner does not allow works to write there.
type NamespaceError struct {
	// Namespace that is not allowed; empty for a cluster-scoped manifest.
	Namespace string
}

// Error says what is not allowed.
func (e *NamespaceError) Error() string {
	if e.Namespace == "" {
		return "cluster-scoped manifests are not allowed by this cluster's agent"
	}
	return fmt.Sprintf("namespace %q is not allowed by this cluster's agent", e.Namespace)
}

// MaxCount of one work: more than that, and what is to be said of them, no API
// server stores.
const MaxCount = 10_000

// TooManyError: a work has more manifests than can be kept track of.
type TooManyError struct{ Manifests int }

// Error names the limit.
func (e *TooManyError) Error() string {
	return fmt.Sprintf("work has %d manifests, the limit is %d", e.Manifests, MaxCount)
}

// FetchError: an object that is only read cannot be read.
type FetchError struct{ Err error }

// Error is that of the read.
func (e *FetchError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *FetchError) Unwrap() error { return e.Err }

// DuplicateError: an earlier manifest of the same work names the same object.
type DuplicateError struct{ Ordinal int }

// Error names the manifest that came first.
func (e *DuplicateError) Error() string {
	return fmt.Sprintf("duplicate of manifest %d", e.Ordinal)
}

// UnknownKindError: the API server serves no such kind, at present.
type UnknownKindError struct {
	Kind schema.GroupVersionKind
	// Served are the versions in which it does.
	Served []string
}

// Error is in the words of kubectl, as OCM's agent says it.
func (e *UnknownKindError) Error() string {
	text := fmt.Sprintf("the server doesn't have a resource type %q", e.Kind.Kind)
	if len(e.Served) > 0 {
		text += fmt.Sprintf(" in version %q; it is served in %s", e.Kind.GroupVersion(), strings.Join(e.Served, ", "))
	}
	return text
}

// What differs from one attempt to the next without telling anything: it would
// make a condition, and with it the hub, change for nothing.
var volatileText = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}| at \d{4}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)|\[[0-9a-f:]+\]:\d+->|\d+\.\d+\.\d+\.\d+:\d+->`)

// DescribeError turns an error into the text of a condition: the same for the same
// cause, bounded, printable, and for Secrets without anything of their content.
func DescribeError(err error, secret bool) string {
	text := err.Error()
	if secret {
		text = describeSecret(err)
	}
	text = volatileText.ReplaceAllString(text, "")
	return Printable(text)
}

// Printable bounds a text that comes from elsewhere and removes what does not
// print.
func Printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) <= maxMessage {
		return text
	}
	cut := maxMessage
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "..."
}

// describeSecret names the fields that an API server complained about, not what
// it said: validation messages quote values.
func describeSecret(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err.Error()
	}
	s := status.Status()
	text := string(s.Reason)
	if text == "" {
		text = "request refused"
	}
	if s.Details == nil {
		return text
	}
	var fields []string
	for _, c := range s.Details.Causes {
		if c.Field != "" && !slices.Contains(fields, c.Field) {
			fields = append(fields, c.Field)
		}
	}
	slices.Sort(fields)
	if len(fields) == 0 {
		return text
	}
	return text + ": " + strings.Join(fields, ", ")
}
