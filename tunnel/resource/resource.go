// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
)

const (
	// MaxBody is the size in bytes of the largest body that travels.
	MaxBody = 8 << 20
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
	// maxMessage bounds a message before it is decoded: a body and its reference.
	maxMessage = MaxBody + 64<<10
)

var (
	// ErrTooLarge: the body of a resource exceeds MaxBody. The version that was
	// published before, if any, stays published.
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

func (r Resource) validate() error {
	if err := validateNames(r.Key, r.UID); err != nil {
		return err
	}
	if len(r.Body) > MaxBody {
		return fmt.Errorf("resource %q of %d bytes: limit is %d bytes: %w", r.Key, len(r.Body), MaxBody, ErrTooLarge)
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
