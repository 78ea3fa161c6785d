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

// errRecord is said of the release.
var errRecord = errors.New("record of a release cannot be read")

// helmRecord is what is read of a record of Helm.
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

// manifest is what was rendered.
type manifest struct {
	// limit is how much is read of it, in bytes of JSON; nothing where it is masked.
	limit   int
	text    string
	present bool
}

// UnmarshalJSON reads a manifest that is to be shown, and notes any other.
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

// display is what is shown of it.
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

// lenientTime is a time, or a text that is none.
type lenientTime struct{ metav1.Time }

// UnmarshalJSON takes anything: Helm has written "" for no time.
func (m *lenientTime) UnmarshalJSON(raw []byte) error {
	var t time.Time
	if json.Unmarshal(raw, &t) == nil {
		m.Time = metav1.NewTime(t)
	}
	return nil
}

// decodeRecord reads the record in a Secret: base64 of JSON, packed unless it is old. Of a
// manifest it reads most bytes of JSON; a longer one is there, without its text.
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

// decompress reads a record twice, so that memory is taken once, and for what it is.
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

// newRecordReader is a record without what it is packed in. The data of every Secret is base64,
// and Helm's is base64 itself.
func newRecordReader(data string) (io.Reader, error) {
	twice := base64.NewDecoder(base64.StdEncoding, strings.NewReader(data))
	r := bufio.NewReader(base64.NewDecoder(base64.StdEncoding, twice))
	magic := []byte{0x1f, 0x8b, 0x08}
	if head, _ := r.Peek(len(magic)); !bytes.Equal(head, magic) {
		return r, nil
	}
	return gzip.NewReader(r)
}
