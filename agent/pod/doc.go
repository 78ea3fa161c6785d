// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pod runs the pods that are bound to a virtual node in its spoke.
//
// The hub says over Sync which pods there are (wire.Pod) and what the ConfigMaps
// and Secrets that they refer to hold (wire.PodObject); the [Engine] says what
// became of each (wire.PodStatus) and what the spoke reports about it
// (wire.PodEvent). Both are levels: nothing depends on an event that was missed.
//
// # One pod
//
// What is wanted, what is in the spoke and what is known of before meet in one pure
// function, decide, which names one action; reconcile.go carries it out. A queue serves
// one pod at a time to one worker, and what happens in the spoke is published by
// the watch itself, without the queue.
//
// A pod in the spoke is ours when it bears the hub's id and the UID of the hub's pod
// as labels, which are the selector of the one watch. Somebody who takes them away
// takes the pod from us: it counts as deleted, and its name as taken. Nothing that
// does not bear them is ever changed.
//
// # What pods refer to
//
// Copies of ConfigMaps and Secrets are written before the first pod that uses them
// is made, follow the hub, and go with their last user. They are not watched: a
// right to watch by label cannot be given, and one to watch all Secrets is not
// asked for. One that somebody removed is made again when a pod is made, or its
// kubelet complains. What an earlier process left is found by the pods that use it.
//
// The tokens of a pod that gets those of the hub are one more such copy, a Secret of
// its own; so is the ConfigMap with the hub's authority, under a name that hides
// nobody's. What of the pod reads them is for package translate to say.
//
// # What pods name
//
// The service account that a pod runs as, and the claims that it mounts, are the
// spoke's. One that the agent made bears the hub's mark; any other takes the consent of
// its owner, a label. A namespace that is the agent's makes nothing in it the hub's.
//
// # Structure
//
// state.go holds all that is known under one lock, under which nothing waits;
// namespace.go, serviceaccount.go, volumeclaim.go, copies.go and token.go prepare the place of a pod;
// podwatch.go is the watch; event.go and publish.go are what the hub is told.
package pod
