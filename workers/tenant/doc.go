// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tenant assigns accounts to namespaces, and clusters and hosts to accounts. It is pure: the
// same objects give the same result, in any order.
//
//   - [Claims]: a label of the Namespace names the account. Of two namespaces with the same
//     account the older one has it.
//   - [Clusters]: an account gets clusters that a label offers, that the annotation of its
//     namespace allows, and that its own selector chooses.
//   - [Hosts]: an account gets a host that the annotation of its namespace has and that no
//     other account has, or a name of its own.
package tenant
