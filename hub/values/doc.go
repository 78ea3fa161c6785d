// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package values replaces, in manifests, references to the cluster that they are sent to:
//
//	$(cluster.name)           the name of the cluster
//	$(cluster.labels.<key>)   a label of its ManagedCluster
//	$(cluster.claims.<name>)  one of its cluster claims
//
// The syntax is that of $(VAR) in the command of a container. "$$(cluster.name)" stands
// for the text "$(cluster.name)", and every "$(...)" that does not begin with "cluster."
// stays as it is, because a container may use it. A reference without a value, or of
// another form, is an error: a manifest is replaced as a whole or not at all.
//
// References are replaced in the strings of the decoded manifest, so that no value can
// add a field or end a string, and numbers keep their digits. Keys stay as they are. What
// admission and policies of the hub judge a manifest by, its apiVersion, kind, namespace
// and name, must not hold a reference: they see the manifest before it is replaced.
//
// The package does no I/O; whoever uses it follows the cluster, and asks
// [Cluster.Agrees] whether what was replaced is still the same.
package values
