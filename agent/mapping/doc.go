// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mapping finds the resources of the cluster that views and actions name, as
// kubectl does: by plural, singular or short name, by kind, with a group or a group and
// version behind it.
//
// Discovery is read with the first target and cached. An unknown name refreshes it, but at
// most every ten seconds; [Mapper.Reset] allows a refresh before.
//
// Groups whose discovery fails, such as those of an aggregated API server that is down, do
// not affect the others. An unknown name that might be of such a group is
// [ErrUnavailable], and may be retried; [ErrNoMatch] is returned only where it is certain.
package mapping
