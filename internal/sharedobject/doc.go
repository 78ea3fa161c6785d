// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sharedobject is what of an object is shared between two clusters: labels,
// annotations, and every field but apiVersion, kind and the rest of metadata. Hub and
// agent read it from objects, compare it and write it in one way.
//
// A content is a map in the shape of an object,
//
//	{"metadata": {"labels": {...}, "annotations": {...}}, "spec": ..., "status": ...}
//
// with values as unstructured objects have them. What has no labels, no annotations or
// neither lacks the member. What kubectl remembers of an object on one side is no
// content: on the other side it would be wrong.
//
// The package is pure: no I/O, no state. Contents are not changed once they are made.
package sharedobject
