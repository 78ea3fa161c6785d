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

// maxRecord bounds a record of Helm, unpacked, in bytes. A Secret has 1 MiB at most.
const maxRecord = 16 << 20

// errRecord is said of the release.
var errRecord = errors.New("record of a release cannot be read")

// record is what is read of a record of Helm.
type record struct {
	Info struct {
		FirstDeployed moment `json:"first_deployed"`
		LastDeployed  moment `json:"last_deployed"`
		Description   string `json:"description"`
		Status        string `json:"status"`
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
	// most is how much is read of it, in bytes of JSON; nothing where it is masked.
	most  int
	text  string
	there bool
}

// UnmarshalJSON reads a manifest that is to be shown, and notes any other.
func (m *manifest) UnmarshalJSON(raw []byte) error {
	if raw[0] != '"' {
		return nil
	}
	m.text, m.there = "", len(raw) > len(`""`)
	if len(raw) > m.most {
		return nil
	}
	return json.Unmarshal(raw, &m.text)
}

// shown is what is shown of it.
func (m *manifest) shown() string {
	switch {
	case !m.there:
		return ""
	case m.most == 0:
		return message.Masked
	case m.text == "":
		return message.Omitted
	default:
		return m.text
	}
}

// moment is a time, or a text that is none.
type moment struct{ metav1.Time }

// UnmarshalJSON takes anything: Helm has written "" for no time.
func (m *moment) UnmarshalJSON(raw []byte) error {
	var t time.Time
	if json.Unmarshal(raw, &t) == nil {
		m.Time = metav1.NewTime(t)
	}
	return nil
}

// readRecord reads the record in a Secret: base64 of JSON, packed unless it is old. Of a
// manifest it reads most bytes of JSON; a longer one is there, without its text.
func readRecord(obj *unstructured.Unstructured, most int) (record, error) {
	data, _, _ := unstructured.NestedString(obj.Object, "data", "release")
	raw, err := unpack(data)
	if err != nil {
		return record{}, errRecord
	}
	r := record{Manifest: manifest{most: most}}
	if err := json.Unmarshal(raw, &r); err != nil {
		return record{}, errRecord
	}
	return r, nil
}

// unpack reads a record twice, so that memory is taken once, and for what it is.
func unpack(data string) ([]byte, error) {
	r, err := unpacked(data)
	if err != nil {
		return nil, err
	}
	size, err := io.Copy(io.Discard, io.LimitReader(r, maxRecord+1))
	if err != nil || size > maxRecord {
		return nil, errors.Join(errRecord, err)
	}
	if r, err = unpacked(data); err != nil {
		return nil, err
	}
	raw := make([]byte, size)
	_, err = io.ReadFull(r, raw)
	return raw, err
}

// unpacked is a record without what it is packed in. The data of every Secret is base64,
// and Helm's is base64 itself.
func unpacked(data string) (io.Reader, error) {
	twice := base64.NewDecoder(base64.StdEncoding, strings.NewReader(data))
	r := bufio.NewReader(base64.NewDecoder(base64.StdEncoding, twice))
	magic := []byte{0x1f, 0x8b, 0x08}
	if head, _ := r.Peek(len(magic)); !bytes.Equal(head, magic) {
		return r, nil
	}
	return gzip.NewReader(r)
}
