// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package token is the join token: how it looks, and what the hub keeps of it.
//
// A token is "spokelet." and 32 random bytes in unpadded base64url (RFC 4648,
// section 5), 52 bytes in all. It is shown once, to the person who runs
// "kubectl spokelet join"; the hub keeps a Record: its hash, its end, and the
// key that it is bound to once it was used. This package does no I/O.
package token

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	prefix  = "spokelet."
	entropy = 32
	// Length of every token, in bytes.
	Length = len(prefix) + 43
)

// SecretName is the Secret that holds a cluster's record. It is in the hub's
// namespace: whoever writes it decides who becomes that cluster, and the
// cluster's own namespace is open to those who send it works.
func SecretName(cluster string) string { return "spokelet-join-" + cluster }

// SecretType of that Secret.
const SecretType = "spokelet.io/join-token"

// Keys of the data of that Secret.
const (
	DataHash     = "token-sha256"
	DataExpires  = "expires"
	DataBoundKey = "bound-key-sha256"
)

var (
	// ErrMalformed says that a string does not have the form of a token.
	ErrMalformed = errors.New("not a join token")
	// ErrRecord says that the data of a Secret is not that of a join token.
	ErrRecord = errors.New("not the record of a join token")
	// ErrForged says that a token is not the one of the record.
	ErrForged = errors.New("join token is not the one that was issued")
	// ErrExpired says that a token came after its end.
	ErrExpired = errors.New("join token has expired")
	// ErrUsed says that a token was used before, by another key.
	ErrUsed = errors.New("join token was already used by another key")
)

// Token is a join token in the clear. Its String hides it, so that no log or
// error can hold it by accident.
type Token struct{ secret [entropy]byte }

// New returns a random token.
func New() Token {
	var t Token
	// crypto/rand.Read never fails: it ends the program instead.
	_, _ = rand.Read(t.secret[:])
	return t
}

// Parse reads a token, of which there is one spelling. Errors wrap ErrMalformed
// and never repeat the input.
func Parse(s string) (Token, error) {
	encoded, ok := strings.CutPrefix(s, prefix)
	if !ok || len(s) != Length {
		return Token{}, fmt.Errorf("%w: it has %d bytes and begins with %q", ErrMalformed, Length, prefix)
	}
	// DecodeString skips line ends, which would give a token a second spelling.
	if strings.ContainsAny(encoded, "\r\n") {
		return Token{}, fmt.Errorf("%w: line end inside", ErrMalformed)
	}
	// Strict: the spare bits of the last digit must be zero.
	raw, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil || len(raw) != entropy {
		return Token{}, fmt.Errorf("%w: no base64url of %d bytes after %q", ErrMalformed, entropy, prefix)
	}
	return Token{secret: [entropy]byte(raw)}, nil
}

// Reveal returns the token as it is handed to a person.
func (t Token) Reveal() string {
	return prefix + base64.RawURLEncoding.EncodeToString(t.secret[:])
}

// String hides the token.
func (Token) String() string { return prefix + "<hidden>" }

// GoString hides the token from %#v too.
func (t Token) GoString() string { return t.String() }

// Hash is SHA-256. 256 random bits need no slow or salted hash.
type Hash [sha256.Size]byte

// Hash returns what is kept of a token.
func (t Token) Hash() Hash { return sha256.Sum256(t.secret[:]) }

// KeyHash is the hash of a public key in its PKIX form (SubjectPublicKeyInfo,
// DER), the way to name the key that a token is bound to.
func KeyHash(subjectPublicKeyInfo []byte) Hash { return sha256.Sum256(subjectPublicKeyInfo) }

// Record is what the hub keeps of one token.
type Record struct {
	Hash    Hash
	Expires time.Time
	// BoundKey is the key that used the token first, nil while none has.
	BoundKey *Hash
}

// Check returns nil when the token is the record's and may be used, now, by the
// given key; else an error that wraps ErrForged, ErrExpired or ErrUsed. It takes
// the same time whatever the token.
func (r Record) Check(t Token, key Hash, now time.Time) error {
	hash := t.Hash()
	if subtle.ConstantTimeCompare(hash[:], r.Hash[:]) != 1 {
		return ErrForged
	}
	if !now.Before(r.Expires) {
		return fmt.Errorf("%w at %s", ErrExpired, r.Expires.UTC().Format(time.RFC3339))
	}
	if r.BoundKey != nil && subtle.ConstantTimeCompare(key[:], r.BoundKey[:]) != 1 {
		return ErrUsed
	}
	return nil
}

// Encode returns the record as the data of a Secret.
func (r Record) Encode() map[string][]byte {
	data := map[string][]byte{
		DataHash:    hexBytes(r.Hash),
		DataExpires: []byte(r.Expires.UTC().Format(time.RFC3339)),
	}
	if r.BoundKey != nil {
		data[DataBoundKey] = hexBytes(*r.BoundKey)
	}
	return data
}

// Decode reads the data of a Secret. Errors wrap ErrRecord. A bound key that
// cannot be read is an error and not "unbound".
func Decode(data map[string][]byte) (Record, error) {
	var r Record
	var err error
	if r.Hash, err = decodeHash(data[DataHash]); err != nil {
		return Record{}, fmt.Errorf("%s: %w", DataHash, err)
	}
	if r.Expires, err = time.Parse(time.RFC3339, string(data[DataExpires])); err != nil {
		return Record{}, fmt.Errorf("%s: %w: no RFC 3339 time", DataExpires, ErrRecord)
	}
	if raw, ok := data[DataBoundKey]; ok {
		bound, err := decodeHash(raw)
		if err != nil {
			return Record{}, fmt.Errorf("%s: %w", DataBoundKey, err)
		}
		r.BoundKey = &bound
	}
	return r, nil
}

func hexBytes(h Hash) []byte { return []byte(hex.EncodeToString(h[:])) }

func decodeHash(raw []byte) (Hash, error) {
	var h Hash
	if len(raw) != hex.EncodedLen(len(h)) {
		return Hash{}, fmt.Errorf("%w: no SHA-256 in hex", ErrRecord)
	}
	if _, err := hex.Decode(h[:], raw); err != nil {
		return Hash{}, fmt.Errorf("%w: no SHA-256 in hex", ErrRecord)
	}
	return h, nil
}
