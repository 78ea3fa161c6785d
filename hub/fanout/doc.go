// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fanout serves WorkSet and ResourceView of mcm.ibm.com: it makes one Work for
// each cluster that they select, in the cluster's namespace, and reports their results in its status.
// Package mcm does what the Works ask.
//
// A Work is named after its parent and a digest of parent and cluster (workName). It has
// the labels of the original, whose value "<namespace>.<name>" is 40 digits of its SHA-256
// where it is longer than a label may be, the annotation that names the parent, and the
// recorded author of the parent, who needs the right to create Works in the namespace of
// each cluster: that is asked before a Work is made or changed, and a refusal is asked
// again when somebody changes rights or the parent. Without a selector no cluster is selected, with an empty one all that
// are the hub's and accepted. Membership is followed: a cluster that leaves loses its
// Work, and has another when it is back. What a template has no more of labels and
// annotations stays on the Works.
//
// The status is never final, and names the clusters that failed or have not answered. A
// parent that is deleted takes its Works along: their annotation names it, so that also
// those are found that were left while the hub was away. One that was created again under its
// name has Works of its own.
//
// Everything is read and written through the API server, so that it does not matter
// which replica of a hub has the session of a cluster. Works come from the cache, which has
// digests of their results alone: a result is read when it is another.
//
// A status is of many clusters, and the API server stores all of it each time. Those that
// answered something else pay for it from the budget of what clusters have written, in
// equal parts; while all of them are beyond theirs, it waits. What the parent or the hub
// itself changes waits for no cluster.
//
// parent.go has what differs between the two kinds, work.go builds the Works, distribute.go
// writes them, status.go and results.go compute the status, publish.go writes it, charges.go
// charges clusters for the write, and events.go and controller.go enqueue the parents.
package fanout
