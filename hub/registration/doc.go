// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registration decides which clusters belong to the hub: it keeps their
// records, admits them, gives them certificates, and takes all that back.
//
// The record of a cluster is OCM's ManagedCluster; it is ours when it bears the
// annotation spokelet.io/managed=true, and no other is ever written. Four parts
// work on the same record:
//
//   - the Reconciler gives it a cluster id and a namespace, writes its
//     conditions, and takes it apart when it is deleted;
//   - the Gate admits sessions, and disconnects a cluster as soon as its record
//     no longer allows one;
//   - the Enroller turns a join token into a first certificate;
//   - the Issuer renews the certificate of a live session.
//
// The Gate reads the informer's copy and fails closed until that has synced.
// Everything that grants (a token bound, a UID pinned) is read from the API
// server itself and written under a resourceVersion, so that of two rivals one
// wins. AdmissionPolicy guards, inside the API server, the fields that this
// package trusts.
//
// Nothing here runs on a timer: records, namespaces and sessions announce their
// changes.
package registration
