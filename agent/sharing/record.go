// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/sharing/merge"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/sharedobject"
)

// record is the durable state of an object: the content of each side when both were last in
// sync, and the write that was begun since.
type record struct {
	HubUID   types.UID `json:"hubUID,omitempty"`
	SpokeUID types.UID `json:"spokeUID,omitempty"`
	// HubNumber is the number of the hub's version then, and SpokeVersion the spoke's
	// resourceVersion: a side that was restored from a backup has lower ones.
	HubNumber    int64           `json:"hubNumber,omitempty"`
	SpokeVersion string          `json:"spokeVersion,omitempty"`
	Base         encodedStates   `json:"base,omitzero"`
	Uncertain    *uncertainWrite `json:"doubt,omitempty"`
	Pending      *pendingWrite   `json:"pending,omitempty"`
}

// pendingWrite is recorded before its request is made. Of deletions only those are recorded
// that decide a conflict.
type pendingWrite struct {
	Side wire.SharedSide `json:"side"`
	// Prior and Wrote are the hashes of the side's content before the write and after it;
	// Prior is empty for a creation.
	Prior string `json:"prior,omitempty"`
	Wrote string `json:"wrote,omitempty"`
	// Generation is the number of a write to the hub, Part what it writes, and To the
	// requested content where that is not Next.Hub: it is published again after a restart.
	Generation int64           `json:"generation,omitempty"`
	Part       wire.SharedPart `json:"part,omitempty"`
	To         json.RawMessage `json:"to,omitempty"`
	// Conflicts are the fields that the write decides.
	Conflicts []string `json:"conflicts,omitempty"`
	// Next is the Base once the write is done; empty for a deletion.
	Next encodedStates `json:"next,omitzero"`
}

// uncertainWrite is a write of one side whose outcome got lost: Next holds in place of the base if
// it was made.
type uncertainWrite struct {
	Side wire.SharedSide `json:"side"`
	Next encodedStates   `json:"next"`
}

// requestedContent returns the content that a write to the hub requests.
func (p *pendingWrite) requestedContent() json.RawMessage {
	if p.To != nil {
		return p.To
	}
	return p.Next.Hub
}

// contentOf returns the content with the hash version that a side had when both were last in
// sync; nil if it had another.
func (r *record) contentOf(version string) json.RawMessage {
	if r == nil {
		return nil
	}
	for _, raw := range []json.RawMessage{r.Base.Hub, r.Base.Spoke} {
		if raw != nil && sharedobject.Version(raw) == version {
			return raw
		}
	}
	return nil
}

// encodedStates are the contents of both sides as JSON. Spoke is empty where it equals Hub.
type encodedStates struct {
	Hub   json.RawMessage `json:"hub,omitempty"`
	Spoke json.RawMessage `json:"spoke,omitempty"`
}

// encodeStates encodes the contents of both sides.
func encodeStates(s merge.States) (encodedStates, error) {
	hub, err := sharedobject.Encode(s.Hub)
	if err != nil {
		return encodedStates{}, err
	}
	spoke, err := sharedobject.Encode(s.Spoke)
	if err != nil {
		return encodedStates{}, err
	}
	if bytes.Equal(hub, spoke) {
		spoke = nil
	}
	return encodedStates{Hub: hub, Spoke: spoke}, nil
}

// decode is the inverse of encodeStates; without Hub both contents are unknown.
func (s encodedStates) decode() (merge.States, error) {
	if s.Hub == nil {
		return merge.States{}, nil
	}
	hub, err := sharedobject.Decode(s.Hub)
	if err != nil {
		return merge.States{}, err
	}
	if s.Spoke == nil {
		return merge.States{Hub: hub, Spoke: hub}, nil
	}
	spoke, err := sharedobject.Decode(s.Spoke)
	return merge.States{Hub: hub, Spoke: spoke}, err
}

func decodeRecord(raw []byte) (*record, error) {
	var r record
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("decode record: %w", err)
	}
	return &r, nil
}

func (r *record) encode() ([]byte, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	return raw, nil
}

// shareIdentity is the durable state of a share as a whole: its hub and its cluster.
type shareIdentity struct {
	Hub   string `json:"hub"`
	Spoke string `json:"spoke"`
}
