// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
)

// document is a JSON object of the API server, read item by item so that one
// cut at its bound is still of use.
type document struct {
	Kind       string
	APIVersion string
	Metadata   metav1.ListMeta
	columns    json.RawMessage
	items      []json.RawMessage
	list       bool // it has items or rows
	cut        bool // it went on behind the bound
}

// read reads the answer to the question.
func (q *question) read(body *bounded, r resource) (*livev1alpha1.ClusterView, error) {
	if q.name != "" && q.output != livev1alpha1.OutputTable {
		return readObject(body)
	}
	d, err := readDocument(body)
	if err != nil {
		return nil, err
	}
	if !d.list {
		return nil, fmt.Errorf("answer: it is no list but a %q", d.Kind)
	}
	view := &livev1alpha1.ClusterView{
		ResourceVersion: d.Metadata.ResourceVersion,
		ItemCount:       int64(len(d.items)),
		Complete:        !d.cut && d.Metadata.Continue == "",
	}
	if !d.cut {
		view.Continue = d.Metadata.Continue
		view.Remaining = d.Metadata.RemainingItemCount
	}
	if q.output == livev1alpha1.OutputTable {
		view.Table, err = d.table()
		return view, err
	}
	view.Objects = d.objects(r)
	return view, nil
}

// readObject reads an answer that is one object.
func readObject(body *bounded) (*livev1alpha1.ClusterView, error) {
	raw, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	object := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(raw, object); err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	return &livev1alpha1.ClusterView{
		Objects:         []runtime.RawExtension{{Raw: raw}},
		ResourceVersion: object.ResourceVersion,
		ItemCount:       1,
		Complete:        true,
	}, nil
}

// readDocument reads a list or table. Reaching the bound is no error once the
// items have begun; any other early end is.
func readDocument(body *bounded) (*document, error) {
	d, dec := &document{}, json.NewDecoder(body)
	err := d.decode(dec)
	switch {
	case err == nil:
		// The end of the body is where a cut stream would show.
		if _, err = io.Copy(io.Discard, body.ReadCloser); err != nil {
			return nil, fmt.Errorf("answer: %w", err)
		}
		return d, nil
	case errors.Is(err, errTooLarge) && d.list:
		d.cut = true
		return d, nil
	default:
		return nil, fmt.Errorf("answer: %w", err)
	}
}

func (d *document) decode(dec *json.Decoder) error {
	return members(dec, func(key string) error { return d.member(dec, key) })
}

func (d *document) member(dec *json.Decoder, key string) error {
	switch key {
	case "kind":
		return dec.Decode(&d.Kind)
	case "apiVersion":
		return dec.Decode(&d.APIVersion)
	case "metadata":
		return dec.Decode(&d.Metadata)
	case "columnDefinitions":
		return dec.Decode(&d.columns)
	case "items", "rows":
		d.list = true
		return elements(dec, func() error {
			var item json.RawMessage
			if err := dec.Decode(&item); err != nil {
				return err
			}
			d.items = append(d.items, item)
			return nil
		})
	default:
		return skip(dec)
	}
}

// objects are the items, each with its type. Lists of built-in types leave it
// out of their items.
func (d *document) objects(r resource) []runtime.RawExtension {
	objects := make([]runtime.RawExtension, len(d.items))
	var prefix []byte
	if len(d.items) > 0 && !hasType(d.items[0]) {
		prefix = fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q`, r.gv.String(), r.kind)
	}
	for i, item := range d.items {
		objects[i].Raw = withType(item, prefix)
	}
	return objects
}

func hasType(item json.RawMessage) bool {
	var t metav1.TypeMeta
	return json.Unmarshal(item, &t) == nil && t.Kind != ""
}

func withType(item json.RawMessage, prefix []byte) []byte {
	rest, ok := bytes.CutPrefix(item, []byte("{"))
	if prefix == nil || !ok {
		return item
	}
	typed := make([]byte, 0, len(prefix)+1+len(rest))
	typed = append(typed, prefix...)
	if rest = bytes.TrimLeft(rest, " \t\r\n"); !bytes.HasPrefix(rest, []byte("}")) {
		typed = append(typed, ',')
	}
	return append(typed, rest...)
}

// table is the Table with the rows that were read.
func (d *document) table() (*runtime.RawExtension, error) {
	raw, err := json.Marshal(struct {
		Kind       string            `json:"kind"`
		APIVersion string            `json:"apiVersion"`
		Metadata   metav1.ListMeta   `json:"metadata"`
		Columns    json.RawMessage   `json:"columnDefinitions,omitempty"`
		Rows       []json.RawMessage `json:"rows"`
	}{d.Kind, d.APIVersion, d.Metadata, d.columns, d.items})
	if err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	return &runtime.RawExtension{Raw: raw}, nil
}
