// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package jsonstream reads JSON that a peer writes, value by value, so that what is held of
// it at a time is one value and not the whole text: a text without end ends at a bound, and
// one of a million empty objects does not become a hundred times its size.
//
// A reader walks to the values that it wants ([Members], [Elements], [Skip]) with a decoder
// that says how much it holds ([NewDecoder]). How much that may be is the reader's to say.
package jsonstream
