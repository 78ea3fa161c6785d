// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mapping finds the resources of the cluster that views and actions name, as
// kubectl does: by plural, singular or short name, by kind, with a group or a group and
// version behind it.
//
// What the cluster serves is read with the first question and kept; a name that is not
// there has it read anew, but no more often than every ten seconds, and [Mapper.Reset]
// says when that is worth it before.
//
// Groups that cannot be read, such as those of an aggregated API server that is away, are
// no hindrance to the others. A name that is not there and might be of such a group is
// [ErrUnavailable], which is worth another try; [ErrNoMatch] is said only where it is certain.
package mapping
