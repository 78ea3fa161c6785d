// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

// Upload is a script as a developer sent it. Nothing of it is stored.
type Upload struct {
	// Script has no scriptName, scriptUrls and secretRef, and its bindings hold no secrets. Its
	// compatibilityDate is empty if the developer named none.
	Script release.Script
	// Files are the modules, ordered by name. Source maps are none.
	Files []File
	// Secrets are the values of bindings of type secret_text, by name.
	Secrets map[string]string
	// Inherit are names of bindings whose value is that of the version before.
	Inherit []string
	// Keep are types of bindings that stay as the version before had them, unless this one has
	// others of their names. Blobs are never among them.
	Keep []string
	// Message and Tag are the developer's own words: the annotations workers/message and
	// workers/tag, of 4096 and 256 bytes at most.
	Message, Tag string
}

// File is one module.
type File struct {
	// Name is a relative path with nothing to resolve in it: lib/util.js for ./lib//util.js.
	Name string
	// Type is one of the media types of the release API, without parameters.
	Type string
	// Content is never nil.
	Content []byte
}

// Limits of one upload.
type Limits struct {
	// MaxModules is how many modules there may be.
	MaxModules int
	// MaxBytes is how many bytes the modules may have together. Source maps, which are not
	// kept, may have as many again.
	MaxBytes int64
}

// Memory is what an upload may have in memory; both calls are of bytes.
type Memory interface {
	// Grow is called before more is allocated. An error ends the upload.
	Grow(n int64) error
	// Shrink is called when less is needed.
	Shrink(n int64)
}

// Peak is how many bytes an upload within the limits has in memory at most: the modules, the
// largest of them a second time while it is read, and the metadata.
func (l Limits) Peak() int64 { return 2*max(l.MaxBytes, 0) + 2*maxMetadata + smallPart }

var (
	// ErrIncomplete is wrapped by errors of bodies that ended too early, or could not be read.
	ErrIncomplete = errors.New("the upload is incomplete")
	// ErrMemory is wrapped by errors of uploads that were refused memory.
	ErrMemory = errors.New("there is no memory for the upload")
)

// Kind says what is wrong with an upload.
type Kind int

// Kinds of errors.
const (
	// Malformed is the kind of an upload that is no form, or contradicts itself.
	Malformed Kind = iota
	// TooLarge is the kind of an upload with more modules or bytes than the limit.
	TooLarge
	// Unsupported is the kind of an upload that needs what Cloudflare has and Spokelet has not.
	Unsupported
	// Unknown is the kind of an upload with a type of binding that Cloudflare has not, either.
	Unknown
)

// Error is what a developer has to change.
type Error struct {
	Kind Kind
	// Problem is one line for a terminal. It has no value of a binding.
	Problem string
}

// Error returns the message.
func (e *Error) Error() string { return e.Problem }

func malformed(format string, args ...any) error {
	return &Error{Kind: Malformed, Problem: fmt.Sprintf(format, args...)}
}

func unsupported(format string, args ...any) error {
	return &Error{Kind: Unsupported, Problem: fmt.Sprintf(format, args...) + " is not supported"}
}

func tooLarge(format string, args ...any) error {
	return &Error{Kind: TooLarge, Problem: fmt.Sprintf(format, args...)}
}

// Read reads an upload up to the end of the form, or to the first byte beyond a limit. What it
// takes of the memory follows what arrives; it keeps that of the modules, which the caller gives
// back. Its error is an *[Error], or wraps [ErrMemory], or [ErrIncomplete] and the error of the
// body.
func Read(contentType string, body io.Reader, limits Limits, memory Memory) (*Upload, error) {
	boundary, err := boundaryOf(contentType)
	if err != nil {
		return nil, err
	}
	r := newReader(boundary, body, limits, memory)
	defer r.close()
	if err := r.read(); err != nil {
		return nil, err
	}
	if r.metadata == nil {
		return nil, malformed("the upload has no part metadata")
	}
	m, err := parseMetadata(r.metadata)
	if err != nil {
		return nil, err
	}
	up := &Upload{Script: m.script, Keep: m.keep, Message: m.message, Tag: m.tag}
	if err := up.addBindings(m.bindings); err != nil {
		return nil, err
	}
	if err := up.addModules(r.files); err != nil {
		return nil, err
	}
	return up, nil
}

func boundaryOf(contentType string) (string, error) {
	const most = 70 // RFC 2046
	kind, parameters, err := mime.ParseMediaType(contentType)
	boundary := parameters["boundary"]
	if err != nil || kind != "multipart/form-data" || boundary == "" || len(boundary) > most {
		return "", malformed("the upload is no form: its Content-Type is not multipart/form-data with a boundary of 1 to %d characters", most)
	}
	return boundary, nil
}

// quoteName returns a name as it is in a message. A terminal gets no control characters of it, and
// not all of it if it is long.
func quoteName(name string) string {
	const most = 128
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "..."
	}
	odd := func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }
	if name == "" || !utf8.ValidString(name) || strings.ContainsFunc(name, odd) {
		return strconv.Quote(name)
	}
	return name
}

// formatMebibytes returns a number of bytes in MiB.
func formatMebibytes(bytes int64) string {
	return strconv.FormatFloat(float64(bytes)/(1<<20), 'g', 4, 64) + " MiB"
}
