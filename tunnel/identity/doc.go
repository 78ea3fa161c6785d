// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package identity says who a certificate belongs to. It is the only reader of
// names in certificates and certificate requests: everything else in Spokelet
// compares the values it returns.
//
// There are two kinds of peer, each known by one URI in the subject alternative
// names of its certificate:
//
//	spiffe://<hub id>/hub                              the hub
//	spiffe://<hub id>/cluster/<name>/<cluster id>      one managed cluster
//
// The hub id and the cluster id are UUIDs in canonical lower case; the name is
// a DNS label (RFC 1123) of at most 63 bytes. The grammar has one spelling for
// each identity. The URI is compared byte by byte as it stands in the
// certificate, never after a decoder normalised it: no escapes, no query, no
// fragment, no port, no upper case.
//
// A certificate that says anything beside that URI is refused, so that no two
// readers can understand it differently: a second name of any kind, a subject
// that names something else, a CA flag, other key usages, a weak key.
//
// Whether a certificate is valid now and signed by a trusted authority is not
// this package's concern: callers pass certificates that crypto/tls verified.
//
// Only the standard library may be imported here.
package identity
