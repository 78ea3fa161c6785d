// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/agent/helm/message"
)

// maxRecordSize bounds a record of Helm, unpacked, in bytes. A Secret has 1 MiB at most.
const maxRecordSize = 16 << 20

// errRecord is the description of a release whose record cannot be decoded.
var errRecord = errors.New("record of a release cannot be read")

// helmRecord has the fields of Helm's record of a revision that are shown.
type helmRecord struct {
	Info struct {
		FirstDeployed lenientTime `json:"first_deployed"`
		LastDeployed  lenientTime `json:"last_deployed"`
		Description   string      `json:"description"`
		Status        string      `json:"status"`
	} `json:"info"`
	Chart struct {
		Metadata struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"metadata"`
	} `json:"chart"`
	Manifest manifest `json:"manifest"`
}

// manifest is the rendered manifest.
type manifest struct {
	// limit bounds what is decoded, in bytes of JSON; zero masks the manifest.
	limit   int
	text    string
	present bool
}

// UnmarshalJSON decodes a manifest that is within the limit, and notes any other.
func (m *manifest) UnmarshalJSON(raw []byte) error {
	if raw[0] != '"' {
		return nil
	}
	m.text, m.present = "", len(raw) > len(`""`)
	if len(raw) > m.limit {
		return nil
	}
	return json.Unmarshal(raw, &m.text)
}

// display returns what is shown of it.
func (m *manifest) display() string {
	switch {
	case !m.present:
		return ""
	case m.limit == 0:
		return message.Masked
	case m.text == "":
		return message.Omitted
	default:
		return m.text
	}
}

// lenientTime is a time, or zero for a text that is none.
type lenientTime struct{ metav1.Time }

// UnmarshalJSON accepts anything: Helm has written "" for no time.
func (m *lenientTime) UnmarshalJSON(raw []byte) error {
	var t time.Time
	if json.Unmarshal(raw, &t) == nil {
		m.Time = metav1.NewTime(t)
	}
	return nil
}

// decodeRecord decodes the record in a Secret: base64 of JSON, compressed unless it is old.
// The text of a manifest with more than limit bytes of JSON is not decoded.
func decodeRecord(obj *unstructured.Unstructured, most int) (helmRecord, error) {
	data, _, _ := unstructured.NestedString(obj.Object, "data", "release")
	raw, err := decompress(data)
	if err != nil {
		return helmRecord{}, errRecord
	}
	r := helmRecord{Manifest: manifest{limit: most}}
	if err := json.Unmarshal(raw, &r); err != nil {
		return helmRecord{}, errRecord
	}
	return r, nil
}

// decompress decompresses a record twice, to allocate exactly its size.
func decompress(data string) ([]byte, error) {
	r, err := newRecordReader(data)
	if err != nil {
		return nil, err
	}
	size, err := io.Copy(io.Discard, io.LimitReader(r, maxRecordSize+1))
	if err != nil || size > maxRecordSize {
		return nil, errors.Join(errRecord, err)
	}
	if r, err = newRecordReader(data); err != nil {
		return nil, err
	}
	raw := make([]byte, size)
	_, err = io.ReadFull(r, raw)
	return raw, err
}

// newRecordReader returns a reader of the decompressed record. The data of a Secret is base64,
// and Helm's is base64 in itself.
func newRecordReader(data string) (io.Reader, error) {
	twice := base64.NewDecoder(base64.StdEncoding, strings.NewReader(data))
	r := bufio.NewReader(base64.NewDecoder(base64.StdEncoding, twice))
	magic := []byte{0x1f, 0x8b, 0x08}
	if head, _ := r.Peek(len(magic)); !bytes.Equal(head, magic) {
		return r, nil
	}
	return gzip.NewReader(r)
}
