// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resource is Sync: typed resources replicated both ways between the
// hub and one agent, over the session's door of that name.
//
// A [Source] holds what one side publishes of one kind, a [Mirror] what the
// other side has received of it. Both outlive the streams that join them, so a
// reconnect costs what differs and no more.
//
// # The wire
//
// One bidirectional stream of SyncMessage (api/rpc/v1/sync.proto) carries every
// kind. For each kind the mirror speaks first:
//
//	mirror  Inventory(kind, refs..., more)   what it holds, in chunks; the last says more=false
//	source  Put / Delete                     what differs from that, and every change since
//	source  Synced(kind)                     once: the inventory has been answered in full
//
// A source answers no kind whose inventory it has not seen (a mirror that has no use
// for a kind yet keeps its inventory to itself until then), and speaks about
// absence (Delete for what the mirror holds and the source does not, Synced)
// only when it has been declared complete by [Source.Complete]: a hub that has
// not yet read its own records never deletes anything in a spoke.
//
// Messages about a kind that the receiver does not know are ignored when they
// are inventories (a newer peer may mirror more than we publish) and an error
// otherwise, since nothing may be sent unasked.
//
// # Bounds
//
// A pending change is a key, not a body: however often a resource changes while
// the stream is slow, it is queued once and sent in its latest version. A body
// above [MaxBody], or [MaxReport] from an agent, is refused by [Source.Put] and leaves
// the stream alone. What a peer can make us hold is bounded by [MaxResources]
// references per kind.
//
// An agent is not trusted, so its hub bounds what it takes, in this order: the message,
// decompressed, by MaxReport and a little; the references in it, before they are
// made; the body by what it may take once it is decoded (quota.DecodedJSON), on the
// cluster's account, before any receiver sees it; and an inventory by the account and
// by a time, until it is answered. What does not fit now waits, and with it that
// cluster's stream and no other; what can never fit is dropped and logged, and the
// stream goes on. See [Hub.Limit].
//
// # Structure
//
// source.go and mirror.go are pure state machines: no goroutine, no clock, no
// I/O. stream.go moves their messages, agent.go and hub.go are the two ends. At
// most one stream serves a pair of ends; a newer one takes over from an older.
//
// limits.go is what a hub bounds.
//
// Callbacks run on the stream's reading goroutine, one at a time per mirror:
// they must not block, for they hold up every kind of that session.
package resource
