// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import "errors"

// Every refusal of this package wraps exactly one of these, ErrURI excepted:
// it also wraps the ErrName or ErrID of the part at fault.
var (
	// ErrName says that a cluster name is not a DNS label.
	ErrName = errors.New("not a DNS label of at most 63 bytes")
	// ErrID says that a hub id or a cluster id is not a canonical UUID.
	ErrID = errors.New("not a UUID in lower case")
	// ErrURI says that a URI is not the identity that was asked for.
	ErrURI = errors.New("not an identity")
	// ErrNames says that the subject alternative names are not exactly one URI.
	ErrNames = errors.New("subject alternative names are not exactly one URI")
	// ErrSubject says that a subject claims more than the cluster's name.
	ErrSubject = errors.New("subject claims more than the cluster's name")
	// ErrAuthority says that a peer's certificate may sign certificates.
	ErrAuthority = errors.New("certificate of an authority")
	// ErrUsage says that the key usages are not those of a tunnel's peer:
	// digital signature, client and server authentication.
	ErrUsage = errors.New("key usages are not those of a tunnel's peer")
	// ErrWeakKey says that a key is weaker than RSA 2048, P-256 or Ed25519, or
	// of a kind that is not one of these.
	ErrWeakKey = errors.New("key is weak or of an unknown kind")
	// ErrSignature says that a request is not signed by the key it carries.
	ErrSignature = errors.New("signature does not match the request's key")
	// ErrClaim says that a request asks for something beside the identity.
	ErrClaim = errors.New("request claims more than the identity")
)
