// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package view answers views: it follows what users of the hub ask for in this cluster,
// each as that user through the kube door, and publishes the answer now and each time
// that it changes.
//
// # Answers
//
// A view is one watch, however many objects of the hub ask the same. Its answer is an
// object, a List without a resource version of its own, or a Table of meta.k8s.io/v1 with
// the metadata of each object. It is published once the initial events are complete, and
// after a change at once, but at most once a second. Items are in the order of
// namespace/name and the members of objects are sorted, so that what has not changed has
// the same bytes, and Sync sends nothing. managedFields are left out; values of Secrets
// are masked by package agent/secret. The cells of a Table, ages among them, are those of
// the last event of their object.
//
// A list that is larger than asked for is cut at whole items: those in front are kept
// encoded, those behind are counted. It is read anew when half of its room is free again
// and the first item behind the cut fits, or may fit. One object that is too large is
// refused.
//
// A view of releases of Helm is one of the Secrets in which Helm records them. Its items are
// made of the latest revision of each release; of those before it nothing is kept but that
// they are there. When the latest goes and another is left, all is read anew.
//
// What all views keep is bounded: at the limit a list may change but not grow, and one
// that would is refused. An answer and the items that it is made of are kept once, and a
// list that is read anew shares with the one before what has not changed.
//
// # Refusals
//
// What the API server says of a request (400 to 499) is an answer. What says nothing of
// it, such as a server that cannot be reached, leaves the last answer as it is. A refused
// view makes no requests until something has changed that may matter:
//
//   - roles or bindings: package rbacwatch follows them while there are views. A review asks
//     one SubjectAccessReview for each verb, list and watch, of all views of the same
//     requester and the same objects. A view that has lost its right is ended the same
//     way, because an API server does not authorize a watch again while it is open;
//   - definitions of resources, which are watched while a view waits for one;
//   - room: a view that was withdrawn makes place for another.
//
// Whatever else it depends on, such as another authorizer, counts 5 to 10 minutes later,
// when the request is repeated or the watch is renewed. A resource that cannot be watched
// is refused with the API server's MethodNotAllowed.
//
// # Files
//
// engine.go holds the views and what bounds them, view.go follows one, sink.go and list.go
// make its answer, feed.go and table.go are what it reads, release.go and record.go make
// releases of it, answer.go says which errors are answers; rights.go and definitions.go
// notice what may change a refusal, for as long as demand.go says; first.go keeps a new
// process from sending again what the hub has.
package view
