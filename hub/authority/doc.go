// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package authority is the hub's certificate authority: the CA key, the hub id
// and every certificate that the hub signs.
//
// The CA and the hub id live together in one Secret, because neither is of use
// without the other: certificates name the hub id, and a hub that comes back
// with one of the two changed is a stranger to all its agents. The Secret is
// made on the first start or given beforehand; replicas that start together
// agree on the one that was created first. Nothing else writes it.
//
// # The Secret
//
//	ca.crt         the one CA certificate that signs, PEM
//	ca.key         its private key, PKCS#8, PKCS#1 or SEC 1 PEM
//	hub-id         UUID, the trust domain of every name
//	ca-bundle.crt  optional: further CA certificates to trust, PEM
//
// # Rotation with overlap
//
// Put the next CA's certificate in ca-bundle.crt and wait until the agents have
// learnt it (they are sent the bundle with every certificate). Then swap: the
// next CA becomes ca.crt and ca.key, the old certificate goes to ca-bundle.crt.
// Once every agent has renewed, remove it. Each step is picked up by a running
// hub; no session is cut.
package authority
