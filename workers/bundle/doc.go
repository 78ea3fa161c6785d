// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bundle says what is in the image of an account: workers that were checked, and the
// configuration that workerd serves them by.
//
// An [Input] is one list. The place of a worker in it decides its names ([Input.Path], the
// service and the socket w<i>) and its port, so that a port cannot serve another script than
// the one it is said to. [Input.Digest] names the image; [Input.Config] and [Input.Probe]
// are Cap'n Proto text that embeds modules from beside it.
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
