// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission decides which ManifestWorks the hub's API server stores: it
// is the validating webhook of Open Cluster Management, with the same checks and
// messages, served by the hub process.
//
// A work needs manifests, at most so many bytes of them, each with a name of its
// own and none twice. Who writes the spec of a work that names an executor needs the
// right to execute as it:
//
//	verb execute-as, group work.open-cluster-management.io, resource manifestworks,
//	name system:serviceaccount:<namespace>:<name>, in the namespace of the work
//
// Open Cluster Management asks only when the executor is set or changed. Here it is
// checked at every change of the spec: whoever changes manifests has the executor do
// something else. On demand works without executor are asked about, too, and with them
// those of multicluster.x-k8s.io, which have none.
//
// It is also the mutating webhook that records who asks for views and actions (package
// author): whoever creates one or changes its spec, whatever else stands there; the
// hub's own account says so of those for whom it makes some. With the author goes the UID of
// this webhook's registration: an author counts under that one alone, because before it, or
// between two, nobody was asked. Works that the hub makes, for a WorkSet or a ResourceView,
// are the hub's alone to change.
//
// A change that leaves the spec alone is let through unread: labels,
// finalizers and statuses of a work never depend on its manifests. Whatever else
// cannot be judged is refused.
//
// The server is not controller-runtime's: that one decodes each review in full, up to 7 MiB
// and before anything is known of its sender, which may take a hundred times as much memory.
//
// The API server shows webhooks no credential, so that the port answers anybody.
// The answer reports whether a body that the asker sent would pass, which includes
// whether the user in it may execute as the account in it, or create Works of mcm.ibm.com
// in a namespace, and the UID of the registration, and nothing of any work that is stored. What is held of reviews, bodies
// and what is decoded of them, is bounded for each host and in all; a review that finds no
// memory is answered by an HTTP error, so that the registration's failure policy decides.
// ADR 0009 describes what an outage does.
package admission
