// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version keeps uploaded versions of scripts in the object store, and nowhere else:
// those of script s of account a below a/s/. A version is a description, a/s/<id>.json, and a
// folder with its modules, a/s/<id>/, which other versions may share. The description is
// written last: modules without one are no version.
//
// What is served is not known here: it is what the WorkerDeployments say, and whoever
// removes versions says which of them are still needed.
package version
