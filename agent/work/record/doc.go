// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package record keeps the anchors of works: the AppliedWork or AppliedManifestWork in the
// spoke that lists what was applied for a work.
//
// An object is listed before it is applied and until it is gone, so that a crash between
// any two steps leaves nothing that no anchor lists. A [Store] reads and writes the
// anchors of one dialect for one [Owner]; it takes over an anchor only if that is the
// owner's.
package record
