// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"strings"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

const (
	// maxMetadata bounds the metadata, in bytes.
	maxMetadata = 1 << 20
	// maxHeader bounds what is between two parts, in bytes: headers, and what precedes the first.
	maxHeader = 64 << 10
	// moreParts are how many parts an upload may have besides its modules: metadata, source maps.
	moreParts = 8
	// smallPart is what is allocated for parts first, in bytes.
	smallPart = 64 << 10

	metadataPart = "metadata"
)

// reader holds what was read of a body so far.
type reader struct {
	limits        Limits
	body          *boundedBody
	parts         *multipart.Reader
	names         map[string]bool // of all parts but the metadata
	metadata      []byte
	files         []File
	remaining     int64 // of the bytes of modules
	remainingMaps int64 // of those of source maps
	memory        Memory
	buffer        []byte // where a part is read into before its length is known
}

func newReader(boundary string, body io.Reader, limits Limits, memory Memory) *reader {
	src := &boundedBody{body: body}
	most := max(limits.MaxBytes, 0)
	return &reader{
		limits: limits, body: src, parts: multipart.NewReader(src, boundary), names: map[string]bool{},
		remaining: most, remainingMaps: most, memory: memory,
	}
}

// close gives the buffer back.
func (r *reader) close() { r.memory.Shrink(int64(cap(r.buffer))) }

// read reads all parts.
func (r *reader) read() error {
	for {
		r.body.expectHeader()
		// NextPart would decode a Content-Transfer-Encoding, which RFC 7578 has not.
		part, err := r.parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return nil // A body that ends too early has io.ErrUnexpectedEOF, see source.
		}
		if err != nil {
			return r.readError()
		}
		r.body.expectContent()
		if err := r.readPart(part); err != nil {
			return err
		}
	}
}

// readPart reads one. FileName would take the folders off its name.
func (r *reader) readPart(part *multipart.Part) error {
	name := part.FormName()
	if name == metadataPart {
		return r.readMetadata(part)
	}
	name, err := moduleName(name)
	if err != nil {
		return err
	}
	if r.names[name] {
		return malformed("module %s: there are two of this name", quoteName(name))
	}
	r.names[name] = true
	if most := r.limits.MaxModules + moreParts; len(r.names) > most {
		return tooLarge("the upload has more than %d parts, which is the limit", most)
	}
	kind, _, err := mime.ParseMediaType(cmp.Or(part.Header.Get("Content-Type"), release.TypeData))
	if err != nil {
		return malformed("module %s: its Content-Type is none", quoteName(name))
	}
	if kind == typeSourceMap {
		return r.skipSourceMap(part)
	}
	return r.readModule(name, kind, part)
}

func (r *reader) readMetadata(part io.Reader) error {
	if r.metadata != nil {
		return malformed("the upload has two parts metadata")
	}
	raw, err := r.readContent(part, maxMetadata)
	switch {
	case errors.Is(err, errLimit):
		return tooLarge("the metadata has more than %s, which is the limit", formatMebibytes(maxMetadata))
	case errors.Is(err, ErrMemory):
		return err
	case err != nil:
		return r.readError()
	}
	r.metadata = raw
	return nil
}

func (r *reader) readModule(name, kind string, part io.Reader) error {
	if len(r.files) >= r.limits.MaxModules {
		return tooLarge("the script has more than %d modules, which is the limit", r.limits.MaxModules)
	}
	content, err := r.readContent(part, r.remaining)
	switch {
	case errors.Is(err, errLimit):
		return tooLarge("the script has more than %s, which is the limit", formatMebibytes(r.limits.MaxBytes))
	case errors.Is(err, ErrMemory):
		return err
	case err != nil:
		return r.readError()
	}
	r.remaining -= int64(len(content))
	r.files = append(r.files, File{Name: name, Type: kind, Content: content})
	return nil
}

// skipSourceMap reads a source map, and keeps nothing of it.
func (r *reader) skipSourceMap(part io.Reader) error {
	n, err := io.Copy(io.Discard, io.LimitReader(part, r.remainingMaps+1))
	if r.remainingMaps -= n; r.remainingMaps < 0 {
		return tooLarge("the source maps have more than %s, which is the limit", formatMebibytes(r.limits.MaxBytes))
	}
	if err != nil {
		return r.readError()
	}
	return nil
}

// readError is why the last read failed. An error of mime/multipart repeats lines of the body,
// which may have secrets.
func (r *reader) readError() error {
	switch {
	case r.body.err != nil:
		return fmt.Errorf("%w: %w", ErrIncomplete, r.body.err)
	case r.body.tooLong:
		return malformed("the upload has more than %d bytes that belong to no part, or in the header of one", maxHeader)
	}
	return malformed("the upload is no form: a line that separates two parts, or the header of a part, is wrong")
}

var errLimit = errors.New("limit exceeded")

// readContent returns a part, whose length is known when it has ended.
func (r *reader) readContent(from io.Reader, most int64) ([]byte, error) {
	n := 0
	for {
		if n == cap(r.buffer) {
			if err := r.growBuffer(most); err != nil {
				return nil, err
			}
		}
		read, err := from.Read(r.buffer[n:min(int64(cap(r.buffer)), most+1)])
		n += read
		if int64(n) > most {
			return nil, errLimit
		}
		if errors.Is(err, io.EOF) {
			if err := r.growMemory(int64(n)); err != nil {
				return nil, err
			}
			return append(make([]byte, 0, n), r.buffer[:n]...), nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// growBuffer makes the buffer twice as large, or as large as a part of most bytes needs it.
func (r *reader) growBuffer(most int64) error {
	old := int64(cap(r.buffer))
	size := min(max(2*old, smallPart), max(most+1, smallPart))
	if err := r.growMemory(size); err != nil {
		return err
	}
	r.buffer = append(make([]byte, 0, size), r.buffer[:old]...)[:size]
	r.memory.Shrink(old)
	return nil
}

func (r *reader) growMemory(n int64) error {
	if err := r.memory.Grow(n); err != nil {
		return fmt.Errorf("%w: %w", ErrMemory, err)
	}
	return nil
}

// boundedBody is the body as multipart.Reader may read it. That reader itself would hold a header of
// 10 MiB, skip lines without end before the first part, and take a body that ends after the
// line before a part for a whole one: it returns io.EOF for both.
type boundedBody struct {
	body io.Reader
	// remaining is what may be read before a part begins; bounded says whether one is awaited.
	remaining int
	bounded   bool
	// tooLong: left was exceeded.
	tooLong bool
	// ended: the body had io.EOF, and what follows it is still to be read.
	ended  bool
	follow strings.Reader
	// err is that of the body, io.ErrUnexpectedEOF if the reader wants more than there is.
	err error
}

func (s *boundedBody) expectHeader()  { s.bounded, s.remaining = true, maxHeader }
func (s *boundedBody) expectContent() { s.bounded = false }

func (s *boundedBody) Read(p []byte) (int, error) {
	if s.bounded {
		p = p[:min(len(p), s.remaining)]
	}
	switch {
	case s.err != nil:
		return 0, s.err
	case len(p) == 0:
		s.tooLong = true
		return 0, errLimit
	case s.ended:
		return s.readTrailer(p)
	}
	n, err := s.body.Read(p)
	s.remaining -= n
	switch {
	case errors.Is(err, io.EOF):
		// The last line may end with the body, and the reader needs the line break to know
		// that it is whole.
		s.ended = true
		s.follow.Reset("\r\n")
	case err != nil:
		s.err = err
	}
	return n, nil
}

func (s *boundedBody) readTrailer(p []byte) (int, error) {
	if n, err := s.follow.Read(p); err == nil {
		return n, nil
	}
	s.err = io.ErrUnexpectedEOF
	return 0, s.err
}
