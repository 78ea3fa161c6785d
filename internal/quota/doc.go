// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quota bounds what one peer may cost the hub: bytes of memory that are
// held on its account ([Memory]), and bytes a second that are written to the hub's
// store because of it ([Writes]). Each has a bound for one owner, which is a cluster
// where nothing else is said, and a bound for all owners together, so that neither
// one hostile cluster nor many of them take what the others need. [Slots] are the same
// for what is counted one by one, such as streams; in a [Room] the newest always finds a place.
//
// Bytes are those of decoded values, not those on the wire: a few kilobytes of
// compressed JSON may take a gigabyte once they are decoded. [DecodedJSON] says what
// a document will take before it is decoded.
//
// The package keeps count and time and does nothing else. It knows neither tunnel
// nor Kubernetes, and every room of the hub may import it.
package quota
