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
	"github.com/spokelet/spokelet/internal/jsonstream"
)

// What an answer takes of memory beside its bytes.
const (
	// decodeCost is what a byte takes until the value that it is of was read whole:
	// the decoder's buffer is up to twice as large as what is in it, and holds the
	// smaller one while it grows, or the value is copied out of it.
	decodeCost = 3
	// itemOverhead is an item's place in a slice that grows, and what the allocator
	// rounds up to.
	itemOverhead = 128
	// maxMetadata bounds what is kept of an answer's kind, version and metadata.
	maxMetadata = 64 << 10
)

// listDecoder is a JSON object of the API server, read item by item so that one
// cut at its bound is still of use.
type listDecoder struct {
	Kind        string
	APIVersion  string
	Metadata    metav1.ListMeta
	columns     json.RawMessage
	items       []runtime.RawExtension
	isList      bool // it has items or rows
	isTruncated bool // it went on behind the bound

	dec        *json.Decoder
	typePrefix func(first json.RawMessage) []byte // the type that items are given
	prefix     []byte                             // what typ said of the first
	remaining  int64                              // bytes that may still be kept
	memory     memoryReservation
	released   int64 // offset up to which reading was given back
}

// readResponse reads the response of a cluster. What is kept counts against the reservation,
// which the caller closes.
func (q *viewQuery) readResponse(body io.ReadCloser, limit int64, held memoryReservation, r resource) (*livev1alpha1.ClusterView, error) {
	in := &accountedBody{limitedReader: limitedReader{ReadCloser: body, remaining: limit}, memory: held}
	if q.name != "" && q.output != livev1alpha1.OutputTable {
		return readObject(in)
	}
	d := &listDecoder{dec: json.NewDecoder(in), remaining: limit, memory: held, typePrefix: r.typePrefix}
	if q.output == livev1alpha1.OutputTable {
		d.typePrefix = func(json.RawMessage) []byte { return nil }
	}
	if err := d.decode(in); err != nil {
		return nil, err
	}
	if !d.isList {
		return nil, fmt.Errorf("answer: it is no list but a %q", d.Kind)
	}
	view := &livev1alpha1.ClusterView{
		ResourceVersion: d.Metadata.ResourceVersion,
		ItemCount:       int64(len(d.items)),
		Complete:        !d.isTruncated && d.Metadata.Continue == "",
	}
	if !d.isTruncated {
		view.Continue = d.Metadata.Continue
		view.Remaining = d.Metadata.RemainingItemCount
	}
	if q.output == livev1alpha1.OutputTable {
		var err error
		view.Table, err = d.encodeTable()
		return view, err
	}
	view.Objects = d.items
	return view, nil
}

// accountedBody is the body of a response, each byte of which counts against the reservation
// once it is read.
type accountedBody struct {
	limitedReader
	memory memoryReservation
}

func (p *accountedBody) Read(b []byte) (int, error) {
	n, err := p.limitedReader.Read(b)
	if held := p.memory.grow(decodeCost * int64(n)); held != nil {
		return 0, held
	}
	return n, err
}

// readObject reads an answer that is one object. Of its metadata nothing is decoded
// but what is needed: eight megabytes of managed fields would become a hundred times
// as much.
func readObject(body *accountedBody) (*livev1alpha1.ClusterView, error) {
	raw, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	var object struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	if len(object.Metadata.ResourceVersion) > maxMetadata {
		return nil, fmt.Errorf("answer: %w", errMetadataTooLong)
	}
	return &livev1alpha1.ClusterView{
		Objects:         []runtime.RawExtension{{Raw: raw}},
		ResourceVersion: object.Metadata.ResourceVersion,
		ItemCount:       1,
		Complete:        true,
	}, nil
}

// decode reads a list or table. Reaching the bound is no error once the items have
// begun; any other early end is.
func (d *listDecoder) decode(body *accountedBody) error {
	err := jsonstream.Members(d.dec, d.decodeMember)
	switch {
	case err == nil:
		// The end of the body is where a cut stream would show.
		if _, err = io.Copy(io.Discard, body.ReadCloser); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	case errors.Is(err, errTooLarge) && d.isList:
		d.isTruncated = true
	default:
		return fmt.Errorf("answer: %w", err)
	}
	if len(d.Kind)+len(d.APIVersion)+len(d.Metadata.ResourceVersion)+len(d.Metadata.Continue) > maxMetadata {
		return fmt.Errorf("answer: %w", errMetadataTooLong)
	}
	m := &d.Metadata
	*m = metav1.ListMeta{ResourceVersion: m.ResourceVersion, Continue: m.Continue, RemainingItemCount: m.RemainingItemCount}
	return nil
}

func (d *listDecoder) decodeMember(key string) error {
	defer d.releaseDecoded()
	switch key {
	case "kind":
		return d.dec.Decode(&d.Kind)
	case "apiVersion":
		return d.dec.Decode(&d.APIVersion)
	case "metadata":
		return d.dec.Decode(&d.Metadata)
	case "columnDefinitions":
		if err := d.dec.Decode(&d.columns); err != nil {
			return err
		}
		return d.reserve(int64(len(d.columns)))
	case "items", "rows":
		d.isList = true
		return jsonstream.Elements(d.dec, d.decodeItem)
	default:
		return jsonstream.Skip(d.dec)
	}
}

// decodeItem takes in an item, with its type if it lacks one.
func (d *listDecoder) decodeItem() error {
	defer d.releaseDecoded()
	var item json.RawMessage
	if err := d.dec.Decode(&item); err != nil {
		return err
	}
	if len(d.items) == 0 {
		d.prefix = d.typePrefix(item)
	}
	if err := d.reserve(itemOverhead + int64(len(d.prefix)+len(",")+len(item))); err != nil {
		return err
	}
	d.items = append(d.items, runtime.RawExtension{Raw: addType(item, d.prefix)})
	return nil
}

// reserve takes n bytes of what is kept of the answer into account.
func (d *listDecoder) reserve(n int64) error {
	if d.remaining -= n; d.remaining < 0 {
		return errTooLarge
	}
	return d.memory.grow(n)
}

// releaseDecoded gives back what the reading of values took that have been read.
func (d *listDecoder) releaseDecoded() {
	at := d.dec.InputOffset()
	d.memory.shrink(decodeCost * (at - d.released))
	d.released = at
}

// typePrefix is what the items of a list begin with when the first has no type. Lists
// of built-in types leave it out of their items.
func (r resource) typePrefix(first json.RawMessage) []byte {
	var t struct {
		Kind string `json:"kind"`
	}
	if json.Unmarshal(first, &t) == nil && t.Kind != "" {
		return nil
	}
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q`, r.gv.String(), r.kind)
}

func addType(item json.RawMessage, prefix []byte) []byte {
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

// encodeTable is the Table with the rows that were read.
func (d *listDecoder) encodeTable() (*runtime.RawExtension, error) {
	head, err := json.Marshal(struct {
		Kind       string          `json:"kind"`
		APIVersion string          `json:"apiVersion"`
		Metadata   metav1.ListMeta `json:"metadata"`
	}{d.Kind, d.APIVersion, d.Metadata})
	if err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	const columns, rows = `,"columnDefinitions":`, `,"rows":[`
	size := len(head) + len(columns) + len(d.columns) + len(rows) + len("]}")
	for _, row := range d.items {
		size += len(row.Raw) + len(",")
	}
	if err := d.memory.grow(int64(size)); err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	raw := append(make([]byte, 0, size), head[:len(head)-len("}")]...)
	if d.columns != nil {
		raw = append(append(raw, columns...), d.columns...)
	}
	raw = append(raw, rows...)
	for i, row := range d.items {
		if i > 0 {
			raw = append(raw, ',')
		}
		raw = append(raw, row.Raw...)
	}
	d.items = nil
	return &runtime.RawExtension{Raw: append(raw, "]}"...)}, nil
}
