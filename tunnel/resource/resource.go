// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/internal/quota"
)

const (
	// MaxBody is the size in bytes of the largest body that travels from hub to agent.
	MaxBody = 8 << 20
	// MaxReport is that of the largest body that travels from agent to hub: about what
	// etcd takes, so that nothing is refused that could be stored.
	MaxReport = 1536 << 10
	// MaxKey is the length in bytes of the longest key, and of the longest UID.
	MaxKey = 512
	// MaxResources is the number of resources of one kind that a mirror holds
	// for one peer, and that a source accepts in one inventory.
	MaxResources = 100_000

	// inventoryChunk references make one Inventory message: about 100 KiB with
	// the names that Kubernetes allows.
	inventoryChunk = 1000
	// maxAge is that of the oldest news: what a peer says to be older has no age.
	maxAge = 24 * time.Hour
	// inventoryTime is how long an agent may take for an inventory, from its first
	// message to its last.
	inventoryTime = time.Minute
	// refCost is what a reference takes in memory beside its strings, in bytes: itself,
	// and a slot of a map that has room to grow.
	refCost = 256
	// uncountedBody is how large a body may be once it is decoded before it is counted.
	uncountedBody = 16 << 10

	// messageOverhead bounds what a message has beside a body. A message is bounded, with what
	// was compressed at its full size, before it is decoded.
	messageOverhead = 64 << 10
)

var (
	// ErrTooLarge: the body of a resource exceeds MaxBody, or MaxReport. The version
	// that was published before, if any, stays published.
	ErrTooLarge = errors.New("body exceeds the limit of a synced resource")
	// ErrInvalidKey: a key is empty, or a key or UID is longer than MaxKey.
	ErrInvalidKey = errors.New("key of a synced resource is invalid")
	// ErrProtocol: the peer sent what the wire does not allow. The stream ends.
	ErrProtocol = errors.New("peer broke the sync protocol")
	// ErrTooMany: the peer claims more than MaxResources of one kind. The stream ends.
	ErrTooMany = errors.New("peer exceeds the limit of synced resources")
	// ErrSuperseded: a newer stream to the same peer took over. The stream ends.
	ErrSuperseded = errors.New("superseded by a newer sync stream")
)

// Resource is one version of one published resource.
type Resource struct {
	// Key names the resource within its kind, such as
	// "multicluster/<namespace>/<name>"; 1 to MaxKey bytes.
	Key string
	// UID tells a resource from an earlier one of the same key; may be empty.
	UID string
	// Generation is the sender's version number; it is carried, not compared.
	Generation int64
	// Body is the content, Kubernetes JSON by convention. The package keeps the
	// slice: it must not change after it was handed over.
	Body []byte
	// Since is when what Body tells came to be, by the clock of this process; zero
	// when that is not known. It travels as an age, from its hand-over to the stream
	// on, and is no part of the version: what differs in nothing else is the same.
	Since time.Time
	// Account is what Body and all that is decoded from it are held on, where a hub
	// counts that; see [HubReceiver]. Nil in what is published.
	Account *quota.Account
}

// Hash is the SHA-256 of a body.
type Hash [sha256.Size]byte

// Ref names one version of one resource without its content.
type Ref struct {
	Key        string
	UID        string
	Generation int64
	Hash       Hash
}

// RefOf returns the reference of r.
func RefOf(r Resource) Ref {
	return Ref{Key: r.Key, UID: r.UID, Generation: r.Generation, Hash: sha256.Sum256(r.Body)}
}

func (r Resource) validate(maxBody int) error {
	if err := validateNames(r.Key, r.UID); err != nil {
		return err
	}
	return validateBody(r.Key, r.Body, maxBody)
}

func validateBody(key string, body []byte, limit int) error {
	if len(body) > limit {
		return fmt.Errorf("resource %q of %d bytes: limit is %d bytes: %w", key, len(body), limit, ErrTooLarge)
	}
	return nil
}

func validateNames(key, uid string) error {
	if key == "" {
		return fmt.Errorf("empty key: %w", ErrInvalidKey)
	}
	if len(key) > MaxKey || len(uid) > MaxKey {
		return fmt.Errorf("key of %d bytes with uid of %d bytes: limit is %d bytes: %w", len(key), len(uid), MaxKey, ErrInvalidKey)
	}
	return nil
}

func encodeRef(kind string, r Ref) *rpcv1.ResourceRef {
	return &rpcv1.ResourceRef{Kind: kind, Key: r.Key, Uid: r.UID, Generation: r.Generation, Hash: r.Hash[:]}
}

// ageOf is that of since, for the wire.
func ageOf(since, now time.Time) uint64 {
	if since.IsZero() {
		return 0
	}
	return uint64(max(now.Sub(since), time.Microsecond).Microseconds()) //nolint:gosec // positive
}

// sinceOf is the inverse, by another clock.
func sinceOf(age uint64, now time.Time) time.Time {
	if age == 0 || age > uint64(maxAge/time.Microsecond) {
		return time.Time{}
	}
	return now.Add(-time.Duration(age) * time.Microsecond)
}

// decodeRef checks what a peer sent: every length is bounded before it is kept.
func decodeRef(p *rpcv1.ResourceRef) (Ref, error) {
	if err := validateNames(p.GetKey(), p.GetUid()); err != nil {
		return Ref{}, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if len(p.GetHash()) != sha256.Size {
		return Ref{}, fmt.Errorf("%w: hash of %d bytes", ErrProtocol, len(p.GetHash()))
	}
	return Ref{Key: p.GetKey(), UID: p.GetUid(), Generation: p.GetGeneration(), Hash: Hash(p.GetHash())}, nil
}
