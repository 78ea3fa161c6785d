// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package action executes the actions of users of the hub, each once: it creates, updates or
// deletes an object of the cluster, or a Helm release, as that user, through the kube door.
//
// An action is executed once for each UID and generation of its object on the hub, whatever
// is interrupted or restarted. The action log, ConfigMaps in the agent's namespace, ensures
// that: an entry is created before the action, and its outcome is written afterwards. If an
// entry of an earlier process has no outcome, it is determined by reading the object:
// created and updated objects have an annotation ([Annotation]), and the entry has the UID
// and the version of the object before the action. If that does not determine the outcome,
// it is reported as unknown: nothing is ever done twice.
//
// An entry is kept for a week after its end, even when the hub has deleted the action: the
// hub deletes those of a cluster that is not accepted, and may send them again. At most
// 10,000 entries are kept, besides those of actions that the hub has.
//
// Results stay in memory for Sync, templates only until their action is answered. The objects
// of all results may have 64 MiB together; one that does not fit is omitted.
//
// engine.go receives actions and publishes results, execute.go goes from request to outcome,
// plan.go decides what to write, perform.go writes, outcome.go determines the outcome of an
// interrupted action, result.go converts errors to refusals, log.go and expiry.go store the
// entries, versions.go and ingress.go convert removed API versions, release.go runs Helm.
package action
