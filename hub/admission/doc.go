// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission decides which ManifestWorks the hub's API server stores: it
// is the validating webhook of Open Cluster Management, with the same checks and
// messages, served by the hub process.
//
// A work needs manifests, at most so many bytes of them, each with a name of its
// own and none twice. Who names an executor, or changes it, needs the right to
// execute as it:
//
//	verb execute-as, group work.open-cluster-management.io, resource manifestworks,
//	name system:serviceaccount:<namespace>:<name>, in the namespace of the work
//
// A change that leaves the spec alone is let through unread: labels,
// finalizers and statuses of a work never depend on its manifests. Whatever else
// cannot be judged is refused.
//
// The API server shows webhooks no credential, so that the port answers anybody.
// The answer tells whether a body that the asker sent would pass, which includes
// whether the user in it may execute as the account in it, and nothing of any
// work that is stored. ADR 0009 says what an outage does.
package admission
