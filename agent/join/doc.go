// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package join gives the agent its identity: the key, the certificate and the
// authorities it trusts, from the first call with a join token to every renewal.
//
// All of it lives in one Secret of the spoke. The first key is made once, by whichever
// replica comes first; the others read it. Each renewal has a key of its own, which
// replaces the one before together with its certificate, in one write. No key leaves
// the cluster. What one replica was given is picked up by the others through a
// watch on that one object. The agent needs get, list, watch and update on that
// Secret, and create.
//
//	tls.key  private key, PKCS#8 PEM
//	tls.crt  the cluster's certificate, PEM; absent until the cluster has joined
//	ca.crt   every authority to trust for the hub, PEM
//	join-token-sha256  of the token that the certificate was first given for
//
// Identity is the tunnel's Credentials. Join runs the first call. Keep runs it
// again, without a restart, when the certificate has ended, and when the hub
// refuses it and there is another token than before, which is how a cluster that
// was detached comes back. A certificate that has ended is not shown to the hub.
package join
