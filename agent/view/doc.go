// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package view answers views: it lists and watches what users of the hub ask for in this
// cluster, each as that user through the kube door, and publishes the answer whenever it
// changes.
//
// # Answers
//
// A view is one watch, however many objects of the hub ask for the same. Its answer is an
// object, a List without a resource version of its own, or a Table of meta.k8s.io/v1 with
// the metadata of each object. It is published once the initial events are complete, and
// after each change, but at most once a second. Items are sorted by namespace/name, and the
// members of objects by name, so that an unchanged answer has the same bytes, and Sync
// sends nothing. managedFields are removed; package agent/secret masks the values of
// Secrets. The cells of a Table, ages included, are those of the last event of their object.
//
// A list that exceeds its limit is cut at whole items: those before the cut are kept
// encoded, those after it are counted. It is reloaded when half of its capacity is free
// and the first omitted item fits, or may fit. A single object that is too large is
// refused.
//
// A view of Helm releases is a view of the Secrets in which Helm records them. Its items are
// the latest revisions; of earlier revisions only the numbers are kept. When the latest
// revision is removed and an earlier one remains, the list is reloaded.
//
// The memory of all views is bounded: at the limit a list may change but not grow, and one
// that would grow is refused. An answer shares memory with its items, and a reloaded list
// shares unchanged items with the one before.
//
// # Refusals
//
// An error of the API server about the request (400 to 499) is an answer. Any other error,
// such as a server that cannot be reached, leaves the last answer unchanged. A refused
// view sends no requests until one of these has changed:
//
//   - roles or bindings: package rbacwatch watches them while there are views. A review
//     creates one SubjectAccessReview for each verb, list and watch, for all views of the
//     same requester and the same objects. It also ends a watch whose requester has lost
//     the right, because an API server does not authorize an open watch again;
//   - definitions of resources, which are watched while a view waits for one;
//   - capacity: a deleted view makes room for another.
//
// Changes that are not watched, such as those of another authorizer, take effect after 5 to
// 10 minutes, when the request is repeated or the watch is renewed. A resource that cannot
// be watched is refused with the API server's MethodNotAllowed.
//
// # Files
//
// engine.go starts and stops the views, view.go is one view, sink.go and list.go build its
// answer, feed.go and table.go read the cluster, release.go and helmrecord.go decode Helm's
// records, refusal.go converts errors to answers; rights.go and definitions.go watch what may
// change a refusal, for as long as sharedtask.go requires; initialsync.go prevents a new
// process from sending again what the hub has.
package view
