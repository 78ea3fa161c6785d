// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bundle describes the image of an account: its validated workers and the configuration of
// workerd.
//
// An [Input] is one list. The place of a worker in it decides its names ([Input.Path], the
// service and the socket w<i>) and its port, so that a port cannot serve another script than
// the one it is said to. [Input.Digest] names the image; [Input.Config] and [Input.Probe]
// are Cap'n Proto text that embeds modules from beside it.
//
// # The tail worker
//
// Beside the workers of the account there is one of ours, the tail worker (tail.js), on
// [TailPort]. Each worker sends its trace events to it, and for 30 s after a POST it writes
// each event as one line to the process's output, the pod's log: a record separator (0x1e) and
// a text of JSON, {"script": name, "event": event}, of at most 128 KiB. Parts of an event that
// are too large for that are left out, and its field truncated is true. A probe has none.
//
// A worker writes to the same output by console.log, and may write such a line itself: what a
// line says is what the account says.
//
// # What a worker can reach
//
// A worker has its modules, its bindings and, by the service internet, public addresses. No
// binding names a file, a socket or another worker; a variable is read only where a binding
// says so. In a probe it reaches nothing.
//
// The package has no client and reads no file: the same input makes the same bytes. A change
// of what it writes needs another [format], or images that exist are taken for what it would
// write now.
package bundle
