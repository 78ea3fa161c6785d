// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package watcher keeps somebody up to date with what an API server has of one kind.
//
// A [Follower] reads a [Feed], a list and a watch, and tells a [Sink]. It is less
// than client-go's reflector and informer, for it holds no object: the initial
// state is streamed into the sink (sendInitialEvents), or read in pages where the
// API server cannot do that, and a sink keeps as little of an object as it needs.
//
//   - A watch that ends is resumed at the version of its last event or bookmark,
//     without a list. Only where the API server has forgotten that version, or the
//     initial state was not complete, is all read anew, between Begin and End.
//   - After an early end, of whatever reason, it waits: each time longer, up to half
//     a minute, until a watch has lived for some seconds.
//   - What the API server refuses is tried again as all else is, and told.
package watcher
