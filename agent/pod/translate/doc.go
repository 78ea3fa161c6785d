// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package translate makes of a pod of the hub the pod that runs for it in the spoke,
// and of a change of it what is to be written there.
//
// Everything is a pure function. [Pod] is what to create, [Want] the same with the
// ephemeral containers, which come to a live pod only, and [Change] what of a want
// is to be written to the live pod.
//
// Fields are let through one by one: one that is not named here stays on the hub.
// What would reach out of the pod's namespace in the spoke, to its nodes, is refused
// unless the spoke's owner allows it.
//
// The spoke's admission changes what is created: it fills in, and may replace, an
// image by that of a mirror for one. Therefore a live pod is not compared to the
// want but the want to what was asked for before, which the pod bears in the
// annotation [AnnotationWritten], as digests; and only what was asked for anew is
// written.
package translate
