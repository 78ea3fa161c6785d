// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package spoke

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spokelet/spokelet/internal/jsonstream"
	"github.com/spokelet/spokelet/internal/quota"
)

const (
	// MaxObject is how many bytes an object of a list, or an event of a watch, may have. The
	// annotations of one have up to 256 KiB.
	MaxObject = 512 << 10
	// costPerByte is what a byte takes until its value was decoded: see jsonstream.
	costPerByte = 3
	// maxVersion bounds the version of a list, which is sent back. etcd's have twenty digits.
	maxVersion = 128
)

// Forms in which a server writes objects.
const (
	FullObject    = "application/json"
	Metadata      = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	watchMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

// errNotList is of an answer that is no list or watch.
var errNotList = errors.New("it is no list of objects")

// List reads the objects of a list one by one, in a form, into values that each is called with.
// It returns the version that a watch goes on from.
func List[T any](ctx context.Context, a API, form, path string, query url.Values, each func(T)) (version string, err error) {
	body, err := a.do(ctx, http.MethodGet, form, path, query)
	if err != nil {
		return "", err
	}
	defer body.Close()
	dec, done := a.decoder(body)
	defer done()
	err = jsonstream.Members(dec, func(key string) error {
		switch key {
		case "metadata":
			return readVersion(dec, &version)
		case "items":
			return jsonstream.Elements(dec, func() error {
				var object T
				err := dec.Decode(&object)
				if err == nil {
					each(object)
				}
				return err
			})
		default:
			return jsonstream.Skip(dec)
		}
	})
	if err == nil && version == "" {
		err = errNotList
	}
	if err != nil {
		return "", fmt.Errorf("list: %w", err)
	}
	return version, nil
}

func readVersion(dec *json.Decoder, version *string) error {
	var metadata struct {
		ResourceVersion string `json:"resourceVersion"`
	}
	if err := dec.Decode(&metadata); err != nil {
		return err
	}
	if len(metadata.ResourceVersion) > maxVersion {
		return errNotList
	}
	*version = metadata.ResourceVersion
	return nil
}

// An Event is a change of an object.
type Event[T any] struct {
	// Type is ADDED, MODIFIED, DELETED or BOOKMARK, or ERROR, after which a list is to follow.
	Type   string `json:"type"`
	Object T      `json:"object"`
}

// A Watch is one that a server has begun to answer.
type Watch[T any] struct {
	body io.Closer
	dec  *json.Decoder
	done func()
}

// NewWatch asks for a watch, and returns when the server has begun to answer. The caller closes
// it.
func NewWatch[T any](ctx context.Context, a API, form, path string, query url.Values) (*Watch[T], error) {
	if form == Metadata {
		form = watchMetadata
	}
	body, err := a.do(ctx, http.MethodGet, form, path, query)
	if err != nil {
		return nil, err
	}
	w := &Watch[T]{body: body}
	w.dec, w.done = a.decoder(body)
	return w, nil
}

// Next waits for the next event. The error is io.EOF when the server ended the watch.
func (w *Watch[T]) Next() (Event[T], error) {
	var event Event[T]
	err := w.dec.Decode(&event)
	return event, err
}

// Close ends the watch.
func (w *Watch[T]) Close() {
	w.body.Close() //nolint:errcheck // nothing is lost
	w.done()
}

// decoder returns one of objects, whose buffer is on the account of the cluster until done.
func (a API) decoder(body io.Reader) (dec *json.Decoder, done func()) {
	if a.cluster == "" {
		return json.NewDecoder(body), func() {}
	}
	h := &bufferAccount{account: a.Account()}
	return jsonstream.NewDecoder(body, h.grow), h.account.Close
}

// bufferAccount is what a decoder has of its cluster's memory: as much as its buffer ever had, for it
// does not shrink.
type bufferAccount struct {
	account *quota.Account
	most    int64
}

func (h *bufferAccount) grow(pending int64) error {
	if pending > MaxObject {
		return fmt.Errorf("an object of more than %d bytes: %w", MaxObject, ErrTooLarge)
	}
	if more := pending - h.most; more > 0 {
		if err := h.account.Grow(costPerByte * more); err != nil {
			return err
		}
		h.most = pending
	}
	return nil
}
