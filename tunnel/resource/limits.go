// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/internal/quota"
)

// limits bound what one peer may cost this end: memory, and time for its inventories.
type limits struct {
	// memory is counted for owner, the peer; nil has no bounds.
	memory *quota.Memory
	owner  string
	// maxBody bounds the bodies that the peer sends, in bytes.
	maxBody int
	// onRefused is called for what is dropped because it can never fit.
	onRefused func(kind, key string, err error)
}

// account opens an account of the peer; without limits there is none, and no bounds.
func (l *limits) account() *quota.Account {
	if l == nil {
		return nil
	}
	return l.memory.Account(l.owner)
}

// admit counts what a body may take once it is decoded, and waits until there is room
// for it: a few kilobytes on the wire may become gigabytes. What usual bodies take is
// not worth the count; how many there are, the hub's own objects bound.
func (l *limits) admit(ctx context.Context, key string, body []byte) (*quota.Account, error) {
	if l == nil {
		return nil, nil
	}
	if err := validateBody(key, body, l.maxBody); err != nil {
		return nil, err
	}
	cost := quota.DecodedJSON(body)
	if cost <= uncountedBody {
		return nil, nil
	}
	account := l.account()
	if err := account.Await(ctx, cost); err != nil {
		return nil, err
	}
	return account, nil
}

// handlePut handles a resource. One that can never fit is dropped, and the stream goes on.
func (s *stream) handlePut(ctx context.Context, p *rpcv1.Resource) error {
	ref := p.GetRef()
	in, err := s.mirrorOf(ref.GetKind())
	if err != nil {
		return err
	}
	if _, err := decodeRef(ref); err != nil {
		return err // before its key gets into a log
	}
	account, err := s.limits.admit(ctx, ref.GetKey(), p.GetBody())
	if errors.Is(err, ErrTooLarge) || errors.Is(err, quota.ErrTooLarge) {
		s.limits.onRefused(ref.GetKind(), ref.GetKey(), err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("resource %q of kind %q: %w", ref.GetKey(), ref.GetKind(), err)
	}
	return in.put(p, account, time.Now())
}

// handleInventory handles one chunk of an inventory, once there is memory for it.
func (s *stream) handleInventory(ctx context.Context, f *sourceStream, in *rpcv1.Inventory) error {
	s.limitInventoryTime(in)
	if err := f.account.Await(ctx, inventoryCost(in)); err != nil {
		return fmt.Errorf("inventory of kind %q: %w", f.source.kind, err)
	}
	return f.handleInventory(in)
}

// limitInventoryTime bounds the time of an inventory that comes in several messages:
// until its last what it says is held.
func (s *stream) limitInventoryTime(in *rpcv1.Inventory) {
	kind := in.GetKind()
	timer, began := s.inventoryTimers[kind]
	switch {
	case s.limits == nil:
	case !in.GetMore() && began:
		timer.Stop()
		delete(s.inventoryTimers, kind)
	case in.GetMore() && !began:
		s.inventoryTimers[kind] = time.AfterFunc(inventoryTime, func() {
			s.cancel(fmt.Errorf("%w: inventory of kind %q takes more than %s", ErrProtocol, kind, inventoryTime))
		})
	}
}

// countingCodec is connect's codec for protobuf, except that it counts the references in
// a message before it makes them: an empty one has two bytes on the wire, and a
// hundred in memory.
type countingCodec struct{}

// Name is that of connect's own codec, which this one takes the place of.
func (countingCodec) Name() string { return "proto" }

// Marshal encodes a message.
func (countingCodec) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", message)
	}
	return proto.Marshal(m)
}

// Unmarshal decodes a message whose inventory is no longer than a chunk.
func (countingCodec) Unmarshal(raw []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no message", message)
	}
	if n := countRefs(raw); n > inventoryChunk {
		return fmt.Errorf("%w: %d references in a message, limit is %d", ErrProtocol, n, inventoryChunk)
	}
	return proto.Unmarshal(raw, m)
}

// The numbers of fields in api/rpc/v1/sync.proto.
const (
	fieldInventory = 1 // of SyncMessage
	fieldRefs      = 2 // of Inventory
)

// countRefs is how many references the inventories of an encoded SyncMessage have.
func countRefs(raw []byte) (refs int) {
	eachBytes(raw, fieldInventory, func(inventory []byte) {
		eachBytes(inventory, fieldRefs, func([]byte) { refs++ })
	})
	return refs
}

// eachBytes calls f with every occurrence of a field of messages, as far as raw can be
// read: a decoder does not get further.
func eachBytes(raw []byte, field protowire.Number, f func([]byte)) {
	for len(raw) > 0 {
		number, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return
		}
		raw = raw[n:]
		if n = protowire.ConsumeFieldValue(number, kind, raw); n < 0 {
			return
		}
		if number == field && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(raw)
			f(value)
		}
		raw = raw[n:]
	}
}
