// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ignorefields takes the fields out of a manifest that a server-side apply
// shall not set, as the ignoreFields of a ManifestWork's update strategy say.
//
// OnSpokePresent fields are left out once the object exists. OnSpokeChange fields
// are always applied; they differ in that they count in the hash, by which an
// apply is skipped until the manifest changes.
//
// Paths are compiled once per spec. Everything is bounded: the length of a path,
// recursion, and for jq the time, the steps and the functions, so that what an
// expression may allocate follows from the steps.
package ignorefields

import (
	"context"
	"crypto/md5" //nolint:gosec // the hash of OCM's annotation; it tells change, it guards nothing
	"encoding/hex"
	"encoding/json"
	"fmt"

	workv1 "open-cluster-management.io/api/work/v1"
)

// Fields are the compiled ignoreFields of one manifest. Nil ignores nothing.
type Fields struct {
	present []removal
	noted   []error
}

// removal takes fields out of a document, in place where it can, and returns it.
type removal func(ctx context.Context, doc map[string]any) (map[string]any, error)

// Pruned is a manifest and what it is compared by.
type Pruned struct {
	// Object is to be applied. It shares nothing with the manifest if anything
	// was to be left out, and is the manifest itself otherwise.
	Object map[string]any
	// Hash belongs into the annotation workv1.ManifestConfigSpecHashAnnotationKey
	// of the applied object. If the live object has the same, the apply is skipped.
	// It is empty without ignoreFields.
	Hash string
}

// Compile prepares fields. The error is a *PointerError or a *QueryError: nothing
// of the manifest may be applied then. A JSONPath that cannot be read is noted and
// left out, as OCM does.
func Compile(ignored []workv1.IgnoreField) (*Fields, error) {
	if len(ignored) == 0 {
		return nil, nil
	}
	f := &Fields{}
	for _, entry := range ignored {
		steps, err := f.compile(entry)
		if err != nil {
			return nil, err
		}
		if entry.Condition != workv1.IgnoreFieldsConditionOnSpokeChange {
			f.present = append(f.present, steps...)
		}
	}
	return f, nil
}

func (f *Fields) compile(entry workv1.IgnoreField) ([]removal, error) {
	var steps []removal
	for _, text := range entry.JSONPaths {
		p, err := parsePath(text)
		if err != nil {
			f.noted = append(f.noted, fmt.Errorf("JSON path %q is ignored: %w", text, err))
			continue
		}
		steps = append(steps, p.remove)
	}
	for _, text := range entry.JSONPointers {
		p, err := parsePointer(text)
		if err != nil {
			return nil, &PointerError{Pointer: text, Err: err}
		}
		steps = append(steps, p.remove)
	}
	for _, text := range entry.JQPathExpressions {
		q, err := parseQuery(text)
		if err != nil {
			return nil, &QueryError{Expression: text, Err: err}
		}
		steps = append(steps, q.remove)
	}
	return steps, nil
}

// Noted lists the JSONPaths that were left out, and why.
func (f *Fields) Noted() []error {
	if f == nil {
		return nil
	}
	return f.noted
}

// Prune returns what to apply of a manifest when its object exists, or not: then
// it is the whole. The manifest is not changed. Its numbers may be json.Number.
// The error is a *QueryError.
func (f *Fields) Prune(ctx context.Context, manifest map[string]any, exists bool) (Pruned, error) {
	if f == nil {
		return Pruned{Object: manifest}, nil
	}
	rest := manifest
	if len(f.present) > 0 {
		rest = cloneMap(manifest)
	}
	for _, step := range f.present {
		var err error
		if rest, err = step(ctx, rest); err != nil {
			return Pruned{}, err
		}
	}
	hash, err := hash(rest)
	if err != nil {
		return Pruned{}, err
	}
	if !exists {
		rest = manifest
	}
	return Pruned{Object: rest, Hash: hash}, nil
}

// hash is the MD5 of an object's JSON, with sorted keys, in hex.
func hash(obj map[string]any) (string, error) {
	text, err := json.Marshal(obj)
	if err != nil {
		return "", fmt.Errorf("encode manifest: %w", err)
	}
	sum := md5.Sum(text) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:]), nil
}

// PointerError tells which JSON pointer cannot be read.
type PointerError struct {
	Pointer string
	Err     error
}

// Error is in OCM's words.
func (e *PointerError) Error() string {
	return fmt.Sprintf("JSON Pointer error in '%s': %v", e.Pointer, e.Err)
}

// Unwrap returns why.
func (e *PointerError) Unwrap() error { return e.Err }

// QueryError tells which jq expression cannot be compiled or failed.
type QueryError struct {
	Expression string
	Err        error
}

// Error is in OCM's words.
func (e *QueryError) Error() string {
	return fmt.Sprintf("JQ expression error in '%s': %v", e.Expression, e.Err)
}

// Unwrap returns why.
func (e *QueryError) Unwrap() error { return e.Err }
