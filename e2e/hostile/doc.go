// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostile attacks a running hub as a hostile spoke, a hostile user or a
// hostile neighbour in the hub's cluster can, and watches what that costs the others.
//
// [Prepare] joins fifty honest clusters and one hostile one. [Site.Attacks] are the
// attacks; each is bounded in count and time, and stops by itself. [Site.Watch] runs
// one, and [Site.Quiet] what its users do while nobody attacks. Both return what they saw
// meanwhile: the hub's memory, its restarts, which honest sessions ended, and how the
// requests of an honest user were answered.
package hostile
