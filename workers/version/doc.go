// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version keeps uploaded versions of scripts in the object store, and nowhere else. A
// version v of script s of account a is a folder with its modules, a/s/v/, which other versions
// may share, and a description, _versions/a/s/v.json, outside of what any account has: who may
// write below an account's id writes code, and not which Secret the API hands to it. The
// description is written last: modules without one are no version.
//
// What is served is not known here: it is what the WorkerDeployments say, and whoever
// removes versions says which of them are still needed.
package version
