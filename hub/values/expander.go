// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package values

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// referencePrefix begins a reference.
const referencePrefix = "$(cluster."

// Expander replaces the references in the manifests of one work.
type Expander struct {
	cluster Cluster
	// remaining is how many bytes the manifests that are still to come may have.
	remaining int
	// inserted is how many bytes of values the manifest at hand has so far.
	inserted   int
	references References
}

// NewExpander returns an Expander for manifests that may have limit bytes together.
func NewExpander(cluster Cluster, limit int) *Expander {
	return &Expander{cluster: cluster, remaining: limit, references: References{}}
}

// References returns the references that were met so far. After an error they are those that
// the error depends on: with the same values it comes again.
func (e *Expander) References() References { return e.references }

// ExpandManifest returns a manifest, which is JSON, with its references replaced. One that has
// none is returned as it is. The argument is not changed.
func (e *Expander) ExpandManifest(raw []byte) ([]byte, error) {
	out := raw
	if mayHaveReferences(raw) {
		tree, err := decode(raw)
		if err != nil {
			return nil, err
		}
		e.inserted = 0
		if tree, err = e.expandRoot(tree); err != nil {
			return nil, err
		}
		if out, err = encode(tree); err != nil {
			return nil, err
		}
	}
	if e.remaining -= len(out); e.remaining < 0 {
		return nil, ErrTooLarge
	}
	return out, nil
}

// mayHaveReferences tells whether a manifest has to be decoded. A character may be escaped in JSON.
func mayHaveReferences(raw []byte) bool {
	return bytes.Contains(raw, []byte(referencePrefix)) || bytes.Contains(raw, []byte(`\u`))
}

func decode(raw []byte) (tree any, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber() // as float64 a large integer would be another
	if err := d.Decode(&tree); err != nil {
		return nil, fmt.Errorf("decode manifest: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("decode manifest: more than one value")
	}
	return tree, nil
}

func encode(tree any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(tree); err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// expandRoot replaces the references of a whole manifest, unless there is one where the
// hub's policies look.
func (e *Expander) expandRoot(tree any) (any, error) {
	root, _ := tree.(map[string]any)
	metadata, _ := root["metadata"].(map[string]any)
	for _, judged := range []struct {
		path  string
		value any
	}{
		{"apiVersion", root["apiVersion"]},
		{"kind", root["kind"]},
		{"metadata.namespace", metadata["namespace"]},
		{"metadata.name", metadata["name"]},
		{"metadata.generateName", metadata["generateName"]},
	} {
		if text, ok := judged.value.(string); ok && strings.Contains(text, referencePrefix) {
			return nil, fmt.Errorf("%s %w: %s", judged.path, ErrForbiddenField, quoteBounded(text))
		}
	}
	return e.expandTree(tree)
}

// quoteBounded shows a text in an error.
func quoteBounded(text string) string { return fmt.Sprintf("%.*q", maxQuoted, text) }

// expandTree replaces the references below a value, in place. Maps are walked in the order of
// their keys, so that of several errors always the same one is told.
func (e *Expander) expandTree(value any) (any, error) {
	switch v := value.(type) {
	case string:
		return e.expandString(v)
	case []any:
		for i := range v {
			next, err := e.expandTree(v[i])
			if err != nil {
				return nil, err
			}
			v[i] = next
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			next, err := e.expandTree(v[key])
			if err != nil {
				return nil, err
			}
			v[key] = next
		}
	}
	return value, nil
}

// expandString replaces the references in a string. Values are not looked at again.
func (e *Expander) expandString(rest string) (string, error) {
	var out strings.Builder
	for {
		at := strings.Index(rest, referencePrefix)
		if at < 0 {
			out.WriteString(rest)
			return out.String(), nil
		}
		// Of the dollars before a parenthesis each pair stands for one, and what is left
		// over begins a reference: as in $(VAR) of containers. Elsewhere pairs stay.
		before := strings.TrimRight(rest[:at], "$")
		dollars := at - len(before) + 1
		out.WriteString(before)
		out.WriteString(strings.Repeat("$", dollars/2))
		rest = rest[at+len("$"):]
		if dollars%2 == 0 {
			out.WriteString(rest[:len("(cluster.")])
			rest = rest[len("(cluster."):]
			continue
		}
		end := strings.IndexByte(rest, ')')
		if end < 0 {
			return "", fmt.Errorf("%s has no end", quoteBounded("$"+rest))
		}
		value, err := e.resolve(rest[len("("):end])
		if err != nil {
			return "", err
		}
		out.WriteString(value)
		rest = rest[end+len(")"):]
	}
}

// resolve returns what a reference stands for.
func (e *Expander) resolve(reference string) (string, error) {
	v, err := e.cluster.resolve(reference)
	if err != nil {
		return "", err
	}
	e.references[reference] = v
	if !v.Set {
		return "", fmt.Errorf("%s: %w", quoteReference(reference), ErrNoValue)
	}
	// Looked at before all is encoded: a short reference may stand for a long value.
	if e.inserted += len(v.Text); e.inserted > e.remaining {
		return "", ErrTooLarge
	}
	return v.Text, nil
}
