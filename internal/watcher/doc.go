// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package watcher reports the objects that an API server has of one kind, and their changes.
//
// A [Watcher] reads a [ListWatch], and calls a [Handler]. It is less
// than client-go's reflector and informer, for it holds no object: the initial
// state is streamed to the handler (sendInitialEvents), or read in pages where the
// API server cannot do that, and a handler keeps as little of an object as it needs.
//
//   - A watch that ends is resumed at the version of its last event or bookmark,
//     without a list. Only where the API server has forgotten that version, or the
//     initial state was not complete, is all read anew, between StartSync and FinishSync.
//   - After an early end, of whatever reason, it waits: each time longer, up to half
//     a minute, until a watch has lived for some seconds.
//   - What the API server denies is retried like any error, and reported to HandleDenied.
package watcher
