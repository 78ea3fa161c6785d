// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version stores uploaded versions of scripts in the object store. A
// version v of script s of account a is a folder with its modules, a/s/v/, which other versions
// may share, and a description, _versions/a/s/v.json, outside of the prefixes of accounts: a user who may
// write below an account's id can write code, but not choose the Secret that the API gives to it. The
// description is written last: modules without one are no version.
//
// The package does not know which versions are served: callers that prune versions tell which ones
// are needed.
package version
