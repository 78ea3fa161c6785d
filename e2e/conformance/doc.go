// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conformance judges an implementation of ManifestWork from outside, as
// an unmodified client sees it: works are created on a hub, objects are looked at
// on a spoke, and nothing else is known of what lies between.
//
// A [Case] plays on its own stage: a namespace of the spoke and works of its own
// name. Most are a spec and the status that it must lead to, in the notation of
// [render]; the others go on with what happens then. Nothing waits for a clock,
// except where the API counts in seconds: every wait is a watch, and "nothing
// happens" means that something that was asked for later has happened.
//
// No controllers are needed on either side, nor do they disturb: where a case
// writes a status itself, a policy keeps controllers out of the suite's
// namespaces.
package conformance
