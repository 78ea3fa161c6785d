// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ignorefields removes the fields from a manifest that a server-side apply
// must not set, according to the ignoreFields of a ManifestWork's update strategy.
//
// OnSpokePresent fields are left out once the object exists. OnSpokeChange fields
// are always applied; they differ in that they count in the hash, by which an
// apply is skipped until the manifest changes.
//
// Paths are compiled once per spec. Everything is bounded: the length of a path, what
// it visits, and for jq the time, the steps and the functions, so that the steps
// bound what an expression allocates.
package ignorefields

import (
	"context"
	"crypto/md5" //nolint:gosec // the hash of OCM's annotation; it detects changes and protects nothing
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/jsonpath"
)

// maxPath bounds a JSON pointer, a JSONPath and a jq expression, in bytes.
const maxPath = 4096

var (
	errPathLength = fmt.Errorf("path is longer than %d bytes", maxPath)
	errNoField    = errors.New("path names no field")
)

// Fields are the compiled ignoreFields of one manifest. Nil ignores nothing.
type Fields struct{ removals []removal }

// removal removes fields from a document, in place where it can, and returns it.
type removal func(ctx context.Context, doc map[string]any) (map[string]any, error)

// Pruned is a manifest without the ignored fields.
type Pruned struct {
	// Object is to be applied. It shares nothing with the manifest if fields were
	// removed, and is the manifest itself otherwise.
	Object map[string]any
	// Hash is the value of the annotation workv1.ManifestConfigSpecHashAnnotationKey
	// of the applied object. If the live object has the same, the apply is skipped.
	// It is empty without ignoreFields.
	Hash string
}

// Compile compiles fields. After its error, an [*ExpressionError], nothing of the manifest
// may be applied. A JSONPath that cannot be parsed is skipped, as in OCM.
func Compile(ignored []workv1.IgnoreField) (*Fields, error) {
	if len(ignored) == 0 {
		return nil, nil
	}
	f := &Fields{}
	for _, entry := range ignored {
		removals, err := compile(entry)
		if err != nil {
			return nil, err
		}
		if entry.Condition != workv1.IgnoreFieldsConditionOnSpokeChange {
			f.removals = append(f.removals, removals...)
		}
	}
	return f, nil
}

func compile(entry workv1.IgnoreField) ([]removal, error) {
	var removals []removal
	for _, text := range entry.JSONPaths {
		if p, err := parsePath(text); err == nil {
			removals = append(removals, removePath("JSON Path", text, p))
		}
	}
	for _, text := range entry.JSONPointers {
		p, err := parsePointer(text)
		if err != nil {
			return nil, &ExpressionError{Kind: "JSON Pointer", Expression: text, Err: err}
		}
		removals = append(removals, removePath("JSON Pointer", text, p))
	}
	for _, text := range entry.JQPathExpressions {
		q, err := parseQuery(text)
		if err != nil {
			return nil, queryError(text, err)
		}
		removals = append(removals, q.remove)
	}
	return removals, nil
}

// parsePath parses a JSONPath with braces or without.
func parsePath(text string) (jsonpath.Path, error) {
	if len(text) > maxPath {
		return jsonpath.Path{}, errPathLength
	}
	if inner, ok := strings.CutPrefix(text, "{"); ok {
		text = strings.TrimSuffix(inner, "}")
	}
	p, err := jsonpath.Parse(text)
	if err == nil && p.IsRoot() {
		err = errNoField
	}
	return p, err
}

func parsePointer(text string) (jsonpath.Path, error) {
	if len(text) > maxPath {
		return jsonpath.Path{}, errPathLength
	}
	return jsonpath.ParsePointer(text)
}

func removePath(kind, text string, p jsonpath.Path) removal {
	return func(_ context.Context, doc map[string]any) (map[string]any, error) {
		steps := jsonpath.MaxSteps
		if err := p.Remove(doc, &steps); err != nil {
			return nil, &ExpressionError{Kind: kind, Expression: text, Err: err}
		}
		return doc, nil
	}
}

// Prune returns what to apply of a manifest whose object exists, or does not: then
// it is the whole manifest. The manifest is not changed. Its numbers may be json.Number.
// The error is an [*ExpressionError].
func (f *Fields) Prune(ctx context.Context, manifest map[string]any, exists bool) (Pruned, error) {
	if f == nil {
		return Pruned{Object: manifest}, nil
	}
	rest := manifest
	if len(f.removals) > 0 {
		rest = runtime.DeepCopyJSON(manifest)
	}
	for _, remove := range f.removals {
		var err error
		if rest, err = remove(ctx, rest); err != nil {
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

// hash returns the MD5 of an object's JSON, with sorted keys, in hex.
func hash(obj map[string]any) (string, error) {
	text, err := json.Marshal(obj)
	if err != nil {
		return "", fmt.Errorf("encode manifest: %w", err)
	}
	sum := md5.Sum(text) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:]), nil
}

// ExpressionError is returned for a JSON pointer or jq expression that cannot be compiled
// or fails, and for a JSONPath that takes too many steps.
type ExpressionError struct {
	// Kind is "JSON Pointer", "JSON Path" or "JQ expression".
	Kind, Expression string
	Err              error
}

// Error has the text of OCM's errors.
func (e *ExpressionError) Error() string {
	return fmt.Sprintf("%s error in '%s': %v", e.Kind, e.Expression, e.Err)
}

// Unwrap returns the cause.
func (e *ExpressionError) Unwrap() error { return e.Err }

func queryError(text string, err error) error {
	return &ExpressionError{Kind: "JQ expression", Expression: text, Err: err}
}
